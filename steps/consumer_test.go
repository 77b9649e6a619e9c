package steps_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/steps"
)

// agency is a downstream that books by effect key, and leaves tombstones.
type agency struct {
	mu       sync.Mutex
	booked   map[string]string // by effect key
	tombs    map[string]bool
	bookings int
}

func newAgency() *agency { return &agency{booked: map[string]string{}, tombs: map[string]bool{}} }

func (a *agency) book(what, key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tombs[key] {
		return errors.New("cancelled before")
	}
	if _, there := a.booked[key]; !there {
		a.booked[key] = what
		a.bookings++
	}
	return nil
}

func (a *agency) cancel(key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tombs[key] = true
	delete(a.booked, key)
	return nil
}

func (a *agency) standing() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, what := range a.booked {
		all = append(all, what)
	}
	slices.Sort(all)
	return all
}

// trip books three things; fail says what becomes of the last, by trip.
func trip(a *agency, fail func(key string) error) steps.Func {
	return func(ctx context.Context, r *steps.Run) error {
		for _, what := range []string{"flight", "hotel", "car"} {
			_, err := steps.Do(ctx, r, what, func(_ context.Context, key string) (string, error) {
				if err := a.book(r.Attempt().Key.Raw+" "+what, key); err != nil {
					return "", err
				}
				if what == "car" {
					return "", fail(r.Attempt().Key.Raw)
				}
				return "booked", nil
			}, steps.Undo(func(_ context.Context, u steps.Reversal) error { return a.cancel(u.Key) }))
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// consume runs a consumer until the queue is empty.
func consume(t *testing.T, cfg semel.Config) {
	t.Helper()
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	for waited := time.Duration(0); ; waited += time.Second {
		s, err := as[driver.QueueInspector](cfg.Queue).Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s.Visible+s.InFlight+s.Delayed == 0 {
			break
		}
		if waited > 24*time.Hour { // virtual
			t.Fatalf("the queue is never empty: %+v", s)
		}
		time.Sleep(time.Second)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSagasInAConsumer lets two of three trips fail for good, one at once and one after all attempts, on a store whose calls
// fail, time out and arrive late: what failed is undone, what did not stands, once.
func TestSagasInAConsumer(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			db := memory.Open()
			queue, a := db.Queue("trips"), newAgency()
			faults := semeltest.NewFaults(semeltest.Plan{Seed: seed, Before: 0.05, After: 0.05, Late: 0.05, LateBy: time.Second})
			defer faults.Wait()
			for i := range 3 {
				if err := queue.Send(t.Context(), semel.Message{ID: fmt.Sprint("trip-", i)}); err != nil {
					t.Fatal(err)
				}
			}
			consume(t, semel.Config{
				Queue: queue, Store: semeltest.FaultyStore(db.Store(), faults), MaxAttempts: 4,
				Handler: steps.Handler(trip(a, func(key string) error {
					switch key {
					case "trip-0":
						return nil
					case "trip-1":
						return steps.Abort(errors.New("no car"))
					}
					return errors.New("no response")
				})),
			})
			if got := strings.Join(a.standing(), ", "); got != "trip-0 car, trip-0 flight, trip-0 hotel" || a.bookings != 9 {
				t.Errorf("seed %d: standing: %s, after %d bookings, wanted 9", seed, got, a.bookings)
			}
			ls, err := queue.DeadLetters(t.Context(), 0)
			if err != nil || len(ls) != 2 {
				t.Fatalf("seed %d: %d dead letters (%v), wanted 2", seed, len(ls), err)
			}
			for _, l := range ls {
				if l.Kind != driver.DeadLetterFailed || !strings.Contains(l.Reason, `step "car"`) || !strings.Contains(l.Reason, "compensated") {
					t.Errorf("seed %d: a dead letter says %v: %s", seed, l.Kind, l.Reason)
				}
			}
		})
	}
}

// TestDrainedSagaResumes: a worker that stops in the middle gives the run back; the next one goes on where it was.
func TestDrainedSagaResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		queue := db.Queue("trips")
		if err := queue.Send(t.Context(), semel.Message{ID: "trip"}); err != nil {
			t.Fatal(err)
		}
		var calls []string
		hang := make(chan struct{})
		cfg := semel.Config{Queue: queue, Store: db.Store(), Grace: time.Second, MaxAttempts: 1}
		cfg.Handler = steps.Handler(func(ctx context.Context, r *steps.Run) error {
			for _, name := range []string{"a", "b"} {
				_, err := steps.Do(ctx, r, name, func(ctx context.Context, _ string) (int, error) {
					calls = append(calls, name)
					if name == "b" && len(calls) == 2 {
						close(hang)
						<-ctx.Done()
						return 0, ctx.Err()
					}
					return 1, nil
				}, steps.Undo(func(context.Context, steps.Reversal) error { calls = append(calls, "undo "+name); return nil }))
				if err != nil {
					return err
				}
			}
			return nil
		})
		c, err := semel.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		<-hang
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		consume(t, cfg)
		if got := strings.Join(calls, " "); got != "a b b" {
			t.Errorf("called %s, wanted a b b: a drain is no failure, though it came in the last attempt", got)
		}
	})
}

