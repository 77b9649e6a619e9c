package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlSweepLag looks at the stretch where a sweep stopped, or the next one that is due. 1 stretch 2 pages of a stretch.
const sqlSweepLag = `WITH s AS (SELECT coalesce((SELECT w.stretch FROM semel_sweep w WHERE w.stretch >= $1 AND w.due <= clock_timestamp()
    ORDER BY w.stretch LIMIT 1), $1) AS stretch)
SELECT clock_timestamp(), min(r.retain_until) FROM semel_record r
WHERE r.ctid >= (SELECT format('(%s,0)', s.stretch * $2)::tid FROM s) AND
  r.ctid < (SELECT format('(%s,0)', (s.stretch + 1) * $2)::tid FROM s) AND
  r.state IN (2, 3, 4, 6) AND r.retain_until < clock_timestamp()`

// lag tells for how long the retention of a record is over that the sweep leaves, because it has done as much as it may.
// One stretch stands for all of them: those behind it wait for no longer than that as a rule.
func (w *sweep) lag(ctx context.Context) (lag time.Duration, err error) {
	err = w.db.with(ctx, func(conn *pgxpool.Conn) error {
		p := &pipeline{}
		p.query("look at what a sweep leaves", func(rows pgx.Rows) error {
			var now time.Time
			var oldest *time.Time
			for rows.Next() {
				if err := rows.Scan(&now, &oldest); err != nil {
					return err
				}
			}
			if oldest != nil {
				lag = now.Sub(*oldest)
			}
			return rows.Err()
		}, sqlSweepLag, w.from, int64(sweepPages))
		return p.run(ctx, conn)
	})
	return lag, err
}
