package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/steps"
)

// claimNow claims a key for a minute.
func claimNow(t *testing.T, s driver.Store, raw string, nonce byte) driver.Grant {
	t.Helper()
	c := driver.Claim{Key: driver.Key{Consumer: "c", Raw: raw}, Nonce: driver.Nonce{nonce}, Lease: time.Minute}
	gs, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return gs[0]
}

func endNow(t *testing.T, s driver.Store, f driver.Finish, want driver.Outcome) {
	t.Helper()
	out, err := s.Finish(t.Context(), f)
	if err != nil || out[0] != want {
		t.Fatalf("finish returned %v, %v; wanted %v", out, err, want)
	}
}

func finishStep(name string, result []byte) driver.StepWrite {
	return driver.StepWrite{Kind: driver.FinishStep, Name: name, Result: result}
}

// TestFM58_JournalFull fills an item. A step that does not fit is refused before it runs, with an error that names the fix.
// Nothing that was written before is lost, and compensations still have room, as has the end of the run.
func TestFM58_JournalFull(t *testing.T) {
	r := newFixture(t, Options{})
	h := claimNow(t, r, "full", 1).Hold
	large := bytes.Repeat([]byte("x"), 60<<10)
	n := 0
	var item *driver.ItemError
	for ; ; n++ {
		name := fmt.Sprint("step-", n)
		o, err := r.WriteSteps(t.Context(), h, driver.StepWrite{Kind: driver.RegisterStep, Name: name, Undo: true})
		if err != nil {
			if !errors.As(err, &item) || !errors.Is(err, errJournalFull) || !strings.Contains(err.Error(), "references") {
				t.Errorf("a step without room: %v; wanted an ItemError that names the fix", err)
			}
			break
		}
		if o != driver.Applied || n > 10 {
			t.Fatalf("step %d returned %v", n, o)
		}
		if o, err := r.WriteSteps(t.Context(), h, finishStep(name, large)); err != nil || o != driver.Applied {
			t.Fatalf("the end of step %d, which was allowed to begin, returned %v, %v", n, o, err)
		}
	}
	if n < 4 {
		t.Errorf("%d steps of 60 KB fit, wanted 4 or more", n)
	}
	_, err := r.WriteSteps(t.Context(), h, finishStep("unregistered", bytes.Repeat(large, 2)))
	if !errors.Is(err, driver.ErrUnsupported) || errors.As(err, &item) && item.Index != 0 {
		t.Errorf("a result without room: %v, wanted ErrUnsupported", err)
	}
	rows, err := r.Steps(t.Context(), h)
	if err != nil || len(rows) != n {
		t.Fatalf("the journal has %d rows, %v; wanted %d", len(rows), err, n)
	}
	back := []driver.StepWrite{{Kind: driver.CompensateRun, Reason: strings.Repeat("why", 1000)}}
	for i := n - 1; i >= 0; i-- {
		name := fmt.Sprint("step-", i)
		back = append(back, driver.StepWrite{Kind: driver.UndoStep, Name: name}, driver.StepWrite{Kind: driver.FinishUndo, Name: name})
	}
	for _, w := range back {
		if o, err := r.WriteSteps(t.Context(), h, w); err != nil || o != driver.Applied {
			t.Fatalf("compensation: %v of %q returned %v, %v", w.Kind, w.Name, o, err)
		}
	}
	endNow(t, r, driver.Finish{Hold: h, Final: driver.Fail, Compensated: true, Keep: time.Hour, Reason: "no"}, driver.Applied)
}

// TestFM63_Saga runs a saga of package steps from end to end: the process dies in the middle, the next attempt, in another
// process, does not repeat what is in the journal, its step fails, and everything is undone in the reverse order.
func TestFM63_Saga(t *testing.T) {
	r := newFixture(t, Options{})
	stores := []*Store{r.Store, r.again(t, nil)}
	var calls []string
	trip := func(dies bool) steps.Func {
		return func(ctx context.Context, run *steps.Run) error {
			for _, what := range []string{"flight", "hotel", "car"} {
				_, err := steps.Do(ctx, run, what, func(context.Context, string) (string, error) {
					if what == "hotel" && dies {
						panic("the process dies")
					}
					if what == "car" {
						return "", steps.Abort(errors.New("no cars left"))
					}
					calls = append(calls, "book "+what)
					return what + "-4711", nil
				}, steps.Undo(func(_ context.Context, u steps.Reversal) error {
					booking := ""
					if u.Done {
						if err := u.Result(&booking); err != nil {
							return err
						}
					}
					calls = append(calls, "cancel "+u.Step+" "+booking)
					return nil
				}))
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	grant := claimNow(t, stores[0], "trip", 1)
	func() {
		defer func() { _ = recover() }() // what a dead process leaves: a lease, and nothing more
		_ = steps.With(t.Context(), semel.NewAttempt(semel.Message{ID: "m"}, grant, stores[0]), trip(true))
	}()
	if g := claimNow(t, stores[1], "trip", 2); g.Verdict != driver.Busy {
		t.Fatalf("while the lease lasts: %v", g.Verdict)
	}
	r.clock.Advance(time.Minute + r.o.skew() + time.Second)
	grant = claimNow(t, stores[1], "trip", 3)
	if grant.Verdict != driver.Acquired || !grant.Unknown {
		t.Fatalf("after it: %+v", grant)
	}
	err := steps.With(t.Context(), semel.NewAttempt(semel.Message{ID: "m"}, grant, stores[1]), trip(false))
	if m := semel.DispositionOf(err); !m.Permanent || !m.Compensated {
		t.Errorf("the saga ended with %v, wanted a compensated failure", err)
	}
	want := []string{"book flight", "book hotel", "cancel car ", "cancel hotel hotel-4711", "cancel flight flight-4711"}
	if !slices.Equal(calls, want) {
		t.Errorf("called %q, wanted %q", calls, want)
	}
	rows, err := stores[0].Steps(t.Context(), grant.Hold)
	if err != nil || len(rows) != 4 {
		t.Fatalf("the journal has %d rows, %v", len(rows), err)
	}
	for _, s := range rows { // I20
		if s.Name != "" && s.State != driver.StepUndone {
			t.Errorf("step %q ends as %v", s.Name, s.State)
		}
	}
}
