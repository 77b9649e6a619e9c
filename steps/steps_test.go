package steps_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/steps"
)

// TestStepsAreRunOnce: a step that is done is not called again; its result comes from the journal.
func TestStepsAreRunOnce(t *testing.T) {
	g := newFixture(t)
	fail := errBroken
	var got []string
	fn := func(ctx context.Context, r *steps.Run) error {
		a, err := steps.Do(ctx, r, "a", func(_ context.Context, key string) (string, error) {
			g.calls = append(g.calls, "a")
			return key, nil
		})
		if err != nil {
			return err
		}
		got = append(got, a)
		return g.step(ctx, r, "b", fail)
	}
	g.has(g.attempt(fn), `step "b": broken`)
	g.state(driver.Released)
	if j := g.journal(); j != "a:DONE b:REGISTERED" {
		t.Errorf("the journal is %s", j)
	}
	fail = nil
	if err := g.attempt(fn); err != nil {
		t.Fatal(err)
	}
	g.called("a", "b", "b")
	g.state(driver.Completed)
	if len(got) != 2 || got[0] != got[1] || len(got[0]) != 64 {
		t.Errorf("the results are %q, wanted the same effect key twice", got)
	}
}

// TestS357StepThreeFails: the third step of a saga fails for good; 2 and 1 are compensated, in this order, visibly.
func TestS357StepThreeFails(t *testing.T) {
	g := newFixture(t)
	fn := func(ctx context.Context, r *steps.Run) error {
		return errors.Join(g.step(ctx, r, "reserve", nil), g.step(ctx, r, "charge", nil), g.step(ctx, r, "ship", steps.Abort(errBroken)))
	}
	err := g.attempt(fn)
	if !semel.DispositionOf(err).Compensated {
		t.Errorf("the error is %v, wanted one that is compensated", err)
	}
	// The failed step's outcome is unknown: its compensation runs too, first.
	g.called("reserve", "charge", "ship", "undo ship", "undo charge", "undo reserve")
	g.state(driver.FailedState)
	if j := g.journal(); j != "reserve:COMP_DONE charge:COMP_DONE ship:COMP_DONE :COMPENSATING" {
		t.Errorf("the journal is %s", j)
	}
	// A redrive runs under new effect keys and with a fresh journal.
	before := semel.EffectKey(g.last, "reserve")
	g.operate(driver.Operation{Kind: driver.Redrive})
	if err := g.attempt(func(ctx context.Context, r *steps.Run) error { return g.step(ctx, r, "reserve", nil) }); err != nil {
		t.Fatal(err)
	}
	g.called("reserve")
	if semel.EffectKey(g.last, "reserve") == before {
		t.Error("the redrive runs under the old effect key: downstreams may refuse it forever")
	}
}

// TestLastAttemptCompensates: any error in the last attempt is for good; before, the run only resumes.
func TestLastAttemptCompensates(t *testing.T) {
	g := newFixture(t)
	g.max = 3
	fn := func(ctx context.Context, r *steps.Run) error {
		if err := g.step(ctx, r, "a", nil); err != nil {
			return err
		}
		return g.step(ctx, r, "b", errBroken)
	}
	for range 2 {
		if err := g.attempt(fn); semel.DispositionOf(err).Permanent {
			t.Fatalf("an attempt that is not the last returned %v", err)
		}
	}
	g.called("a", "b", "b")
	_ = g.attempt(fn)
	g.called("b", "undo b", "undo a")
	g.state(driver.FailedState)
}

