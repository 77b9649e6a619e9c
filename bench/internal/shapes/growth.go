package shapes

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/driver"
)

// The growth measure, in records: how many are added between two looks at the clock, between which of them is early, and
// from which on is late.
const (
	growSlice           = 100_000
	growFrom, growTo    = 100_000, 1_000_000
	growLate, growUntil = 2_700_000, 3_200_000
)

// grow fills a store with records, claimed and completed by two callers in batches of 1,000, and compares the rate
// around 3 million with that between 100 thousand and a million: medians of slices, because a checkpoint or somebody
// else's work falls into some.
func grow(ctx context.Context, e *harness.Env, s driver.Store) (harness.Sample, error) {
	var early, late []float64
	stop := e.Watch()
	n := 0
	for ; n < max(e.N, growUntil); n += growSlice {
		begin := time.Now()
		if err := fill(ctx, s, growSlice); err != nil {
			return harness.Sample{}, fmt.Errorf("fill the store behind record %d: %w", n, err)
		}
		rate := growSlice / time.Since(begin).Seconds()
		switch {
		case n >= growFrom && n < growTo:
			early = append(early, rate)
		case n >= growLate:
			late = append(late, rate)
		}
	}
	a, b := harness.Median(early), harness.Median(late)
	return harness.Sample{
		Done: n, Usage: stop(),
		Values: map[string]float64{"early_per_second": a, "late_per_second": b, "late_to_early": b / a},
	}, nil
}

// fill adds n records, a multiple of 2,000.
func fill(ctx context.Context, s driver.Store, n int) error {
	const batch, callers = 1000, 2
	g, ctx := errgroup.WithContext(ctx)
	for range callers {
		g.Go(func() error {
			for range n / batch / callers {
				if err := fillBatch(ctx, s, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func fillBatch(ctx context.Context, s driver.Store, n int) error {
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i] = newClaim()
	}
	grants, err := s.Claim(ctx, claims...)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	ends := make([]driver.Finish, n)
	for i := range grants {
		if err := acquired(&grants[i]); err != nil {
			return err
		}
		ends[i] = completion(&grants[i])
	}
	if _, err := s.Finish(ctx, ends...); err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}
