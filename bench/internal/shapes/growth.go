package shapes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/driver"
)

// The growth measure, in records: how many the small store has when it begins, how many are added between two looks at the
// clock, and how many slices of each order of keys are added to each store.
const (
	growSmall = 1_000_000
	growSlice = 20_000
	growPairs = 9
)

func growth(name, title, settings string, run func(context.Context, *harness.Env) (harness.Sample, error)) harness.Measure {
	return harness.Measure{
		Name: name, Title: title, Kind: harness.Semel, Unit: "records", Long: true, N: 50_000_000, Run: run,
		Settings: "claims and completions by two callers in batches of 1,000; slices of 20,000 to a small store and a large one in turn; " +
			settings,
	}
}

func postgresGrowth() harness.Measure {
	return growth("semel-pg-growth", "PostgreSQL", "two databases of one server", func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
		return withPostgres(ctx, e, func(d1 *harness.Database, large *postgres.DB) (harness.Sample, error) {
			return withPostgres(ctx, e, func(d2 *harness.Database, small *postgres.DB) (harness.Sample, error) {
				return grow(ctx, e, prefilledPostgres(d1, large), prefilledPostgres(d2, small))
			})
		})
	})
}

func sqliteGrowth() harness.Measure {
	return growth("semel-sqlite-growth", "SQLite", "two files", func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
		return withSQLite(ctx, e, func(large *sqlite.DB) (harness.Sample, error) {
			return withSQLiteFile(ctx, e, "small.db", func(small *sqlite.DB) (harness.Sample, error) {
				return grow(ctx, e, prefilledSQLite(large), prefilledSQLite(small))
			})
		})
	})
}

// grow makes a store of e.N records and one of a million (or half of e.N). Then both get further slices in turn, so that the
// rates that are compared are of the same minutes. Keys are ordered in some slices and random in others. The ratio is the
// median over the pairs of neighbours.
func grow(ctx context.Context, e *harness.Env, large, small *prefilled) (s harness.Sample, err error) {
	before := min(growSmall, e.N/2)
	s.Values = map[string]float64{"small_records": float64(before)}
	if _, err := small.prefill(ctx, e, before); err != nil {
		return s, fmt.Errorf("small store: %w", err)
	}
	filled, err := large.prefill(ctx, e, e.N)
	if err != nil {
		return s, fmt.Errorf("large store: %w", err)
	}
	s.Values["filled_per_second"] = float64(e.N) / filled.Wall.Seconds()
	s.Values["filled_cpu_us"] = float64((filled.Client + filled.Server).Microseconds()) / float64(e.N)
	if err := e.Checkpoint(ctx); err != nil {
		return s, err
	}
	stop := e.Watch()
	kinds := orders()
	early, late, ratios := make([][]float64, len(kinds)), make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for range growPairs {
		for i := range kinds {
			a, err := slice(ctx, small.store, &kinds[i])
			if err != nil {
				return s, fmt.Errorf("small store: %w", err)
			}
			b, err := slice(ctx, large.store, &kinds[i])
			if err != nil {
				return s, fmt.Errorf("large store: %w", err)
			}
			early[i], late[i], ratios[i] = append(early[i], a), append(late[i], b), append(ratios[i], b/a)
		}
	}
	s.Usage, s.Done = stop(), 2*growPairs*growSlice*len(kinds)
	for i := range kinds {
		o := &kinds[i]
		o.value(s.Values, "small_per_second", early[i])
		o.value(s.Values, "large_per_second", late[i])
		o.value(s.Values, "ratio", ratios[i])
		o.value(s.Values, "least", []float64{slices.Min(ratios[i])})
		o.value(s.Values, "greatest", []float64{slices.Max(ratios[i])})
	}
	return s, nil
}

// slice adds growSlice records and returns the rate per second.
func slice(ctx context.Context, s driver.Store, o *order) (float64, error) {
	begin := time.Now()
	err := fill(ctx, s, growSlice, o.next, retention)
	return growSlice / time.Since(begin).Seconds(), err
}

// fill adds n records, a multiple of 2,000, that are kept for so long.
func fill(ctx context.Context, s driver.Store, n int, next func() string, keep time.Duration) error {
	const batch, callers = 1000, 2
	g, ctx := errgroup.WithContext(ctx)
	for range callers {
		g.Go(func() error {
			for range n / batch / callers {
				if err := fillBatch(ctx, s, batch, next, keep); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func fillBatch(ctx context.Context, s driver.Store, n int, next func() string, keep time.Duration) error {
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i] = newClaim()
		claims[i].Key.Raw = next()
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
