package rowstore

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// sweepStep limits how many records one transaction of a sweep removes, so that claims wait some milliseconds at most.
const sweepStep = 200

// Sweep purges or expires up to limit records past their retention, and parks claims of the consumers (none = of all) that
// were abandoned for longer than horizon. limit 0 = no limit. It uses short transactions, and needs an index on retain_until
// and one on lease_until. See [driver.Sweeper].
func (s *Store) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (sum driver.Swept, more bool, err error) {
	if limit <= 0 {
		limit = math.MaxInt
	}
	for passed := 0; ; { // records that are due and were skipped: locked by another session, or unreadable
		most := min(limit-sum.Count(), sweepStep)
		var did driver.Swept
		found := 0
		err := s.db.Atomic(ctx, sweepStep, func(tx Tx) (err error) {
			if s.layout.SharePeriods != "" {
				if err := tx.Exec(s.layout.SharePeriods); err != nil {
					return err
				}
			}
			keys, err := s.due(tx, horizon, most+1, passed, consumers)
			if err != nil {
				return err
			}
			found = len(keys)
			did, err = sweep(tx, keys, most, horizon, consumers)
			return err
		})
		if err != nil {
			return sum, false, fmt.Errorf("sweep: %w", err)
		}
		sum.Add(did)
		if passed += min(found, most) - did.Count(); found <= most || sum.Count() >= limit {
			return sum, found > most, nil
		}
	}
}

// due finds records that may be due. It locks nothing.
func (s *Store) due(tx Tx, horizon time.Duration, limit, offset int, consumers []string) (keys []driver.Key, err error) {
	now, err := s.layout.Now(tx)
	if err != nil {
		return nil, err
	}
	sql := "SELECT consumer, place, rest FROM semel_record WHERE state IN (2, 3, 4, 6) AND retain_until < ?"
	args := []any{now}
	if horizon > 0 {
		sql += " UNION ALL SELECT consumer, place, rest FROM semel_record WHERE state = 1 AND lease_until < ?"
		args = append(args, now.Add(-horizon))
		if len(consumers) > 0 {
			sql += " AND consumer IN (?" + strings.Repeat(", ?", len(consumers)-1) + ")"
		}
		for _, c := range consumers {
			args = append(args, c)
		}
	}
	err = tx.Query(func(r Row) error {
		k, _ := Place(r.Bytes(1)).Key(r.Text(0), r.Bytes(2)) // of a damaged record: no record is found at its place
		keys = append(keys, k)
		return nil
	}, sql+" LIMIT ? OFFSET ?", append(args, int64(limit), int64(offset))...)
	return keys, err
}

// sweep decides records, and purges, expires or parks up to most of them.
func sweep(tx Tx, keys []driver.Key, most int, horizon time.Duration, consumers []string) (did driver.Swept, err error) {
	periods, err := Periods(tx)
	if err != nil {
		return did, err
	}
	b, err := lock(tx, len(keys), func(i int) *driver.Key { return &keys[i] }, Skip)
	for i := 0; i < len(keys) && err == nil; i++ {
		l := &b.locked[b.at[i]]
		after, verdict := driver.DecideSweep(l.Record, l.Now, horizon, periods[keys[i].Consumer], consumers...)
		switch {
		case l.Err != nil || verdict == driver.SweepKeep:
		case did.Count() == most:
			did.Overdue(l.Now, l.Record.RetainUntil)
		case verdict == driver.SweepPurge:
			did.Purged++
			err = tx.Drop(l)
		case verdict == driver.SweepExpire:
			did.Expired++
			err = expire(tx, l, &after)
		default:
			did.Abandoned++
			err = tx.Put(l, &after)
		}
	}
	return did, err
}
