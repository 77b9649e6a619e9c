package semel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// TestFM9_LeaseUntilFollowsTheHeartbeat: a handler that works for minutes sees its lease move on with every extension, and
// never one that ends later than the store's.
func TestFM9_LeaseUntilFollowsTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *fixture
		r = newFixture(t, semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			first := a.LeaseUntil()
			if !first.Equal(a.Deadline) {
				t.Errorf("the run began with a lease until %v, and Deadline says %v", first, a.Deadline)
			}
			for range 12 {
				time.Sleep(10 * time.Second)
				until := a.LeaseUntil()
				if left := time.Until(until); left <= 0 || left > 27*time.Second {
					t.Errorf("%v left of a lease of 27 s that is extended", left)
				}
				if rec := r.record("m1"); until.After(rec.LeaseUntil) {
					t.Errorf("believed until %v, the store says %v", until, rec.LeaseUntil)
				}
			}
			if moved := a.LeaseUntil().Sub(first); moved < 90*time.Second {
				t.Errorf("the lease moved on by %v in two minutes", moved)
			}
			return nil
		}))
		r.send(semel.Message{ID: "m1"})
		r.start()
		if n := r.after(3 * time.Minute); n.Effects != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// TestLeaseUntilStandsStillWhenTheStoreIsDeaf: the lease ends exactly when the run is cancelled.
func TestLeaseUntilStandsStillWhenTheStoreIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			first := a.LeaseUntil()
			<-ctx.Done()
			if now := time.Now(); !a.LeaseUntil().Equal(first) || now.Before(first) || now.Sub(first) > time.Second {
				t.Errorf("cancelled at %v, the lease ended %v, at first %v", now, a.LeaseUntil(), first)
			}
			return context.Cause(ctx)
		}))
		r.cfg.Store = &sluggish{Store: r.store, deaf: true}
		r.send(semel.Message{ID: "m1"})
		r.start()
		if n := r.after(40 * time.Second); n.Fenced != 1 {
			t.Errorf("%+v", n)
		}
	})
}

func attemptOf(ctx context.Context) *semel.Attempt {
	a, _ := semel.AttemptFrom(ctx)
	return a
}

func TestAttemptFromFindsTheRun(t *testing.T) {
	type mine struct{}
	if a, ok := semel.AttemptFrom(t.Context()); ok || a != nil {
		t.Error("an attempt without a run")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			derived, cancel := context.WithTimeout(context.WithValue(ctx, mine{}, 1), time.Minute)
			defer cancel()
			if attemptOf(ctx) != a || attemptOf(derived) != a {
				t.Error("the run's context does not lead to its attempt")
			}
			_, _, err := semel.Do(derived, memory.NewStore(), semel.Key{Consumer: "inner", Raw: "k"},
				func(ctx context.Context, inner *semel.Attempt) (int, error) {
					if attemptOf(ctx) != inner {
						t.Error("inside of Do it is Do's attempt")
					}
					return 0, nil
				})
			return err
		}))
		r.send(semel.Message{ID: "m1"})
		r.start()
		if n := r.after(time.Second); n.Effects != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// TestLeaseUntilOfDo: the heartbeat of a call without a queue is followed, too, and cancelled work sees its end.
func TestLeaseUntilOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, err := semel.Do(t.Context(), memory.NewStore(), semel.Key{Consumer: "http", Raw: "k"},
			func(_ context.Context, a *semel.Attempt) (int, error) {
				first := a.LeaseUntil()
				time.Sleep(time.Minute)
				if left := time.Until(a.LeaseUntil()); left <= 0 || left > 9*time.Second || !a.LeaseUntil().After(first) {
					t.Errorf("%v left after a minute of a lease of ten seconds", left)
				}
				return 1, nil
			}, semel.WithLease(10*time.Second))
		if err != nil {
			t.Error(err)
		}
		s := &sluggish{Store: memory.NewStore(), deaf: true}
		_, _, err = semel.Do(t.Context(), s, semel.Key{Consumer: "http", Raw: "k"},
			func(ctx context.Context, a *semel.Attempt) (int, error) {
				<-ctx.Done()
				if left := time.Until(a.LeaseUntil()); left > 0 {
					t.Errorf("cancelled %v before the end of the lease", left)
				}
				return 0, context.Cause(ctx)
			}, semel.WithLease(10*time.Second))
		if !errors.Is(err, semel.ErrFenced) {
			t.Error(err)
		}
	})
}

// TestNoLeaseUntilWithoutAKey: nothing protects the run, and LeaseUntil returns the zero time.
func TestNoLeaseUntilWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if !a.LeaseUntil().IsZero() {
				t.Errorf("a lease until %v without a record", a.LeaseUntil())
			}
			return nil
		}), func(c *semel.Config) {
			c.AllowUnkeyed = true
			c.Key = func(*semel.Message) (string, error) { return "", key.ErrMissing }
		})
		r.send(semel.Message{ID: "m1"})
		r.start()
		if n := r.after(time.Second); n.Unprotected != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// TestNoLeaseUntilInABatch: the open transaction holds the keys, and the context belongs to many.
func TestNoLeaseUntilInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.InTxBatch(func(ctx context.Context, _ *memory.Tx, batch []*semel.Attempt) error {
			if attemptOf(ctx) != nil || !batch[0].LeaseUntil().IsZero() {
				t.Errorf("attempt %v, lease until %v", attemptOf(ctx), batch[0].LeaseUntil())
			}
			return nil
		}))
		r.send(semel.Message{ID: "m1"})
		r.start()
		if n := r.after(time.Second); n.Effects != 1 {
			t.Errorf("%+v", n)
		}
	})
}
