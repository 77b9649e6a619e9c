package ops

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// shop is a queue whose messages were all handled once, and failed.
type shop struct {
	t     *testing.T
	db    *memory.DB
	q     *memory.Queue
	fault *faulty
}

// faulty fails the n-th call of Operate, Send, PutDeadLetter and DeleteDeadLetter together, after or before it did its work.
type faulty struct {
	*memory.Queue
	*memory.Store
	calls, failAt int
	after         bool
}

var errCrash = errors.New("crash")

func (f *faulty) step(do func() error) error {
	f.calls++
	if f.calls == f.failAt && !f.after {
		return errCrash
	}
	err := do()
	if f.calls == f.failAt {
		return errCrash
	}
	return err
}

func (f *faulty) Operate(ctx context.Context, op driver.Operation) (r driver.Record, o driver.Outcome, err error) {
	err = f.step(func() (err error) { r, o, err = f.Store.Operate(ctx, op); return err })
	return r, o, err
}

func (f *faulty) Send(ctx context.Context, m ...driver.Message) error {
	return f.step(func() error { return f.Queue.Send(ctx, m...) })
}

func (f *faulty) DeleteDeadLetter(ctx context.Context, id string) error {
	return f.step(func() error { return f.Queue.DeleteDeadLetter(ctx, id) })
}

func (f *faulty) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	return f.step(func() error { return f.Queue.PutDeadLetter(ctx, l) })
}

func open(t *testing.T) *shop {
	db := memory.Open()
	return &shop{t: t, db: db, q: db.Queue("q"), fault: &faulty{Queue: db.Queue("q"), Store: db.Store()}}
}

func (s *shop) box() Queue {
	return Queue{Name: "q", DeadLetters: s.fault, sender: s.fault, Records: s.db.Store(), operator: s.fault}
}

// work handles what is in the queue until it is empty, and returns the effect keys of the runs that returned nil.
func (s *shop) work(change func(*semel.Config), h func(a *semel.Attempt) error) (effects []string) {
	s.t.Helper()
	cfg := semel.Config{
		Queue: s.q, Store: s.db.Store(), MaxAttempts: 1, Concurrency: 1, Batch: 1,
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			err := h(a)
			if err == nil {
				effects = append(effects, a.EffectKey(""))
			}
			return err
		}),
	}
	if change != nil {
		change(&cfg)
	}
	c, err := semel.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if st, err := s.q.Stats(s.t.Context()); err != nil || st.Empty() {
			break
		}
		if time.Now().After(end) {
			s.t.Fatal("the queue does not get empty")
		}
	}
	stop()
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
	return effects
}