// TestFM63CrashDuringCompensation: a resumed run goes on backwards only, with the results of the steps that were done.
func TestFM63CrashDuringCompensation(t *testing.T) {
	g := newFixture(t)
	crash := true
	fn := func(ctx context.Context, r *steps.Run) error {
		if err := g.step(ctx, r, "a", nil); err != nil {
			return err
		}
		flight, err := steps.Do(ctx, r, "b", func(context.Context, string) (string, error) {
			g.calls = append(g.calls, "b")
			return "F1", nil
		}, steps.Undo(func(_ context.Context, u steps.Reversal) error {
			var was string
			if err := u.Result(&was); err != nil || !u.Done {
				return err
			}
			g.calls = append(g.calls, "undo "+was)
			if crash {
				crash = false
				g.operate(driver.Operation{Kind: driver.ForceRelease}) // the process is gone: this attempt has ended
			}
			return nil
		}))
		if err != nil {
			return err
		}
		return g.step(ctx, r, "for "+flight, steps.Abort(errBroken))
	}
	err := g.attempt(fn)
	if !errors.Is(err, semel.ErrFenced) {
		t.Fatalf("the attempt that lost its key returned %v, wanted ErrFenced", err)
	}
	g.called("a", "b", "for F1", "undo for F1", "undo F1")
	if err := g.attempt(fn); !semel.DispositionOf(err).Compensated {
		t.Fatalf("the resumed run returned %v", err)
	}
	g.called("undo F1", "undo a")
}

// TestFM63LoserStops: a runner whose write is lost calls no further step and no compensation (DBOS #818).
func TestFM63LoserStops(t *testing.T) {
	g := newFixture(t)
	err := g.attempt(func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Do(ctx, r, "a", func(context.Context, string) (int, error) {
			g.operate(driver.Operation{Kind: driver.ForceRelease})
			return 1, nil
		})
		if !errors.Is(err, semel.ErrFenced) {
			t.Errorf("the step whose end was refused returned %v", err)
		}
		_ = g.step(ctx, r, "b", nil) // a function that does not look at errors
		_ = steps.InTx(ctx, r, "c", func(context.Context, *memory.Effects) error { g.calls = append(g.calls, "c"); return nil })
		return steps.Abort(errBroken)
	})
	g.called()
	if !errors.Is(err, semel.ErrFenced) || semel.DispositionOf(err).Permanent {
		t.Errorf("the loser returned %v, wanted ErrFenced", err)
	}
}

// TestS136CompensationFailed: a failing compensation is logged, counted durably, repeated, and parked in the end: the run
// is never dropped, and never failed half undone.
func TestS136CompensationFailed(t *testing.T) {
	g := newFixture(t)
	var log bytes.Buffer
	g.opts = append(g.opts, steps.Retry(2, time.Second, 5), steps.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	broken := true
	fn := func(ctx context.Context, r *steps.Run) error {
		if err := g.step(ctx, r, "a", nil); err != nil {
			return err
		}
		_, err := steps.Do(ctx, r, "b", func(context.Context, string) (int, error) { return 0, steps.Abort(errBroken) },
			steps.Undo(func(_ context.Context, u steps.Reversal) error {
				g.calls = append(g.calls, "undo b")
				if broken {
					return errors.New("no connection")
				}
				return nil
			}))
		return err
	}
	for i, want := range []driver.State{driver.Released, driver.Released, driver.Uncertain} {
		err := g.attempt(fn)
		g.has(err, "no connection")
		if i < 2 != semel.DispositionOf(err).Deferred {
			t.Errorf("attempt %d returned %v", i, err)
		}
		g.state(want)
		if r := g.record(); want == driver.Released && r.Failures != 0 {
			t.Errorf("a failed compensation spent an attempt: %d", r.Failures)
		}
	}
	if n := strings.Count(log.String(), "Compensation failed"); n != 5 {
		t.Errorf("%d failures were logged, wanted 5:\n%s", n, log.String())
	}
	rows, _ := g.store.Steps(context.Background(), g.last)
	if s := rows[1]; s.Failures != 5 || s.Reason != "no connection" || s.State != driver.StepUndoing {
		t.Errorf("the journal says %+v", s)
	}
	g.calls = nil
	broken = false
	g.operate(driver.Operation{Kind: driver.Resolve, As: driver.Released})
	_ = g.attempt(fn)
	g.called("undo b", "undo a")
	g.state(driver.FailedState)
}

// TestCompensationIsRegisteredFirst: a crash inside a step finds its compensation in the journal.
func TestCompensationIsRegisteredFirst(t *testing.T) {
	g := newFixture(t)
	g.crash(func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Do(ctx, r, "a", func(context.Context, string) (int, error) {
			if j := g.journal(); j != "a:REGISTERED" {
				t.Errorf("while the step runs the journal is %q", j)
			}
			panic("killed")
		}, steps.Undo(func(context.Context, steps.Reversal) error { return nil }))
		return err
	})
	if j := g.journal(); j != "a:REGISTERED" {
		t.Errorf("after the crash the journal is %q", j)
	}
}

