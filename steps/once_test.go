package steps_test

import (
	"context"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/steps"
)

// TestOnceProbes: if an attempt that crashed started the step, the probe is asked before anything else happens.
func TestOnceProbes(t *testing.T) {
	for _, c := range []struct {
		name   string
		found  semel.ProbeResult
		err    error
		calls  string
		state  driver.State
		result string
	}{
		{"applied", semel.ProbeApplied, nil, "[pay probe]", driver.Completed, "asked"},
		{"not applied", semel.ProbeNotApplied, nil, "[pay probe pay]", driver.Completed, "paid"},
		{"unknown", semel.ProbeUnknown, nil, "[pay probe]", driver.Uncertain, ""},
		{"the probe fails", semel.ProbeUnknown, errBroken, "[pay probe]", driver.Released, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newFixture(t)
			killed := true
			var got string
			fn := func(ctx context.Context, r *steps.Run) (err error) {
				got, err = steps.Once(ctx, r, "pay", func(context.Context, string) (string, error) {
					g.calls = append(g.calls, "pay")
					if killed {
						if j := g.journal(); j != "pay:STARTED" {
							t.Errorf("while the step runs the journal is %q", j)
						}
						panic("killed")
					}
					return "paid", nil
				}, func(context.Context, string) (string, semel.ProbeResult, error) {
					g.calls = append(g.calls, "probe")
					return "asked", c.found, c.err
				})
				return err
			}
			g.crash(fn)
			killed = false
			_ = g.attempt(fn)
			g.state(c.state)
			if calls := g.calls; len(calls) == 0 || "["+join(calls)+"]" != c.calls {
				t.Errorf("called %q, wanted %s", calls, c.calls)
			}
			if got != c.result {
				t.Errorf("the result is %q, wanted %q", got, c.result)
			}
		})
	}
}

func join(s []string) (out string) {
	for i, x := range s {
		if i > 0 {
			out += " "
		}
		out += x
	}
	return out
}

// TestOnceWithoutProbe: a failure whose outcome nobody can tell is for a person, or goes back where a compensation can deal
// with it; one that certainly had no effect is repeated.
func TestOnceWithoutProbe(t *testing.T) {
	pay := func(g *fixture, fail error, opts ...steps.StepOption) steps.Func {
		return func(ctx context.Context, r *steps.Run) error {
			if err := g.step(ctx, r, "first", nil); err != nil {
				return err
			}
			_, err := steps.Once(ctx, r, "pay", func(context.Context, string) (int, error) {
				g.calls = append(g.calls, "pay")
				return 0, fail
			}, nil, opts...)
			return err
		}
	}
	t.Run("in doubt", func(t *testing.T) {
		g := newFixture(t)
		g.has(g.attempt(pay(g, errBroken)), `step "pay" may have happened`)
		g.called("first", "pay")
		g.state(driver.Uncertain)
		// An operator that releases it does not make it run twice.
		g.operate(driver.Operation{Kind: driver.Resolve, As: driver.Released})
		_ = g.attempt(pay(g, nil))
		g.called()
		g.state(driver.Uncertain)
	})
	t.Run("in doubt, with a compensation", func(t *testing.T) {
		g := newFixture(t)
		undo := steps.Undo(func(_ context.Context, u steps.Reversal) error {
			if u.Done || u.Result(new(int)) == nil {
				t.Error("a step in doubt is not known to be done")
			}
			g.calls = append(g.calls, "undo pay")
			return nil
		})
		if err := g.attempt(pay(g, errBroken, undo)); !semel.DispositionOf(err).Compensated {
			t.Errorf("returned %v", err)
		}
		g.called("first", "pay", "undo pay", "undo first")
	})
	t.Run("not applied", func(t *testing.T) {
		g := newFixture(t)
		_ = g.attempt(pay(g, semel.NotApplied(errBroken)))
		if j := g.journal(); j != "first:DONE pay:REGISTERED" {
			t.Errorf("the journal is %s", j)
		}
		if err := g.attempt(pay(g, nil)); err != nil {
			t.Error(err)
		}
		g.called("first", "pay", "pay")
	})
	t.Run("of another kind by now", func(t *testing.T) {
		g := newFixture(t)
		g.crash(func(ctx context.Context, r *steps.Run) error {
			_, err := steps.Once(ctx, r, "pay", func(context.Context, string) (int, error) { panic("killed") }, nil)
			return err
		})
		err := g.attempt(func(ctx context.Context, r *steps.Run) error { return g.step(ctx, r, "pay", nil) })
		g.has(err, "at most once")
		g.called()
		g.state(driver.Uncertain)
	})
}

// TestUncompensatedDoubtParks: a run that goes back past a step in doubt which has no compensation is not called undone.
func TestUncompensatedDoubtParks(t *testing.T) {
	g := newFixture(t)
	err := g.attempt(func(ctx context.Context, r *steps.Run) error {
		_ = g.step(ctx, r, "first", nil)
		_, err := steps.Once(ctx, r, "mail", func(context.Context, string) (int, error) { return 0, steps.Abort(errBroken) },
			func(context.Context, string) (int, semel.ProbeResult, error) { return 0, semel.ProbeUnknown, nil })
		return err
	})
	g.has(err, `step "mail" may have happened`)
	g.called("first", "undo first")
	g.state(driver.Uncertain)
}

// TestResultsAreKept: results keep their type. A result that does not fit its type means that the code changed.
func TestResultsAreKept(t *testing.T) {
	type flight struct {
		Number string
		Seats  []int
	}
	g := newFixture(t)
	g.opts = append(g.opts, steps.Version("v2"))
	var got flight
	fn := func(ctx context.Context, r *steps.Run) (err error) {
		got, err = steps.Do(ctx, r, "flight", func(context.Context, string) (flight, error) {
			return flight{"LH1", []int{1, 2}}, nil
		})
		if err != nil {
			return err
		}
		return g.step(ctx, r, "then", errBroken)
	}
	_ = g.attempt(fn)
	got = flight{}
	_ = g.attempt(fn)
	if got.Number != "LH1" || len(got.Seats) != 2 {
		t.Errorf("the result is %+v", got)
	}
	err := g.attempt(func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Do(ctx, r, "flight", func(context.Context, string) ([]string, error) { return nil, nil })
		return err
	})
	g.has(err, `step "flight"`, "v2")
	g.state(driver.Uncertain)
}

// TestFM59ResultThatCannotBeStored is for good: a repetition would only repeat the effect.
func TestFM59ResultThatCannotBeStored(t *testing.T) {
	g := newFixture(t)
	err := g.attempt(func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Do(ctx, r, "a", func(context.Context, string) (func(), error) { return func() {}, nil })
		return err
	})
	g.has(err, "cannot be stored")
	g.state(driver.FailedState)
}
