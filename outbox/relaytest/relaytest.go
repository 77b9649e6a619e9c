// Package relaytest tests a relay on an adapter's queues: protocol section 8, invariant I16.
package relaytest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/flake"
	"github.com/semel-dev/semel/outbox"
)

// Visible is the visibility of the outbox under test.
const Visible = 400 * time.Millisecond

// Setup is a database under test, with a real clock.
type Setup struct {
	// In and Store are one database; In has to be a driver.Sender. Outbox is another queue in it, with a visibility of
	// [Visible]; it has to be a driver.Sender too.
	In     driver.Queue
	Store  driver.Store
	Outbox driver.Queue
	// Late sends a message to the outbox in a transaction, and returns its commit. Nil: the database allows no other write
	// meanwhile.
	Late func(m driver.Message) (commit func() error, err error)
}

// Run runs the suite. open opens an empty database that shares nothing with those of other calls, and registers its own
// cleanup.
func Run(t *testing.T, open func(t testing.TB) Setup) {
	for _, c := range []struct {
		name string
		run  func(b *bench)
	}{
		{"I16 what is emitted is published", emitted},
		{"FM62 crash between publication and mark", crash},
		{"FM62 a position that commits late", late},
		{"a message that is refused", poison},
		{"a message that is named as the culprit", culprit},
		{"nothing works for a while", outage},
		{"order with several relays", order},
		{"FM62 a relay that lost its lease", fence},
		{"publishing longer than the visibility", slow},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			flake.Run(t, func(t testing.TB) { // a machine that stands still loses messages to other relays
				flake.Tolerate(t, Visible/4)
				c.run(&bench{TB: t, Setup: open(t), sink: &sink{}})
			})
		})
	}
}

// bench is one test.
type bench struct {
	testing.TB
	Setup
	sink *sink
}

// sink takes messages and remembers all of them, copies too.
type sink struct {
	mu  sync.Mutex
	got []driver.Message
	// before may refuse; it is called without the lock.
	before func(ctx context.Context, m []driver.Message) error
}

func (s *sink) Send(ctx context.Context, m ...driver.Message) error {
	if s.before != nil {
		if err := s.before(ctx, m); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, m...)
	return nil
}

// times counts how often each id was accepted.
func (s *sink) times() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for i := range s.got {
		n[s.got[i].ID]++
	}
	return n
}

// relay makes a relay with short pauses.
func (b *bench) relay(change func(c *outbox.Config)) *outbox.Relay {
	b.Helper()
	c := outbox.Config{
		From: &timed{b.Outbox, b}, To: b.sink, RetryMin: 5 * time.Millisecond, RetryMax: 20 * time.Millisecond, MaxAttempts: 3,
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	r, err := outbox.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// run runs a relay until stop is called, which waits for it.
func (b *bench) run(r *outbox.Relay) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			b.Error(err)
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	b.Cleanup(stop)
	return stop
}

func (b *bench) send(m ...driver.Message) {
	b.Helper()
	if err := as[driver.Sender](b.Outbox).Send(context.Background(), m...); err != nil {
		b.Fatal(err)
	}
}

// until waits for a condition.
func (b *bench) until(what string, cond func() bool) {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%s: not within two minutes; the sink has %v", what, b.sink.times())
		}
	}
}

// empty waits until nothing is left in the outbox.
func (b *bench) empty() {
	b.Helper()
	b.until("the outbox is empty", func() bool {
		s, err := as[driver.QueueInspector](b.Outbox).Stats(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		return s.Empty()
	})
}

// once checks that exactly these ids were published, each once.
func (b *bench) once(ids ...string) {
	b.Helper()
	got := b.sink.times()
	for _, id := range ids {
		if got[id] != 1 {
			b.Errorf("%q was published %d times", id, got[id])
		}
		delete(got, id)
	}
	for id := range got {
		b.Errorf("%q was published, and nobody committed it", id)
	}
}

// timed notes how long the relay waits for the queue.
type timed struct {
	driver.Queue
	b *bench
}

func (q *timed) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	defer q.took(time.Now())
	return q.Queue.Settle(ctx, s...)
}

func (q *timed) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	defer q.took(time.Now())
	return q.Queue.Extend(ctx, visible, receipts...)
}

func (q *timed) took(began time.Time) { flake.Note(q.b.TB, time.Since(began)) }

// broken is a queue with faults.
type broken struct {
	driver.Queue
	settle, extend bool
}

var errBroken = errors.New("broken for the test")

func (q *broken) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	if q.settle {
		return nil, errBroken
	}
	return q.Queue.Settle(ctx, s...)
}

func (q *broken) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	if q.extend {
		return nil, errBroken
	}
	return q.Queue.Extend(ctx, visible, receipts...)
}

func ids(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("m-", i)
	}
	return list
}

// as finds an interface that the bench's queues are known to have.
func as[T any](q driver.Queue) T {
	t, ok := driver.As[T](q)
	if !ok {
		panic("a queue of the bench lacks an interface")
	}
	return t
}
