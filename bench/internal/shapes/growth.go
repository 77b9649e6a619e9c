package shapes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/driver"
)

// The growth measure, in records: how many are added between two looks at the clock, from how many on a small store is
// measured, how many the large one has when it begins, and how many slices are added to each.
const (
	growSlice = 100_000
	growSmall = 100_000
	growLarge = 2_700_000
	growPairs = 9

	growSettings = "claims and completions by two callers in batches of 1,000; slices of 100,000 to a small store and a large one in turn"
)

// grow fills one store with 2.7 million records, claimed and completed by two callers in batches of 1,000. Then it and a new
// one with 100 thousand get further slices in turn, so that both rates are of the same minutes: the small one grows to a
// million meanwhile, the large one to 3.6. The ratio is the median over the pairs of neighbours. A store that was handed out
// is closed by who made it.
func grow(ctx context.Context, e *harness.Env, large, small driver.Store) (harness.Sample, error) {
	stop := e.Watch()
	if err := fill(ctx, large, growLarge, retention); err != nil {
		return harness.Sample{}, fmt.Errorf("fill the large store: %w", err)
	}
	if err := fill(ctx, small, growSmall, retention); err != nil {
		return harness.Sample{}, fmt.Errorf("fill the small store: %w", err)
	}
	var early, late, ratios []float64
	for range growPairs {
		a, err := slice(ctx, small)
		if err != nil {
			return harness.Sample{}, fmt.Errorf("small store: %w", err)
		}
		b, err := slice(ctx, large)
		if err != nil {
			return harness.Sample{}, fmt.Errorf("large store: %w", err)
		}
		early, late, ratios = append(early, a), append(late, b), append(ratios, b/a)
	}
	return harness.Sample{
		Done: growLarge + growSmall + 2*growPairs*growSlice, Usage: stop(),
		Values: map[string]float64{
			"early_per_second": harness.Median(early), "late_per_second": harness.Median(late), "late_to_early": harness.Median(ratios),
			"least_ratio": slices.Min(ratios), "greatest_ratio": slices.Max(ratios),
		},
	}, nil
}

// slice adds growSlice records and returns the rate per second.
func slice(ctx context.Context, s driver.Store) (float64, error) {
	begin := time.Now()
	err := fill(ctx, s, growSlice, retention)
	return growSlice / time.Since(begin).Seconds(), err
}

// fill adds n records, a multiple of 2,000, that are kept for so long.
func fill(ctx context.Context, s driver.Store, n int, keep time.Duration) error {
	const batch, callers = 1000, 2
	g, ctx := errgroup.WithContext(ctx)
	for range callers {
		g.Go(func() error {
			for range n / batch / callers {
				if err := fillBatch(ctx, s, batch, keep); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func fillBatch(ctx context.Context, s driver.Store, n int, keep time.Duration) error {
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i] = newClaim()
	}
	return complete(ctx, s, claims, keep)
}

// complete claims keys and completes them.
func complete(ctx context.Context, s driver.Store, claims []driver.Claim, keep time.Duration) error {
	grants, err := s.Claim(ctx, claims...)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	ends := make([]driver.Finish, len(claims))
	for i := range grants {
		if err := acquired(&grants[i]); err != nil {
			return err
		}
		ends[i] = completion(&grants[i], keep)
	}
	if _, err := s.Finish(ctx, ends...); err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}
