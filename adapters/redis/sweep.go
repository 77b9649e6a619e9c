package redis

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/semel-dev/semel/driver"
)

// sweepPage is how many records a sweep looks at with one call.
const sweepPage = 200

// sweep is one call of Sweep.
type sweep struct {
	*Store
	horizon   time.Duration
	limit     int
	consumers []string
	periods   map[string]time.Duration // long-term, by consumer
	sum       driver.Swept
	more      bool
}

// Sweep purges records that are past their retention, oldest first, and parks abandoned claims. It finds both by the index,
// and each write is made only if the record is still as it was read. Sweeps of several processes do not disturb each other.
func (s *Store) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	if limit <= 0 {
		limit = math.MaxInt
	}
	w := &sweep{Store: s, horizon: horizon, limit: limit, consumers: consumers}
	var err error
	if w.periods, err = s.LongTerms(ctx); err != nil {
		return w.sum, false, fmt.Errorf("sweep: %w", err)
	}
	first := int(s.turn.Add(1))
	for n := range s.shards {
		if err := w.shard(ctx, (first+n)%s.shards); err != nil {
			return w.sum, false, fmt.Errorf("sweep: %w", err)
		}
	}
	return w.sum, w.more, nil
}

func (w *sweep) shard(ctx context.Context, shard int) error {
	probe := &item{}
	probe.hash[0], probe.hash[1] = byte(shard>>8), byte(shard) //nolint:gosec // at most 1024
	w.read(ctx, probe)
	if probe.err != nil {
		return probe.err
	}
	now := float64(probe.now.UnixMicro())
	if err := w.scan(ctx, shard, 0, now, true); err != nil || w.horizon <= 0 {
		return err
	}
	return w.scan(ctx, shard, openScore, openScore+now-float64(w.horizon.Microseconds()), false)
}

// scan sweeps what is scored from low to below high.
func (w *sweep) scan(ctx context.Context, shard int, low, high float64, due bool) error {
	for offset := int64(0); ; {
		left := int64(w.limit - w.sum.Count())
		page, least, err := w.scored(ctx, shard, low, high, offset, max(min(left, sweepPage), 1))
		if err != nil || len(page) == 0 {
			return err
		}
		if left == 0 {
			if w.more = true; due {
				w.sum.Overdue(time.UnixMicro(int64(high)), time.UnixMicro(int64(least)))
			}
			return nil
		}
		w.read(ctx, page...)
		kept, err := w.page(ctx, page)
		if err != nil {
			return err
		}
		offset += int64(kept)
	}
}

// page sweeps records that were read, and returns how many of them keep their place in the index.
func (w *sweep) page(ctx context.Context, page []*item) (kept int, err error) {
	changes := make([]*change, len(page))
	verdicts := make([]driver.SweepVerdict, len(page))
	for i, it := range page {
		c := &change{item: it, once: true}
		c.decide = func(r driver.Record, now time.Time, _ uint64) (after driver.Record, write bool, more []any) {
			if r.State == driver.Absent { // the index is ahead of a record that was never written
				c.purge, verdicts[i] = true, driver.SweepKeep
				return r, true, nil
			}
			after, verdicts[i] = driver.DecideSweep(r, now, w.horizon, w.periods[r.Key.Consumer], w.consumers...)
			c.purge = verdicts[i] == driver.SweepPurge
			return after, verdicts[i] != driver.SweepKeep, nil
		}
		changes[i] = c
	}
	w.swap(ctx, changes)
	for i, c := range changes {
		switch {
		case c.err != nil && !isUnreadable(c.err):
			return 0, c.err
		case c.err != nil, c.lost, !c.purge && verdicts[i] == driver.SweepKeep:
			kept++
		case verdicts[i] == driver.SweepPurge:
			w.sum.Purged++
		case verdicts[i] == driver.SweepExpire:
			w.sum.Expired++
		case verdicts[i] == driver.SweepAbandon:
			w.sum.Abandoned++
		}
	}
	return kept, nil
}
