package deadletter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// bare is a queue in memory without dead letters, which reports its acks.
type bare struct {
	driver.Sender
	driver.QueueInspector
	driver.Purger
	q     *memory.Queue
	acked func()
	lose  int // how many settlements are carried out and return an error
}

func (b *bare) Features() driver.QueueFeatures {
	f := b.q.Features()
	f.DeadLetters = false
	return f
}

func (b *bare) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	return b.q.Receive(ctx, limit)
}

func (b *bare) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	for i := range s {
		if s[i].Action == driver.Dead || s[i].DeadLetter != nil || s[i].Close != "" {
			return nil, fmt.Errorf("item %d asks for a dead letter: %w", i, driver.ErrUnsupported)
		}
		if s[i].Action == driver.Ack && b.acked != nil {
			b.acked()
		}
	}
	out, err := b.q.Settle(ctx, s...)
	if b.lose > 0 {
		b.lose--
		return nil, errors.New("connection reset")
	}
	return out, err
}

func (b *bare) Extend(ctx context.Context, d time.Duration, r ...any) ([]driver.Outcome, error) {
	return b.q.Extend(ctx, d, r...)
}

func newBare(q *memory.Queue) *bare { return &bare{Sender: q, QueueInspector: q, Purger: q, q: q} }

// box is a box that counts what it is asked for.
type box struct {
	driver.DeadLetterQueue
	puts, deletes int
	fail          error
	put           func()
}

func (b *box) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if b.puts++; b.put != nil {
		b.put()
	}
	if b.fail != nil {
		return b.fail
	}
	return b.DeadLetterQueue.PutDeadLetter(ctx, l)
}

func (b *box) DeleteDeadLetter(ctx context.Context, id string) error {
	b.deletes++
	if b.fail != nil {
		return b.fail
	}
	return b.DeadLetterQueue.DeleteDeadLetter(ctx, id)
}

// TestSuites runs the suites of queues and pairs in virtual time.
func TestSuites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(db *memory.DB) driver.Queue {
			return With(newBare(db.Queue("orders")), db.Queue("orders, dead letters"))
		}
		failures := semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup {
			db := memory.Open(memory.WithVisibility(time.Second))
			return semeltest.QueueSetup{Queue: open(db), Restart: func(testing.TB) driver.Queue { return open(db) }}
		})
		for _, failure := range append(failures, semeltest.CheckPair(t, func(testing.TB) semeltest.PairSetup {
			db := memory.Open(memory.WithVisibility(time.Second))
			return semeltest.PairSetup{Queue: open(db), Store: db.Store(), Visibility: time.Second}
		})...) {
			t.Error(failure)
		}
	})
}

// fixture is one message in flight on a queue that is made by with.
type fixture struct {
	q     driver.Queue
	inner *bare
	box   *box
	kill  driver.Settlement
	order []string
}

func newFixture(with func(q driver.Queue, b driver.DeadLetterQueue) driver.Queue) (*fixture, error) {
	db := memory.Open()
	w := &fixture{inner: newBare(db.Queue("orders")), box: &box{DeadLetterQueue: db.Queue("dead")}}
	w.inner.acked = func() { w.order = append(w.order, "ack") }
	w.box.put = func() { w.order = append(w.order, "put") }
	w.q = with(w.inner, w.box)
	ctx := context.Background()
	if err := w.inner.Send(ctx, driver.Message{ID: "m"}); err != nil {
		return nil, err
	}
	ds, err := w.q.Receive(ctx, 1)
	if err != nil {
		return nil, err
	}
	l := &driver.DeadLetter{ID: "l", Kind: driver.DeadLetterFailed, Message: ds[0].Message}
	w.kill = driver.Settlement{Receipt: ds[0].Receipt, Action: driver.Dead, DeadLetter: l}
	return w, nil
}

