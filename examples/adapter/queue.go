package adapter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

// Queue keeps messages in a file. It has no visibility timeout: a delivery belongs to the process until it is settled or
// the process ends, as with RabbitMQ. One process may have the file open.
type Queue struct {
	name    string
	mu      sync.Mutex
	wake    chan struct{} // closed when waiting receivers have to look again
	entries map[uint64]*entry
	last    uint64                     // the number of the latest entry
	ready   []*entry                   // can be received
	later   redeliver.Schedule[*entry] // can be received when they are due
	file    *journal[event]
}

// entry is a message that is not settled.
type entry struct {
	number uint64
	m      driver.Message
	out    *receipt // the delivery that is in flight, or nil
}

// receipt names one delivery.
type receipt struct {
	q       *Queue
	e       *entry
	settled driver.Action // from 1; 0 = it is not settled
}

// event is an entry of the file: a message that was sent, or, without one, a number that is settled.
type event struct {
	Number  uint64
	Message *driver.Message
}

// OpenQueue opens the file, or makes it. Every message that was not settled before can be received.
func OpenQueue(path, name string) (*Queue, error) {
	q := &Queue{name: name, wake: make(chan struct{}), entries: map[uint64]*entry{}}
	var err error
	if q.file, err = openJournal(path, q.apply); err != nil {
		return nil, err
	}
	for _, e := range q.sorted() {
		q.later.Put(e.m.SentAt.Add(e.m.Delay), e)
	}
	return q, nil
}

// Close closes the file. What was received and not settled is delivered again after the next OpenQueue.
func (q *Queue) Close() error { return q.file.close() }

func (q *Queue) apply(ev event) {
	q.last = max(q.last, ev.Number)
	if ev.Message == nil {
		delete(q.entries, ev.Number)
		return
	}
	q.entries[ev.Number] = &entry{number: ev.Number, m: *ev.Message}
}

func (q *Queue) sorted() []*entry {
	all := make([]*entry, 0, len(q.entries))
	for _, e := range q.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.number, b.number) })
	return all
}

// Features describes the queue. Whatever is not declared here need not work.
func (q *Queue) Features() driver.QueueFeatures {
	return driver.QueueFeatures{Name: q.name, Kind: "file", Durable: true, Delays: true, DelaysSend: true}
}

// Send accepts all messages, in one write. After an error any of them may have been accepted.
func (q *Queue) Send(ctx context.Context, m ...driver.Message) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("send to queue %q: %w", q.name, err)
	}
	events := make([]event, len(m))
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range m {
		msg := m[i]
		msg.Queue, msg.Position = q.name, nil
		if msg.ID == "" {
			msg.ID = driver.NewMessageID()
		}
		if msg.SentAt.IsZero() {
			msg.SentAt = time.Now()
		}
		events[i] = event{Number: q.last + 1 + uint64(i), Message: &msg}
	}
	if err := q.file.append(events...); err != nil {
		return fmt.Errorf("send to queue %q: %w", q.name, err)
	}
	for _, ev := range events {
		q.apply(ev)
		q.later.Put(ev.Message.SentAt.Add(ev.Message.Delay), q.entries[ev.Number])
	}
	q.wakeAll()
	return nil
}

func (q *Queue) wakeAll() {
	close(q.wake)
	q.wake = make(chan struct{})
}

// Receive returns up to limit messages that are due. It blocks until there is one or ctx is done.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("receive from queue %q: max is %d, must be at least 1", q.name, limit)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, wake, due := q.take(limit)
		if len(out) > 0 {
			return out, nil
		}
		wait, cancel := ctx, context.CancelFunc(func() {})
		if !due.IsZero() {
			wait, cancel = context.WithDeadline(ctx, due)
		}
		select {
		case <-wake:
		case <-wait.Done():
		}
		cancel()
	}
}