func (s *shop) send(m ...semel.Message) {
	s.t.Helper()
	if err := s.q.Send(s.t.Context(), m...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) deadLetters() []driver.DeadLetter {
	s.t.Helper()
	ls, err := s.q.DeadLetters(s.t.Context(), 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return ls
}

func (s *shop) record(key string) driver.Record {
	s.t.Helper()
	r, _, err := s.db.Store().Record(s.t.Context(), semel.Key{Consumer: "q", Raw: key})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func permanent(*semel.Attempt) error { return semel.Permanent(errors.New("no")) }
func fails(*semel.Attempt) error     { return errors.New("perhaps") }
func works(*semel.Attempt) error     { return nil }
func once(c *semel.Config)           { c.Takeover = semel.Once }

// crashes repeats op with a crash before and after every step, until it ends without a crash. Each repetition starts afresh.
func crashes(t *testing.T, prepare func(*shop), op func(*shop) error, check func(t *testing.T, s *shop)) {
	t.Helper()
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			s := open(t)
			prepare(s)
			s.fault.calls, s.fault.failAt, s.fault.after = 0, at, after
			err := op(s)
			if s.fault.calls < at {
				if at < 3 {
					t.Fatalf("only %d steps: the test sees nothing", at-1)
				}
				break
			}
			if !errors.Is(err, errCrash) {
				t.Fatalf("step %d: %v", at, err)
			}
			s.fault.failAt = 0
			if err := op(s); err != nil {
				t.Fatalf("step %d (after: %v), again: %v", at, after, err)
			}
			t.Run(fmt.Sprintf("crash %d after %v", at, after), func(t *testing.T) { check(t, s) })
		}
	}
}

// redriveAll redrives every dead letter that is there; with no dead letter left there is nothing to do.
func redriveAll(s *shop) error {
	for _, l := range s.deadLetters() {
		if _, err := s.box().Redrive(s.t.Context(), l, Options{Mode: Skip, Keep: time.Hour, By: "test"}); err != nil {
			return err
		}
	}
	return nil
}

// TestFM61_RedriveSurvivesEveryCrash: whatever step a redrive stops at, saying it again gives one effect, under the
// effect key that the failed run had, and leaves no dead letter.
func TestFM61_RedriveSurvivesEveryCrash(t *testing.T) {
	for name, m := range map[string]semel.Message{
		"key is the broker's id": {ID: "broker|id"},
		"key is a header":        {ID: "1", Headers: map[string]string{"Idempotency-Key": "k"}},
	} {
		t.Run(name, func(t *testing.T) {
			first := ""
			crashes(t, func(s *shop) {
				s.t = t
				s.send(m)
				s.work(nil, func(a *semel.Attempt) error { first = a.EffectKey(""); return permanent(a) })
			}, redriveAll, func(t *testing.T, s *shop) {
				s.t = t
				if ls := s.deadLetters(); len(ls) > 0 {
					t.Errorf("dead letters are left: %+v", ls)
				}
				if got := s.work(nil, works); len(got) != 1 || got[0] != first {
					t.Errorf("effects %v, want one with %s", got, first)
				}
			})
		})
	}
}

// TestFM78_ResolveToRetrySendsAgain: the message of an uncertain key was acked long ago; whatever step the resolution
// stops at, saying it again runs the message once.
func TestFM78_ResolveToRetrySendsAgain(t *testing.T) {
	crashes(t, func(s *shop) {
		s.send(semel.Message{ID: "k"})
		s.work(once, fails)
	}, func(s *shop) error {
		_, err := s.box().Resolve(s.t.Context(), s.record("k"), driver.Released, nil, Options{Keep: time.Hour, By: "test"})
		return err
	}, func(t *testing.T, s *shop) {
		s.t = t
		if got := s.work(once, works); len(got) != 1 {
			t.Errorf("effects %v", got)
		}
		if ls := s.deadLetters(); len(ls) > 0 {
			t.Errorf("dead letters are left: %+v", ls)
		}
	})
}

// TestFM80_DiscardedStaysDiscarded: whatever step a discard stops at, a late duplicate brings nothing back.
func TestFM80_DiscardedStaysDiscarded(t *testing.T) {
	for after := range 2 {
		for at := 1; at <= 2; at++ {
			s := open(t)
			s.send(semel.Message{ID: "k"})
			s.work(nil, permanent)
			discard := func() error {
				for _, l := range s.deadLetters() {
					if _, err := s.box().Discard(t.Context(), l, Options{By: "test"}); err != nil {
						return err
					}
				}
				return nil
			}
			s.fault.failAt, s.fault.after = at, after == 1
			if err := discard(); !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			if err := discard(); err != nil {
				t.Fatal(err)
			}
			s.send(semel.Message{ID: "k"})
			if got := s.work(nil, works); len(got) > 0 || len(s.deadLetters()) > 0 {
				t.Errorf("delivered again: effects %v, dead letters %v", got, s.deadLetters())
			}
		}
	}
}

// TestFM79: a key that fails again after a redrive has a new dead letter. The stale dead letter of its first failure does no
// harm: a redrive removes it, and the newer one stays.
func TestFM79_SecondFailureIsAnotherDeadLetter(t *testing.T) {
	s := open(t)
	s.send(semel.Message{ID: "k"})
	s.work(nil, permanent)
	stale := s.deadLetters()[0]
	if err := redriveAll(s); err != nil {
		t.Fatal(err)
	}
	s.work(nil, permanent)
	ls := s.deadLetters()
	if len(ls) != 1 || ls[0].ID == stale.ID {
		t.Fatalf("dead letters %+v", ls)
	}
	for _, again := range []func(context.Context, driver.DeadLetter, Options) (Result, error){s.box().Redrive, s.box().Discard} {
		if err := s.q.PutDeadLetter(t.Context(), stale); err != nil {
			t.Fatal(err)
		}
		if r, err := again(t.Context(), stale, Options{Mode: Skip}); err != nil || r.Outcome == Refused {
			t.Errorf("%+v %v", r, err)
		}
		if got := s.work(nil, works); len(got) > 0 || len(s.deadLetters()) != 1 || s.deadLetters()[0].ID != ls[0].ID {
			t.Errorf("effects %v, dead letters %+v", got, s.deadLetters())
		}
	}
}

// A redrive or a resolution that is interrupted before the message was sent leaves an open record. When a delivery whose
// message is gone claims it then, and is never heard of again, only the dead letter has the message: said again, the verb
// must send it.
func TestInterruptedThenClaimed(t *testing.T) {
	resolve := func(s *shop) error {
		_, err := s.box().Resolve(t.Context(), s.record("k"), driver.Released, nil, Options{Keep: time.Hour, By: "test"})
		return err
	}
	for name, c := range map[string]struct {
		fail func(s *shop)
		op   func(s *shop) error
	}{
		"redrive": {func(s *shop) { s.work(nil, permanent) }, redriveAll},
		"resolve": {func(s *shop) { s.work(once, fails) }, resolve},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.send(semel.Message{ID: "k"})
			c.fail(s)
			s.fault.failAt, s.fault.after = s.fault.calls+1, true
			if err := c.op(s); !errors.Is(err, errCrash) || s.record("k").State != driver.Released {
				t.Fatalf("%v, %s", err, s.record("k").State)
			}
			g, err := s.db.Store().Claim(t.Context(), driver.Claim{Key: s.record("k").Key, Nonce: driver.Nonce{1}, Lease: time.Millisecond})
			if err != nil || g[0].Verdict != driver.Acquired {
				t.Fatalf("%+v %v", g, err)
			}
			if r, err := s.box().Discard(t.Context(), s.deadLetters()[0], Options{}); err != nil || r.Outcome != Refused {
				t.Errorf("discard: %+v %v", r, err)
			}
			s.fault.failAt = 0
			if err := c.op(s); err != nil {
				t.Fatal(err)
			}
			// Under the policy once the lost claim is a new doubt: the message is parked again, not lost.
			if got := s.work(nil, works); len(got)+len(s.deadLetters()) != 1 {
				t.Errorf("effects %v, dead letters %+v", got, s.deadLetters())
			}
		})
	}
}

// TestKeepDefaults: a record whose operation names no retention is kept for the default, not for no time.
func TestKeepDefaults(t *testing.T) {
	s := open(t)
	if err := s.q.Send(t.Context(), semel.Message{ID: "k"}); err != nil {
		t.Fatal(err)
	}
	s.work(nil, func(*semel.Attempt) error { return semel.Permanent(errors.New("no")) })
	if r, err := s.box().Redrive(t.Context(), s.deadLetters()[0], Options{By: "yui"}); err != nil || r.Outcome != Redriven {
		t.Fatal(r, err)
	}
	if until := s.record("k").RetainUntil; time.Until(until) < semel.DefaultRetention-time.Hour {
		t.Errorf("kept until %s", until)
	}
}