// rules are the guarantees of With. Each checks any implementation and returns an error that says what is wrong.
var rules = map[string]func(with func(q driver.Queue, b driver.DeadLetterQueue) driver.Queue) error{
	"FM61 the dead letter is written before the ack": func(with func(q driver.Queue, b driver.DeadLetterQueue) driver.Queue) error {
		w, err := newFixture(with)
		if err != nil {
			return err
		}
		if _, err := w.q.Settle(context.Background(), w.kill); err != nil {
			return err
		}
		if got := fmt.Sprint(w.order); got != "[put ack]" {
			return fmt.Errorf("order %s", got)
		}
		return nil
	},
	"FM61 a box that fails keeps the message": func(with func(q driver.Queue, b driver.DeadLetterQueue) driver.Queue) error {
		w, err := newFixture(with)
		if err != nil {
			return err
		}
		w.box.fail = errors.New("disk full")
		out, err := w.q.Settle(context.Background(), w.kill)
		if !errors.Is(err, w.box.fail) || len(out) == 1 && out[0] != driver.Unknown {
			return fmt.Errorf("settle returned %v, %w", out, err)
		}
		s, err := w.inner.Stats(context.Background())
		if err != nil || s.InFlight != 1 {
			return fmt.Errorf("the queue holds %+v (%w): the message is lost", s, err)
		}
		return nil
	},
	"a dead letter is written once for a delivery": func(with func(q driver.Queue, b driver.DeadLetterQueue) driver.Queue) error {
		w, err := newFixture(with)
		if err != nil {
			return err
		}
		w.inner.lose = 1
		if out, err := w.q.Settle(context.Background(), w.kill); err == nil {
			return fmt.Errorf("an ack without a response is %v", out)
		}
		// Somebody has discarded it meanwhile. Writing it again would restore it.
		if err := w.box.DeadLetterQueue.DeleteDeadLetter(context.Background(), "l"); err != nil {
			return err
		}
		if out, err := w.q.Settle(context.Background(), w.kill); err != nil || out[0] != driver.Applied {
			return fmt.Errorf("the repetition returned %v, %w", out, err)
		}
		if ls, err := w.box.DeadLetters(context.Background(), 0); err != nil || len(ls) != 0 || w.box.puts != 1 {
			return fmt.Errorf("written %d times, there are %d (%w)", w.box.puts, len(ls), err)
		}
		return nil
	},
	"a dead letter is closed before the ack": func(with func(q driver.Queue, b driver.DeadLetterQueue) driver.Queue) error {
		w, err := newFixture(with)
		if err != nil {
			return err
		}
		w.box.fail = errors.New("disk full")
		s := driver.Settlement{Receipt: w.kill.Receipt, Close: "l"}
		if out, err := w.q.Settle(context.Background(), s); !errors.Is(err, w.box.fail) || len(w.order) > 0 {
			return fmt.Errorf("settle returned %v, %w, after %v", out, err, w.order)
		}
		w.box.fail = nil
		if out, err := w.q.Settle(context.Background(), s); err != nil || out[0] != driver.Applied || w.box.deletes != 2 {
			return fmt.Errorf("the repetition returned %v, %w, after %d deletions", out, err, w.box.deletes)
		}
		return nil
	},
}

func TestRules(t *testing.T) {
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			if err := rule(With); err != nil {
				t.Error(err)
			}
		})
	}
}

// hasty acks first, and forgetful remembers no dead letter that it wrote.
type (
	hasty     struct{ *queue }
	forgetful struct{ driver.Queue }
)

func (q hasty) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	var out []driver.Outcome
	for i := range s {
		o, err := q.Queue.Settle(ctx, driver.Settlement{Receipt: s[i].Receipt.(*receipt).inner})
		if err != nil {
			return out, err
		}
		out = append(out, o...)
		if err := keep(ctx, q.box, &s[i]); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (q forgetful) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	for i := range s {
		s[i].Receipt.(*receipt).SetDeadLetter("")
	}
	return q.Queue.Settle(ctx, s...)
}

// TestPlantedMistakes: each rule finds the mistake that it is about.
func TestPlantedMistakes(t *testing.T) {
	ackFirst := func(q driver.Queue, b driver.DeadLetterQueue) driver.Queue { return hasty{&queue{q, b}} }
	for name, planted := range map[string]func(driver.Queue, driver.DeadLetterQueue) driver.Queue{
		"FM61 the dead letter is written before the ack": ackFirst,
		"FM61 a box that fails keeps the message":        ackFirst,
		"a dead letter is closed before the ack":         ackFirst,
		"a dead letter is written once for a delivery": func(q driver.Queue, b driver.DeadLetterQueue) driver.Queue {
			return forgetful{With(q, b)}
		},
	} {
		if err := rules[name](planted); err == nil {
			t.Errorf("%s: the planted mistake is not found", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// TestOptionalInterfaces: With sends and counts where the queue does.
func TestOptionalInterfaces(t *testing.T) {
	db := memory.Open()
	q := newBare(db.Queue("orders"))
	for _, c := range []struct {
		q            driver.Queue
		sends, shows bool
	}{
		{q, true, true},
		{struct {
			driver.Queue
			driver.Sender
		}{q, q}, true, false},
		{struct {
			driver.Queue
			driver.QueueInspector
		}{q, q}, false, true},
		{struct{ driver.Queue }{q}, false, false},
	} {
		w := With(c.q, db.Queue("dead"))
		_, sends := driver.As[driver.Sender](w)
		_, shows := driver.As[driver.QueueInspector](w)
		if sends != c.sends || shows != c.shows {
			t.Errorf("sends %v, shows %v, wanted %v and %v", sends, shows, c.sends, c.shows)
		}
		if box, ok := driver.DeadLettersOf(w); !ok || box != driver.DeadLetterQueue(db.Queue("dead")) {
			t.Errorf("its dead letters are in %v", box)
		}
	}
	if err := db.Queue("dead").PutDeadLetter(t.Context(), driver.DeadLetter{ID: "l"}); err != nil {
		t.Fatal(err)
	}
	if s, err := With(q, db.Queue("dead")).(driver.QueueInspector).Stats(t.Context()); err != nil || s.DeadLetters != 1 {
		t.Errorf("stats %+v, %v", s, err)
	}
	if _, err := With(q, db.Queue("dead")).Settle(t.Context(), driver.Settlement{Receipt: 7}); err == nil {
		t.Error("a receipt of another queue is taken")
	}
}