// take returns what is due. If nothing is, it returns when to look again: after wake was closed, or at due.
func (q *Queue) take(limit int) (out []driver.Delivery, wake <-chan struct{}, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance()
	n := min(limit, len(q.ready))
	for _, e := range q.ready[:n] {
		e.out = &receipt{q: q, e: e}
		d := driver.Delivery{Message: e.m, Receipt: e.out}
		d.Delay = 0
		out = append(out, d)
	}
	q.ready = q.ready[n:]
	due, _ = q.later.Next()
	return out, q.wake, due
}

// advance moves what is due to ready.
func (q *Queue) advance() { q.ready = append(q.ready, q.later.Due(time.Now())...) }

// Settle ends deliveries. What removes messages is one write of the file. A delay is kept in memory alone: after a crash the
// message is delivered early, and its record tells the worker to wait.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("settle in queue %q: %w", q.name, err)
	}
	for i := range s {
		if rc, ok := s[i].Receipt.(*receipt); !ok || rc.q != q {
			return nil, fmt.Errorf("settle in queue %q: item %d: receipt %T is not of this queue", q.name, i, s[i].Receipt)
		}
		if s[i].Action >= driver.Dead {
			return nil, fmt.Errorf("settle in queue %q: item %d: action %v: %w", q.name, i, s[i].Action, driver.ErrUnsupported)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]driver.Outcome, len(s))
	var removed []event
	for i := range s {
		rc := s[i].Receipt.(*receipt)
		switch {
		case rc.settled == s[i].Action+1:
			out[i] = driver.Applied
		case rc.settled != 0, rc.e.out != rc, q.entries[rc.e.number] != rc.e:
			out[i] = driver.Lost
		case s[i].Action == driver.Ack:
			removed = append(removed, event{Number: rc.e.number})
		}
	}
	if err := q.file.append(removed...); err != nil {
		return nil, fmt.Errorf("settle in queue %q: %w", q.name, err)
	}
	for i := range s {
		if rc := s[i].Receipt.(*receipt); out[i] == driver.Unknown {
			out[i] = q.settle(rc, &s[i])
		}
	}
	q.wakeAll()
	return out, nil
}

func (q *Queue) settle(rc *receipt, s *driver.Settlement) driver.Outcome {
	if rc.settled != 0 { // the call has the receipt twice
		return map[bool]driver.Outcome{true: driver.Applied, false: driver.Lost}[rc.settled == s.Action+1]
	}
	rc.settled, rc.e.out = s.Action+1, nil
	if s.Action == driver.Ack {
		delete(q.entries, rc.e.number)
	} else {
		q.later.Put(time.Now().Add(s.After), rc.e)
	}
	return driver.Applied
}

// Extend is not needed: a delivery has no deadline.
func (q *Queue) Extend(context.Context, time.Duration, ...any) ([]driver.Outcome, error) {
	return nil, fmt.Errorf("extend in queue %q: %w", q.name, driver.ErrUnsupported)
}

// Stats counts the messages.
func (q *Queue) Stats(ctx context.Context) (st driver.QueueStats, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance()
	for _, e := range q.entries {
		st.Oldest = max(st.Oldest, time.Since(e.m.SentAt))
	}
	st.Visible, st.Delayed = int64(len(q.ready)), int64(q.later.Len())
	st.InFlight = int64(len(q.entries)) - st.Visible - st.Delayed
	return st, ctx.Err()
}

// Peek shows up to limit messages without receiving them, oldest first.
func (q *Queue) Peek(ctx context.Context, limit int) (out []driver.Delivery, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.sorted() {
		if len(out) < limit {
			out = append(out, driver.Delivery{Message: e.m})
		}
	}
	return out, ctx.Err()
}

// Purge removes all messages and returns how many there were. Receipts of those in flight are Lost then.
func (q *Queue) Purge(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var removed []event
	for n := range q.entries {
		removed = append(removed, event{Number: n})
	}
	if err := q.file.append(removed...); err != nil {
		return 0, fmt.Errorf("purge queue %q: %w", q.name, err)
	}
	q.entries, q.ready, q.later = map[uint64]*entry{}, nil, redeliver.Schedule[*entry]{}
	return int64(len(removed)), nil
}