// TestTimedOutSagaGoesBack: the last attempt ends by its timeout. Its context has ended, so the next one undoes the run.
func TestTimedOutSagaGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		queue := db.Queue("trips")
		if err := queue.Send(t.Context(), semel.Message{ID: "trip"}); err != nil {
			t.Fatal(err)
		}
		var calls []string
		consume(t, semel.Config{
			Queue: queue, Store: db.Store(), Timeout: time.Second, MaxAttempts: 1,
			Handler: steps.Handler(func(ctx context.Context, r *steps.Run) error {
				_, err := steps.Do(ctx, r, "a", func(ctx context.Context, _ string) (int, error) {
					calls = append(calls, "a")
					<-ctx.Done()
					return 0, ctx.Err()
				}, steps.Undo(func(context.Context, steps.Reversal) error { calls = append(calls, "undo a"); return nil }))
				return err
			}),
		})
		if got := strings.Join(calls, ", "); got != "a, undo a" {
			t.Errorf("called %s", got)
		}
		r, _, _ := db.Store().Record(t.Context(), driver.Key{Consumer: "trips", Raw: "trip"})
		if r.State != driver.FailedState || r.Epoch != 1 {
			t.Errorf("the record is %v, epoch %d", r.State, r.Epoch)
		}
	})
}

// TestRuleMakesTheLastAttempt: a rule of Config.Retry that gives up is seen: the run is undone, not left standing.
func TestRuleMakesTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		queue, a := db.Queue("trips"), newAgency()
		if err := queue.Send(t.Context(), semel.Message{ID: "trip"}); err != nil {
			t.Fatal(err)
		}
		consume(t, semel.Config{
			Queue: queue, Store: db.Store(), Retry: []semel.RetryRule{{Match: semel.ErrorIs(errBroken), MaxAttempts: 2}},
			Handler: steps.Handler(trip(a, func(string) error { return errBroken })),
		})
		if s := a.standing(); len(s) > 0 {
			t.Errorf("still standing: %q", s)
		}
	})
}

// TestWithInsideDo: steps in a function that has no queue.
func TestWithInsideDo(t *testing.T) {
	g := newFixture(t)
	fail := errBroken
	do := func() (string, semel.Decision, error) {
		return semel.Do(t.Context(), g.store, g.key, func(ctx context.Context, a *semel.Attempt) (string, error) {
			return "booked", steps.With(ctx, a, func(ctx context.Context, r *steps.Run) error {
				return errors.Join(g.step(ctx, r, "a", nil), g.step(ctx, r, "b", fail))
			})
		})
	}
	if _, _, err := do(); !errors.Is(err, errBroken) {
		t.Errorf("the first call returned %v", err)
	}
	fail = nil
	if v, d, err := do(); v != "booked" || d != semel.Executed || err != nil {
		t.Errorf("the second call returned %q, %s, %v", v, d, err)
	}
	g.called("a", "b", "b")
	fail = steps.Abort(errBroken)
	g.key.Raw = "trip-2"
	if _, d, err := do(); d != semel.DeadLettered || !semel.DispositionOf(err).Compensated {
		t.Errorf("a call that was undone returned %s, %v", d, err)
	}
	g.called("a", "b", "undo b", "undo a")
}

// TestRefusedInAnOpenTransaction: there is no record that others could see, so no journal can be guarded.
func TestRefusedInAnOpenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		queue := db.Queue("trips")
		if err := queue.Send(t.Context(), semel.Message{ID: "trip"}); err != nil {
			t.Fatal(err)
		}
		consume(t, semel.Config{
			Queue: queue, Store: db.Store(),
			Handler: semel.InTx(func(ctx context.Context, _ *memory.Tx, a *semel.Attempt) error {
				return steps.With(ctx, a, func(context.Context, *steps.Run) error { return nil })
			}),
		})
		if ls, err := queue.DeadLetters(t.Context(), 0); err != nil || len(ls) != 1 || !strings.Contains(ls[0].Reason, "open transaction") {
			t.Errorf("dead letters %+v, %v", ls, err)
		}
	})
}

// TestTakeoverPolicies: what the engine's policies make of runs with steps.
func TestTakeoverPolicies(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   semel.Config
		fail  error
		state driver.State
		calls string
	}{
		{"once, failed", semel.Config{Takeover: semel.Once}, errBroken, driver.Uncertain, "a"},
		{"once, undone", semel.Config{Takeover: semel.Once}, steps.Abort(errBroken), driver.FailedState, "a, undo a"},
		{"probe, applied", semel.Config{Takeover: semel.Probe, Probe: found(semel.ProbeApplied)}, errBroken, driver.Completed, "a"},
		{"probe, not applied", semel.Config{Takeover: semel.Probe, Probe: found(semel.ProbeNotApplied)}, errBroken,
			driver.FailedState, "a, a, undo a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory.Open()
				queue := db.Queue("trips")
				if err := queue.Send(t.Context(), semel.Message{ID: "trip"}); err != nil {
					t.Fatal(err)
				}
				var calls []string
				c.cfg.Queue, c.cfg.Store, c.cfg.MaxAttempts = queue, db.Store(), 2
				c.cfg.Handler = steps.Handler(func(ctx context.Context, r *steps.Run) error {
					_, err := steps.Do(ctx, r, "a", func(context.Context, string) (int, error) {
						calls = append(calls, "a")
						return 0, c.fail
					}, steps.Undo(func(context.Context, steps.Reversal) error { calls = append(calls, "undo a"); return nil }))
					return err
				})
				consume(t, c.cfg)
				r, _, _ := db.Store().Record(t.Context(), driver.Key{Consumer: "trips", Raw: "trip"})
				if got := strings.Join(calls, ", "); r.State != c.state || got != c.calls {
					t.Errorf("the record is %v, called %s; wanted %v, %s", r.State, got, c.state, c.calls)
				}
			})
		})
	}
}

func found(r semel.ProbeResult) semel.ProbeFunc {
	return func(context.Context, *semel.Attempt) (semel.ProbeResult, error) { return r, nil }
}
