package semel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// TestGapIsPassedOverInTheEnd: the predecessor never comes, or too late; then it is a dead letter, and never stale.
func TestGapIsPassedOverInTheEnd(t *testing.T) {
	for mode, h := range versionHandlers() {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := key.BySequence("/v")
				v.Park = 30 * time.Second
				var deferred []time.Duration
				r := newFixture(t, h, versioned(v), func(c *semel.Config) {
					c.Events = semel.Observe(func(e semel.Event) {
						if e.Decision == semel.BusyDeferred {
							deferred = append(deferred, e.After)
						}
					})
				})
				r.start()
				r.send(state(1))
				time.Sleep(time.Second)
				r.send(state(3))
				time.Sleep(29 * time.Second)
				if got := strings.Join(ledger(r), " "); got != "1" {
					t.Fatalf("applied %q before the time was up", got)
				}
				time.Sleep(5 * time.Second)
				if got := strings.Join(ledger(r), " "); got != "1 3" {
					t.Fatalf("applied %q after the time was up", got)
				}
				if n := len(deferred); n < 4 || n > 40 || deferred[n-3] < 2*deferred[0] {
					t.Errorf("%d waits that do not grow: %v", n, deferred)
				}
				r.send(state(2), state(1), state(2))
				s := r.after(time.Minute)
				ls := r.deadLetters()
				if len(ls) != 2 || ls[0].Kind != driver.DeadLetterLate || ls[0].Version != driver.IntVersion(2) ||
					!strings.Contains(ls[0].Reason, "passed over") || s.Stale != 1 || s.Rejected != 2 {
					t.Fatalf("%+v, dead letters %+v", s, ls)
				}
			})
		})
	}
}

// blind hides what a queue knows of a message's past.
type blind struct {
	*memory.Queue
	count bool
}

func (q blind) Receive(ctx context.Context, n int) ([]driver.Delivery, error) {
	ds, err := q.Queue.Receive(ctx, n)
	for i := range ds {
		ds[i].SentAt = time.Time{}
		if !q.count {
			ds[i].Count = 0
		}
	}
	return ds, err
}

// TestGapEndsIfTheAgeIsUnknown: without a send time the delivery count limits the wait, and without both there is no wait.
func TestGapEndsIfTheAgeIsUnknown(t *testing.T) {
	for _, count := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			v := key.BySequence("/v")
			v.Park = 30 * time.Second
			r := newFixture(t, versionHandlers()["A2"], versioned(v))
			r.cfg.Queue = blind{r.queue, count}
			r.start()
			r.send(state(3))
			time.Sleep(10 * time.Second)
			if waits := len(ledger(r)) == 0; waits != count {
				t.Errorf("count %v: waits %v", count, waits)
			}
			r.after(3 * time.Minute)
			if got := strings.Join(ledger(r), " "); got != "3" {
				t.Errorf("count %v: applied %q", count, got)
			}
		})
	}
}

// TestGapOfAnOrderedGroupIsNotWaitedFor: the head of a group would keep its own predecessor from coming.
func TestGapOfAnOrderedGroupIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := key.BySequence("/v")
		v.Park = time.Hour
		r := newFixture(t, versionHandlers()["A2"], versioned(v))
		for _, n := range []int{1, 3, 2, 4} {
			m := state(n)
			m.Group = "order-1"
			r.send(m)
		}
		r.start()
		r.after(time.Minute)
		if got := strings.Join(ledger(r), " "); got != "1 3 4" || len(r.deadLetters()) != 1 || r.deadLetters()[0].Kind != driver.DeadLetterLate {
			t.Fatalf("applied %q, dead letters %+v", got, r.deadLetters())
		}
	})
}

// TestOlderVersionsRunWhileNoNewerOneMayHaveBeenApplied checks the guarantee's sentence for plain handlers, from both sides: a
// newer version that certainly had no effect does not prevent an older one from running. A newer version that may have had
// an effect does.
func TestOlderVersionsRunWhileNoNewerOneMayHaveBeenApplied(t *testing.T) {
	for name, c := range map[string]struct {
		err  func(error) error
		runs string
	}{
		"not applied": {func(err error) error { return semel.NotApplied(semel.Permanent(err)) }, "2 1"},
		"in doubt":    {semel.Permanent, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs []string
				r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
					runs = append(runs, a.Version().String())
					if a.Version() == driver.IntVersion(2) {
						return c.err(errors.New("refused"))
					}
					return nil
				}), versioned(key.ByVersion("/v")))
				r.start()
				const sentence = "older versions do not run once a newer one was applied or may have been"
				if p := r.c.Guarantee().String(); !strings.Contains(p, sentence) {
					t.Errorf("the guarantee does not say %q:\n%s", sentence, p)
				}
				r.send(state(2))
				time.Sleep(time.Second)
				r.send(state(1))
				r.after(time.Minute)
				if got := strings.Join(runs, " "); got != c.runs {
					t.Errorf("ran %q, want %q", got, c.runs)
				}
			})
		})
	}
}
