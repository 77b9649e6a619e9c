package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// sqlSweep does one step of a sweep. 1 stretch to begin with 2 pages of a stretch 3 stretches of a small table 4 records at
// most 5 horizon 6 whose claims to park, NULL = all. See semel_sweep_step.
const sqlSweep = "SELECT * FROM semel_sweep_step($1, $2, $3, $4, $5, $6)"

const (
	// sweepPages is the length of a stretch: 2 MiB of records, some thousands. Changing it makes the rows of semel_sweep
	// mean other pages.
	sweepPages = 256
	// sweepSmall is how many stretches a table has that is swept as a whole every time.
	sweepSmall = 8
	// sweepStep bounds what one transaction removes, so that claims wait some milliseconds at most.
	sweepStep = 500
)

// Sweep purges or expires up to limit records whose retention has ended, and parks claims of the consumers (none = all)
// that were abandoned for longer than horizon. limit 0 = no limit; more reports that it stopped at the limit. It works in
// short transactions, and looks only at stretches of the table where something can be due: at each at least once an hour.
// Several processes may sweep at once.
func (s *Store) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (sum driver.Swept, more bool, err error) {
	if limit <= 0 {
		limit = math.MaxInt
	}
	w := &sweep{db: s.db, horizon: horizon, consumers: consumers}
	for {
		left := limit - sum.Count()
		if left <= 0 {
			if sum.Lag, err = w.lag(ctx); err != nil {
				return sum, false, fmt.Errorf("sweep: %w", err)
			}
			return sum, true, nil
		}
		if err := w.step(ctx, min(left, sweepStep)); err != nil {
			return sum, false, fmt.Errorf("sweep: %w", err)
		}
		sum.Add(w.did)
		if w.end {
			return sum, false, nil
		}
	}
}

// sweep is one call of Sweep on its way through the table.
type sweep struct {
	db      *DB
	horizon time.Duration
	// consumers are those whose claims are parked; none: all.
	consumers []string
	from      int64 // the stretch to go on with
	end       bool  // there is no further one
	did       driver.Swept
}

// step sweeps one stretch, or a part of it, in one transaction.
func (w *sweep) step(ctx context.Context, most int) error {
	var horizon *time.Duration
	if w.horizon > 0 {
		horizon = &w.horizon
	}
	var whose bytess // nil is NULL
	for _, c := range w.consumers {
		whose = append(whose, []byte(c))
	}
	var did driver.Swept
	from, end := w.from, true
	read := func(x *rowTx) func(rows pgx.Rows) error {
		return func(rows pgx.Rows) error {
			for rows.Next() {
				var (
					stretch         int64
					purged, expired *int64
					whole           *bool
					found           []byte
					now             time.Time
				)
				if err := rows.Scan(&stretch, &purged, &expired, &whole, &found, &now); err != nil {
					return err
				}
				if found == nil {
					did.Purged, did.Expired, end, from = int(*purged), int(*expired), false, stretch
					if *whole {
						from++
					}
					continue
				}
				r, err := readRecord(found)
				if err != nil {
					continue // a program that can read it sweeps it
				}
				if after, v := driver.DecideSweep(r, now, w.horizon, 0, w.consumers...); v == driver.SweepAbandon {
					x.changes = append(x.changes, after)
				}
			}
			return rows.Err()
		}
	}
	err := rows{w.db}.try(ctx, false, func(x *rowTx) error {
		x.p.beginLong(w.db)
		x.p.query("sweep a stretch", read(x), sqlSweep, w.from, int32(sweepPages), int32(sweepSmall), int32(most), horizon, whose)
		err := x.send()
		did.Abandoned = len(x.changes)
		return err
	})
	if err == nil {
		w.did, w.from, w.end = did, from, end
	}
	return err
}

// sqlSweepLag looks at the stretch where a sweep stopped, or the next one that is due. 1 stretch 2 pages of a stretch
const sqlSweepLag = `WITH x AS (SELECT ?::bigint AS begin, ?::bigint AS pages),
  s AS (SELECT coalesce((SELECT w.stretch FROM semel_sweep w WHERE w.stretch >= x.begin AND w.due <= clock_timestamp()
    ORDER BY w.stretch LIMIT 1), x.begin) AS stretch, x.pages FROM x)
SELECT clock_timestamp(), min(r.retain_until) FROM semel_record r
WHERE r.ctid >= (SELECT format('(%s,0)', s.stretch * s.pages)::tid FROM s) AND
  r.ctid < (SELECT format('(%s,0)', (s.stretch + 1) * s.pages)::tid FROM s) AND
  r.state IN (2, 3, 4, 6) AND r.retain_until < clock_timestamp()`

// lag returns for how long the retention of a record that this sweep leaves has ended. One stretch stands for all of them:
// those behind it are usually not older.
func (w *sweep) lag(ctx context.Context) (lag time.Duration, err error) {
	err = rows{w.db}.Read(ctx, func(r rowstore.Row) error {
		if oldest := r.Time(1); !oldest.IsZero() {
			lag = r.Time(0).Sub(oldest)
		}
		return nil
	}, sqlSweepLag, w.from, int64(sweepPages))
	return lag, err
}