// TestUnknownStepParks: code that does not come by a step of the journal must not begin others: the new step may be the
// old one under another name.
func TestUnknownStepParks(t *testing.T) {
	g := newFixture(t)
	g.opts = append(g.opts, steps.Version("v3"))
	_ = g.attempt(func(ctx context.Context, r *steps.Run) error {
		_ = g.step(ctx, r, "charge", nil)
		return errBroken
	})
	err := g.attempt(func(ctx context.Context, r *steps.Run) error { return g.step(ctx, r, "charge-card", nil) })
	g.called("charge")
	g.has(err, `step "charge"`, "v3")
	g.state(driver.Uncertain)
	// A run that ends without it is no better.
	g.operate(driver.Operation{Kind: driver.Resolve, As: driver.Released})
	err = g.attempt(func(context.Context, *steps.Run) error { return nil })
	g.has(err, `step "charge"`)
	g.state(driver.Uncertain)
	// Code that knows it goes on.
	g.operate(driver.Operation{Kind: driver.Resolve, As: driver.Released})
	if err := g.attempt(func(ctx context.Context, r *steps.Run) error { return g.step(ctx, r, "charge", nil) }); err != nil {
		t.Error(err)
	}
	g.called()
}

// TestUnknownCompensationParks: a registered step whose compensation the code no longer names.
func TestUnknownCompensationParks(t *testing.T) {
	g := newFixture(t)
	g.opts = append(g.opts, steps.Version("v4"))
	_ = g.attempt(func(ctx context.Context, r *steps.Run) error {
		_ = g.step(ctx, r, "a", nil)
		_ = g.step(ctx, r, "b", nil)
		return errBroken
	})
	g.calls = nil
	err := g.attempt(func(context.Context, *steps.Run) error { return steps.Abort(errBroken) })
	g.has(err, `compensation of step "b"`, "v4")
	g.called()
	g.state(driver.Uncertain)
	g.operate(driver.Operation{Kind: driver.Resolve, As: driver.Released})
	_ = g.attempt(func(ctx context.Context, r *steps.Run) error {
		return errors.Join(g.step(ctx, r, "a", nil), g.step(ctx, r, "b", nil), g.step(ctx, r, "c", nil))
	})
	g.called("undo b", "undo a")
	g.state(driver.FailedState)
}

// TestNamesIdentifySteps: twice the same name, and names that no journal takes.
func TestNamesIdentifySteps(t *testing.T) {
	g := newFixture(t)
	err := g.attempt(func(ctx context.Context, r *steps.Run) error {
		return errors.Join(g.step(ctx, r, "a", nil), g.step(ctx, r, "a", nil))
	})
	g.has(err, `step "a" is there twice`)
	g.called("a", "undo a")
	for name, want := range map[string]string{
		"": "no name", strings.Repeat("x", 513): "513 bytes", "a\x00b": "control", "\xff": "UTF-8",
	} {
		g := newFixture(t)
		g.has(g.attempt(func(ctx context.Context, r *steps.Run) error { return g.step(ctx, r, name, nil) }), want)
		g.called()
	}
}

