package semeltest_test

import (
	"context"
	"time"

	"github.com/semel-dev/semel/driver"
)

// sweepBugs are mistakes of stores in sweeps.
func sweepBugs() []bug {
	const in = "FM41 sweep"
	type change = func(got *driver.Swept, more *bool)
	changed := func(c change) func(*planted) {
		return func(s *planted) {
			s.sweep = func(s *planted, ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
				got, more, err := s.store().Sweep(ctx, horizon, limit, consumers...)
				c(&got, &more)
				return got, more, err
			}
		}
	}
	return []bug{
		{"a sweep reports no lag", in, changed(func(got *driver.Swept, _ *bool) { got.Lag = 0 })},
		{"a sweep reports a lag when nothing is left", in, changed(func(got *driver.Swept, _ *bool) { got.Lag = max(got.Lag, 1) })},
		{"a sweep reports an hour for a minute", in, changed(func(got *driver.Swept, _ *bool) { got.Lag *= 60 })},
		{"a sweep reports that there is no more", in, changed(func(_ *driver.Swept, more *bool) { *more = false })},
		{"a sweep passes its limit", in, func(s *planted) {
			s.sweep = func(s *planted, ctx context.Context, horizon time.Duration, _ int, consumers ...string) (driver.Swept, bool, error) {
				return s.store().Sweep(ctx, horizon, 0, consumers...)
			}
		}},
		{"a sweep purges what runs and what is in doubt", in, func(s *planted) {
			s.sweep = func(s *planted, ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
				got, more, err := s.store().Sweep(ctx, horizon, limit, consumers...)
				if got.Purged > 0 && !more {
					s.forget()
				}
				return got, more, err
			}
		}},
		{"a sweep parks what is another consumer's", "FM41 sweep of one consumer", func(s *planted) {
			s.sweep = func(s *planted, ctx context.Context, horizon time.Duration, limit int, _ ...string) (driver.Swept, bool, error) {
				return s.store().Sweep(ctx, horizon, limit)
			}
		}},
		{"a sweep counts a retry's retention from its release", in, func(s *planted) {
			s.finish = func(s *planted, ctx context.Context, f []driver.Finish) ([]driver.Outcome, error) {
				v := append([]driver.Finish(nil), f...)
				for i := range v {
					if v[i].Final == driver.Release && v[i].RetryAfter > 0 && v[i].Keep > 0 {
						v[i].RetryAfter = 0
					}
				}
				return s.store().Finish(ctx, v...)
			}
		}},
		{"a sweep purges what it saw, without a second look", "FM41 sweeps while records are redriven", func(s *planted) {
			s.sweep = blindSweep
		}},
	}
}

// blindSweep looks for failed records that are past their retention, and purges those that were redriven meanwhile.
func blindSweep(s *planted, ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	seen, err := s.Records(ctx, driver.RecordFilter{State: driver.FailedState})
	if err != nil {
		return driver.Swept{}, false, err
	}
	time.Sleep(5 * time.Millisecond) // it looks, and deletes later
	for i := range seen {
		r, _, err := s.Record(ctx, seen[i].Key)
		if err != nil {
			return driver.Swept{}, false, err
		}
		if r.State == driver.Released && r.Generation > seen[i].Generation {
			s.clock.advance(48 * time.Hour)
			defer s.clock.advance(-48 * time.Hour)
			limit = 0 // that one, too
			break
		}
	}
	return s.store().Sweep(ctx, horizon, limit, consumers...)
}
