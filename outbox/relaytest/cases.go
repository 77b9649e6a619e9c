package relaytest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/outbox"
)

// emitted goes the whole way: a handler emits, duplicates come, some runs fail after they emitted. What committed is
// published, each id once, and nothing else.
func emitted(b *bench) {
	const n = 30
	var failed sync.Map
	c, err := semel.New(semel.Config{
		Queue: b.In, Store: b.Store, Consumer: "emitter", Key: key.FromHeader("key"),
		Logger: slog.New(slog.DiscardHandler),
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			out := semel.Message{Queue: b.Outbox.Features().Name, Group: "of " + a.Key.Raw, Headers: a.Headers}
			a.Emit(out, out)
			if _, again := failed.LoadOrStore(a.Key.Raw, true); !again {
				return errBroken
			}
			return nil
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 2 * n { // each key twice
		m := driver.Message{Headers: map[string]string{"key": fmt.Sprint("key-", i%n), "Message-ID": "of the source"}}
		if err := as[driver.Sender](b.In).Send(context.Background(), m); err != nil {
			b.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	b.run(b.relay(nil))
	b.until("all are published", func() bool { return len(b.sink.times()) == 2*n })
	b.until("all are handled", func() bool {
		s, err := as[driver.QueueInspector](b.In).Stats(context.Background())
		return err == nil && s.Empty()
	})
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	b.empty()
	for id, times := range b.sink.times() {
		if times != 1 {
			b.Errorf("%s was published %d times", id, times)
		}
	}
	for _, m := range b.sink.got {
		if m.Headers[outbox.HeaderID] != m.ID || len(m.Headers) != 2 || m.Delay != 0 {
			b.Errorf("published %+v", m)
		}
	}
}

// crash kills a relay between publication and mark: another one publishes the same id again.
func crash(b *bench) {
	b.send(driver.Message{ID: "a", Group: "g"}, driver.Message{ID: "b", Group: "g"})
	stop := b.run(b.relay(func(c *outbox.Config) { c.From = &broken{Queue: b.Outbox, settle: true, extend: true} }))
	b.until("a is published", func() bool { return b.sink.times()["a"] == 1 })
	stop()
	b.run(b.relay(nil))
	b.empty()
	if got := b.sink.times(); len(got) != 2 || got["a"] != 2 || got["b"] != 1 {
		b.Errorf("published %v, wanted a twice and b once", got)
	}
}

// late lets a lower position commit after a higher one was published. A relay that kept a cursor would skip it.
func late(b *bench) {
	if b.Late == nil {
		b.Skip("SKIPPED: nobody else can write while a transaction is open in this database")
	}
	commit, err := b.Late(driver.Message{ID: "lower"})
	if err != nil {
		b.Fatal(err)
	}
	b.run(b.relay(nil))
	b.send(driver.Message{ID: "higher"})
	b.empty()
	if err := commit(); err != nil {
		b.Fatal(err)
	}
	b.until("lower is published", func() bool { return b.sink.times()["lower"] == 1 })
	b.empty()
	b.once("higher", "lower")
}

// poison refuses one message forever: it becomes a dead letter, its group goes on, others never waited.
func poison(b *bench) {
	b.sink.before = func(_ context.Context, ms []driver.Message) error {
		for _, m := range ms {
			if m.ID == "poison" {
				return errBroken
			}
		}
		return nil
	}
	b.send(driver.Message{ID: "poison", Group: "g"}, driver.Message{ID: "behind", Group: "g"})
	r := b.relay(nil)
	b.run(r)
	var others []string
	for i := range 200 { // what goes through proves that it is the message and not the way
		others = append(others, fmt.Sprint("other-", i))
		b.send(driver.Message{ID: others[i]})
		if b.sink.times()["behind"] == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.empty()
	b.once(append(others, "behind")...)
	ls, err := as[driver.DeadLetterQueue](b.Outbox).DeadLetters(context.Background(), 0)
	if err != nil || len(ls) != 1 || ls[0].Message.ID != "poison" || ls[0].Attempts != 3 || r.Counts().Parked != 1 {
		b.Errorf("dead letters %+v, %v, counts %+v", ls, err, r.Counts())
	}
}

// culprit has a sender that names what it refuses: the others go in one batch.
func culprit(b *bench) {
	var sends atomic.Int64
	b.sink.before = func(_ context.Context, ms []driver.Message) error {
		sends.Add(1)
		for i, m := range ms {
			if m.ID == "m-7" {
				return fmt.Errorf("send: %w", &driver.ItemError{Index: i, Err: errBroken})
			}
		}
		return nil
	}
	for _, id := range ids(20) {
		b.send(driver.Message{ID: id})
	}
	b.run(b.relay(nil))
	b.empty()
	got := ids(20)
	b.once(append(got[:7:7], got[8:]...)...)
	if n := sends.Load(); n > 10 {
		b.Errorf("%d sends for 20 messages, one of which is refused 3 times", n)
	}
}

// outage refuses everything for a while: nothing is dead-lettered, and everything is published in the end.
func outage(b *bench) {
	var down atomic.Bool
	down.Store(true)
	var refused atomic.Int64
	b.sink.before = func(context.Context, []driver.Message) error {
		if down.Load() {
			refused.Add(1)
			return errBroken
		}
		return nil
	}
	for i, id := range ids(10) {
		b.send(driver.Message{ID: id, Group: fmt.Sprint(i % 4)})
	}
	r := b.relay(nil)
	b.run(r)
	b.until("each was refused several times", func() bool { return refused.Load() > 50 })
	down.Store(false)
	b.empty()
	b.once(ids(10)...)
	if n := r.Counts().Parked; n != 0 {
		b.Errorf("%d messages were set aside", n)
	}
}

// order runs three relays, one of them with faults, while messages are sent: the first publications of each group are in
// the order of sending.
func order(b *bench) {
	const groups, each = 3, 25
	var calls atomic.Int64
	b.sink.before = func(context.Context, []driver.Message) error {
		if calls.Add(1)%7 == 0 {
			return errBroken
		}
		return nil
	}
	for range 3 {
		b.run(b.relay(func(c *outbox.Config) { c.MaxAttempts = 1000 }))
	}
	var all sync.WaitGroup
	for g := range groups {
		all.Go(func() {
			for i := range each {
				m := driver.Message{ID: fmt.Sprint(g, " ", i), Group: fmt.Sprint("g-", g), Body: []byte{byte(g), byte(i)}}
				if err := as[driver.Sender](b.Outbox).Send(context.Background(), m); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.empty()
	next, seen := [groups]byte{}, map[string]bool{}
	for _, m := range b.sink.got {
		if seen[m.ID] {
			continue
		}
		seen[m.ID] = true
		if g, i := m.Body[0], m.Body[1]; next[g] != i {
			b.Fatalf("group %d: number %d was published, wanted %d", g, i, next[g])
		}
		next[m.Body[0]]++
	}
	if len(seen) != groups*each {
		b.Errorf("%d of %d messages were published", len(seen), groups*each)
	}
}

// fence freezes a relay while it publishes, for longer than its lease lasts. Another one takes over. The first one marks
// nothing when it wakes up, and publishes no more of its batch.
func fence(b *bench) {
	frozen, wake := make(chan struct{}), make(chan struct{})
	var first, after atomic.Int64
	slowSink := &sink{before: func(_ context.Context, ms []driver.Message) error {
		if first.Add(1) == 1 {
			close(frozen)
			<-wake
			return errBroken // it is unknown whether it was accepted
		}
		after.Add(int64(len(ms)))
		return nil
	}}
	b.send(driver.Message{ID: "a", Group: "g"}, driver.Message{ID: "other"})
	old := b.relay(func(c *outbox.Config) { c.From, c.To = &broken{Queue: b.Outbox, extend: true}, slowSink })
	stop := b.run(old)
	<-frozen
	b.run(b.relay(nil))
	b.until("the second relay published", func() bool { return len(b.sink.times()) == 2 })
	b.empty()
	b.send(driver.Message{ID: "b", Group: "g", Delay: time.Hour}) // stays: the old one must not mark it either
	close(wake)
	stop()
	if c := old.Counts(); c.Published+c.Refused != 0 || after.Load() != 0 {
		b.Errorf("the relay that lost its lease has counts %+v and published %d more", c, after.Load())
	}
	b.once("a", "other")
}

// slow publishes for three times the visibility: the heartbeat keeps the messages.
func slow(b *bench) {
	b.sink.before = func(context.Context, []driver.Message) error {
		time.Sleep(3 * Visible)
		return nil
	}
	b.send(driver.Message{ID: "a"})
	b.run(b.relay(nil))
	b.run(b.relay(nil))
	b.empty()
	b.once("a")
}
