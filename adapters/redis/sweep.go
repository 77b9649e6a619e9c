package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	goredis "github.com/redis/go-redis/v9"

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
	w.periods, err = s.LongTerms(ctx)
	first := int(s.turn.Add(1))
	for n := 0; n < s.shards && err == nil; n++ {
		err = w.shard(ctx, (first+n)%s.shards)
	}
	if err != nil {
		return w.sum, false, fmt.Errorf("sweep: %w", err)
	}
	return w.sum, w.more, nil
}

func (w *sweep) shard(ctx context.Context, shard int) error {
	probe := &item{}                                           // for the server's time
	probe.hash[0], probe.hash[1] = byte(shard>>8), byte(shard) //nolint:gosec // at most 1024
	if w.read(ctx, probe); probe.err != nil {
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
	for kept := 0; ; { // those that keep their place in the index
		left := w.limit - w.sum.Count()
		page, err := w.scored(ctx, w.slot(shard)+"index", goredis.ZRangeBy{
			Min: scoreText(low), Max: "(" + scoreText(high), Offset: int64(kept), Count: int64(max(min(left, sweepPage), 1)),
		}, false)
		if err != nil || len(page) == 0 {
			return err
		}
		if left == 0 {
			if w.more = true; due {
				w.sum.Overdue(time.UnixMicro(int64(high)), time.UnixMicro(int64(page[0].score)))
			}
			return nil
		}
		if err := w.page(ctx, page, &kept); err != nil {
			return err
		}
	}
}

// page sweeps records.
func (w *sweep) page(ctx context.Context, page []*item, kept *int) error {
	did := make([]*driver.Swept, len(page)) // nil: the record stays
	for i, it := range page {
		it.decide = func(r driver.Record, now time.Time, _ uint64) (after driver.Record, write bool, more []any) {
			if did[i] = new(driver.Swept); r.State == driver.Absent { // the index is ahead of a record that was never written
				return r, true, nil
			}
			after, v := driver.DecideSweep(r, now, w.horizon, w.periods[r.Key.Consumer], w.consumers...)
			switch v {
			case driver.SweepKeep:
				did[i] = nil
			case driver.SweepPurge:
				did[i].Purged, after = 1, driver.Record{}
			case driver.SweepExpire:
				did[i].Expired = 1
			case driver.SweepAbandon:
				did[i].Abandoned = 1
			}
			return after, did[i] != nil, nil
		}
	}
	w.read(ctx, page...)
	w.swap(ctx, page)
	for i, it := range page {
		switch {
		case isUnreadable(it.err), errors.Is(it.err, driver.ErrNotCommitted), it.err == nil && did[i] == nil:
			*kept++
		case it.err != nil:
			return it.err
		default:
			w.sum.Add(*did[i])
		}
	}
	return nil
}
