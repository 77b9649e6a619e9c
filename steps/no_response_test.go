package steps_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/steps"
)

// silent is a store whose n-th write gets no response if until(n). It is still applied if applied is set.
type silent struct {
	journals
	until   func(n int) bool
	applied bool
	n       int
	asked   [][]driver.StepWrite
}

func (s *silent) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	s.n++
	s.asked = append(s.asked, slices.Clone(w))
	if !s.until(s.n) {
		return s.journals.WriteSteps(ctx, h, w...)
	}
	if s.applied {
		_, _ = s.journals.WriteSteps(ctx, h, w...)
	}
	if s.n%2 == 0 {
		return driver.Unknown, nil
	}
	return driver.Applied, errors.New("connection reset") // an error counts, whatever comes with it
}

// TestWritesWithoutResponseAreRepeated: the same write again, applied or not, until there is a response (law 4).
func TestWritesWithoutResponseAreRepeated(t *testing.T) {
	for _, applied := range []bool{false, true} {
		g := newFixture(t)
		st := &silent{journals: g.store, until: func(n int) bool { return n%4 != 0 }, applied: applied}
		if err := g.attemptIn(t.Context(), st, func(ctx context.Context, r *steps.Run) error {
			_, err := steps.Once(ctx, r, "pay", func(context.Context, string) (int, error) {
				g.calls = append(g.calls, "pay")
				return 7, nil
			}, nil, steps.Undo(func(context.Context, steps.Reversal) error { return nil }))
			return err
		}); err != nil {
			t.Error(err)
		}
		g.called("pay")
		if j := g.journal(); j != "pay:DONE" || st.n != 8 {
			t.Errorf("after %d writes the journal is %s, wanted 8 and pay:DONE", st.n, j)
		}
		for i, w := range st.asked {
			if first := st.asked[i/4*4]; len(w) != len(first) || w[0].Kind != first[0].Kind {
				t.Errorf("write %d is %+v, the first was %+v", i, w, first)
			}
		}
	}
}

// TestNoResponseForGood: when the context and the grace have ended, the run stops and calls nothing more.
func TestNoResponseForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t)
		g.opts = nil
		st := &silent{journals: g.store, until: func(int) bool { return true }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := g.attemptIn(ctx, st, func(ctx context.Context, r *steps.Run) error {
			_, err := steps.Do(ctx, r, "a", func(context.Context, string) (int, error) { return 1, nil })
			if !errors.Is(err, semel.ErrNoResponse) {
				t.Errorf("the step returned %v", err)
			}
			return errors.Join(g.step(ctx, r, "b", nil), steps.Abort(errBroken))
		})
		g.called()
		if !errors.Is(err, semel.ErrNoResponse) || semel.DispositionOf(err).Permanent {
			t.Errorf("the run returned %v, wanted ErrNoResponse", err)
		}
		if d := time.Since(began); d < time.Minute || d > time.Minute+5*time.Second {
			t.Errorf("it gave up after %v", d)
		}
	})
}

// unread is a store whose journals cannot be read.
type unread struct{ journals }

func (unread) Steps(context.Context, driver.Hold) ([]driver.Step, error) {
	return nil, errors.New("connection reset")
}

// TestFM63SilentJournalSpendsNoAttempt: an attempt that could not read or write its journal is not the last one, though
// attempts are used up: a dead letter would leave the run's effects in place.
func TestFM63SilentJournalSpendsNoAttempt(t *testing.T) {
	for _, c := range []struct {
		what string
		make func(s journals) driver.Store
	}{
		{"read", func(s journals) driver.Store { return unread{s} }},
		{"write", func(s journals) driver.Store {
			return &silent{journals: s, until: func(int) bool { return true }}
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newFixture(t)
			g.max, g.opts = 2, nil
			trip := func(fail error) steps.Func {
				return func(ctx context.Context, r *steps.Run) error {
					if err := g.step(ctx, r, "flight", nil); err != nil {
						return err
					}
					return g.step(ctx, r, "hotel", fail)
				}
			}
			_ = g.attempt(trip(errBroken))
			g.called("flight", "hotel")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := g.attemptIn(ctx, c.make(g.store), trip(errBroken))
			if m := semel.DispositionOf(err); !m.Deferred || !errors.Is(err, semel.ErrNoResponse) {
				t.Errorf("%s: returned %v, marks %+v", c.what, err, m)
			}
			g.state(driver.Released)
			g.calls = nil
			_ = g.attempt(trip(errBroken))
			g.called("hotel", "undo hotel", "undo flight")
			g.state(driver.FailedState)
		})
	}
}

// TestFencedContextStops: when the engine reports that the lease is lost, nothing is written anymore.
func TestFencedContextStops(t *testing.T) {
	g := newFixture(t)
	st := &silent{journals: g.store, until: func(int) bool { return false }}
	ctx, cancel := context.WithCancelCause(t.Context())
	err := g.attemptIn(ctx, st, func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Do(ctx, r, "a", func(context.Context, string) (int, error) { cancel(semel.ErrFenced); return 1, nil })
		return err
	})
	if !errors.Is(err, semel.ErrFenced) || st.n != 0 {
		t.Errorf("returned %v after %d writes", err, st.n)
	}
}

// TestCompensationPutOff: a downstream that is busy or down is not a failure: it is called later, and nothing is counted.
func TestCompensationPutOff(t *testing.T) {
	for _, c := range []struct {
		err  error
		want func(m semel.Disposition) bool
	}{
		{semel.Deferred(errBroken, time.Minute), func(m semel.Disposition) bool { return m.Deferred && m.After == time.Minute }},
		{semel.Unavailable(errBroken), func(m semel.Disposition) bool { return m.Unavailable && m.NotApplied && !m.Permanent }},
		{semel.Permanent(errBroken), func(m semel.Disposition) bool { return m.Parked }},
		{semel.Drop("not today"), func(m semel.Disposition) bool { return m.Deferred && !m.Dropped }},
	} {
		g := newFixture(t)
		err := g.attempt(func(ctx context.Context, r *steps.Run) error {
			_, err := steps.Do(ctx, r, "a", func(context.Context, string) (int, error) { return 0, steps.Abort(errBroken) },
				steps.Undo(func(context.Context, steps.Reversal) error { return c.err }))
			return err
		})
		if m := semel.DispositionOf(err); !c.want(m) {
			t.Errorf("after %v: %v, marks %+v", c.err, err, m)
		}
		rows, _ := g.store.Steps(t.Context(), g.last)
		counted := rows[0].Failures > 0
		if m := semel.DispositionOf(c.err); counted == (m.Deferred || m.Unavailable) {
			t.Errorf("after %v the journal counts %d failures", c.err, rows[0].Failures)
		}
	}
}
