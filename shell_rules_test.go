package semel_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// refusing is a store whose Commit refuses every emitted message, as one does that cannot hold it.
type refusing struct{ *memory.Store }

func (s refusing) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	for i := range w {
		if len(w[i].Emit) > 0 {
			return nil, &driver.ItemError{Index: i, Err: errors.New("message too large")}
		}
	}
	return s.Store.Commit(ctx, w...)
}

// The handler ran, outside of any transaction: a refused message says nothing of its effect (I2').
func TestOnceDoesNotRunAgainWhenAMessageIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			runs.Add(1)
			a.Emit(semel.Message{Queue: "next"})
			return nil
		}), func(c *semel.Config) { c.Takeover = semel.Once; c.Store = refusing{c.Store.(*memory.Store)} })
		r.send(msg("a"))
		r.start()
		s := r.after(30 * time.Minute)
		if runs.Load() != 1 || r.record("a").State != driver.Uncertain {
			t.Errorf("policy once: %d runs, %+v, record %+v", runs.Load(), s, r.record("a"))
		}
	})
}

// A delivery that came before is claimed durably and waits for its own transaction. Drain gives it back unstarted: its
// claim must go, too, else the next worker takes a run over that never began, and policy once parks it for a person.
func TestDrainReleasesADurableClaimThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.InTx(func(context.Context, *memory.Tx, *semel.Attempt) error {
			time.Sleep(2 * time.Second)
			return nil
		}), func(c *semel.Config) { c.Takeover = semel.Once })
		r.send(msg("a"), msg("b"))
		ds, err := r.queue.Receive(t.Context(), 2)
		if err != nil || len(ds) != 2 {
			t.Fatal(ds, err)
		}
		for _, d := range ds {
			if _, err := r.queue.Settle(t.Context(), driver.Settlement{Receipt: d.Receipt, Action: driver.Defer}); err != nil {
				t.Fatal(err)
			}
		}
		r.start()
		s := r.after(time.Second) // one of them runs, the other one waits
		for _, k := range []string{"a", "b"} {
			if rec := r.record(k); rec.State == driver.InProgress {
				t.Errorf("%s after the drain: %v, attempt %d; %+v", k, rec.State, rec.Attempt, s)
			}
		}
		r.start()
		if s := r.after(time.Hour); s.Rejected > 0 || len(r.deadLetters()) > 0 {
			t.Errorf("the next worker: %+v, dead letters %d", s, len(r.deadLetters()))
		}
	})
}

// Without a key there is no record to count attempts in; the broker's count bounds the retries.
// TestFM79_KeylessOfOneID: a sender gives two messages one id, and neither has a key. Both are dead letters, and where they
// run unprotected they have two effect keys.
func TestFM79_KeylessOfOneID(t *testing.T) {
	two := []semel.Message{{ID: "m", Body: []byte(`{"n":1}`)}, {ID: "m", Body: []byte(`{"n":2}`)}, {ID: "m", Body: []byte(`{"n":2}`)}}
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			func(c *semel.Config) { c.Key = key.FromJSON("/id") })
		r.send(two...)
		r.start()
		if s := r.after(time.Minute); s.Rejected != 3 || len(r.deadLetters()) != 2 {
			t.Fatalf("%d dead letters of two messages and one's repetition: %+v", len(r.deadLetters()), s)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		keys := map[string]int{}
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			keys[a.EffectKey("")]++
			return semel.Permanent(errors.New("no"))
		}), func(c *semel.Config) { c.Key, c.AllowUnkeyed, c.Concurrency = key.FromJSON("/id"), true, 1 })
		r.send(two...)
		r.start()
		if s := r.after(time.Minute); s.Unprotected != 3 || len(keys) != 2 || len(r.deadLetters()) != 2 {
			t.Fatalf("effect keys %v, %d dead letters: %+v", keys, len(r.deadLetters()), s)
		}
	})
}

func TestUnkeyedPoisonEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			runs.Add(1)
			return errors.New("down")
		}), func(c *semel.Config) { c.Key, c.AllowUnkeyed = key.FromHeader("order"), true })
		r.send(msg("a"))
		r.start()
		r.after(24 * time.Hour)
		if runs.Load() != semel.DefaultMaxAttempts || len(r.deadLetters()) != 1 {
			t.Errorf("%d runs, %d dead letters", runs.Load(), len(r.deadLetters()))
		}
	})
}