// TestFailedStepIsNotPassedOver: a function that goes on behind a failed step does not complete (I20).
func TestFailedStepIsNotPassedOver(t *testing.T) {
	g := newFixture(t)
	err := g.attempt(func(ctx context.Context, r *steps.Run) error {
		_ = g.step(ctx, r, "a", errBroken)
		return nil
	})
	g.has(err, `step "a": broken`)
	g.state(driver.Released)
	err = g.attempt(func(ctx context.Context, r *steps.Run) error {
		_ = g.step(ctx, r, "a", errBroken)
		return semel.Drop("not wanted")
	})
	g.has(err, "dropped", `"a"`)
	g.state(driver.Uncertain)
}

// TestInTx commits effects with the journal, exactly once; refused effects fail the step and nothing else.
func TestInTx(t *testing.T) {
	g := newFixture(t)
	tables := g.store.(*memory.Store).Tables()
	fn := func(refuse bool) steps.Func {
		return func(ctx context.Context, r *steps.Run) error {
			err := steps.InTx(ctx, r, "book", func(_ context.Context, e *memory.Effects) error {
				g.calls = append(g.calls, "book")
				e.Append("ledger", "booked")
				if refuse {
					e.Refuse(memory.ErrExists)
				}
				return nil
			}, steps.UndoInTx(func(_ context.Context, e *memory.Effects, u steps.Reversal) error {
				e.Append("ledger", "cancelled")
				return nil
			}))
			if err != nil {
				return err
			}
			return g.step(ctx, r, "next", errBroken)
		}
	}
	if err := g.attempt(fn(true)); !errors.Is(err, memory.ErrExists) {
		t.Errorf("refused effects returned %v", err)
	}
	if n := tables.Len("ledger"); n != 0 {
		t.Errorf("refused effects left %d rows", n)
	}
	for range 3 {
		_ = g.attempt(fn(false))
	}
	g.called("book", "book", "next", "next", "next")
	if n := tables.Len("ledger"); n != 1 {
		t.Errorf("the step has %d effects, wanted 1", n)
	}
	_ = g.attempt(fn(false)) // the last attempt
	if rows := tables.Rows("ledger"); len(rows) != 2 || rows[1].Value != "cancelled" {
		t.Errorf("the ledger is %v", rows)
	}
	g.state(driver.FailedState)
	if err := newFixture(t).attempt(func(ctx context.Context, r *steps.Run) error {
		return steps.InTx(ctx, r, "sql", func(context.Context, *semel.Statements) error { return nil })
	}); !errors.Is(err, semel.ErrNoTx) || !semel.DispositionOf(err).Permanent {
		t.Errorf("a store that does not offer the effects returned %v", err)
	}
}

// TestHandlerAsksForAJournal: New refuses a store that keeps none, or that does not offer the effects.
func TestHandlerAsksForAJournal(t *testing.T) {
	db := memory.Open()
	nothing := func(context.Context, *steps.Run) error { return nil }
	cfg := semel.Config{Queue: db.Queue("q"), Store: db.Store(), Handler: steps.Handler(nothing)}
	if _, err := semel.New(cfg); err != nil {
		t.Error(err)
	}
	cfg.Store = struct{ driver.Store }{db.Store()}
	if _, err := semel.New(cfg); !errors.Is(err, steps.ErrNoJournal) || !strings.Contains(err.Error(), "driver.StepStore") {
		t.Errorf("a store without journals returned %v", err)
	}
	cfg.Store, cfg.Handler = db.Store(), steps.Handler(nothing, steps.Uses[*semel.Statements]())
	if _, err := semel.New(cfg); !errors.Is(err, semel.ErrNoTx) {
		t.Errorf("a store without statements returned %v", err)
	}
	// Where no record stands behind the run that others can see.
	a := semel.NewAttempt(semel.Message{}, driver.Grant{}, nil)
	if err := steps.With(context.Background(), a, nothing); !errors.Is(err, steps.ErrNoJournal) {
		t.Errorf("a run without a store returned %v", err)
	}
}
