package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// entry is one message in the queue. Entries are reused, but the number of a delivery is not: it distinguishes the receipts of
// earlier messages.
type entry struct {
	m        driver.Message
	delivery uint64 // the delivery that may settle it; 0 = none
	count    int
	due      time.Time
	status   status
	listed   bool // in Queue.flights
	heap     int  // place in Queue.timers, from 1

	prev, next   *entry // ready or flights
	older, newer *entry // all messages in the order of their acceptance
	behind       *entry // the next of the same group
}

// receipt is a delivery's handle: its address is the driver.Delivery's Receipt.
type receipt struct {
	q        *Queue
	e        *entry
	delivery uint64
	// settled is the action (from 1) that this receipt was used for, so that repeating it returns Applied.
	settled driver.Action
}

// group is one ordered group: only its head is deliverable.
type group struct{ head, tail *entry }

// Queue is a queue in memory. Make it with [NewQueue] or [DB.Queue]. It keeps counts, delays, groups and dead letters.
type Queue struct {
	*messages
	visible time.Duration
}

// messages is the state that all Queues of one name share.
type messages struct {
	db   *DB
	name string

	ready   list
	flights list
	timers  timers
	groups  map[string]*group
	oldest  *entry
	newest  *entry
	counts  [waiting + 1]int64
	free    *entry // recycled, linked by next
	spare   []entry

	deadLetters   map[string]keptDeadLetter
	deadLetterSeq uint64

	waiters []chan struct{}
}

func newQueue(db *DB, name string) *Queue {
	return &Queue{
		messages: &messages{db: db, name: name, groups: map[string]*group{}, deadLetters: map[string]keptDeadLetter{}},
		visible:  db.visible,
	}
}

// Features describes the queue: everything but durability.
func (q *Queue) Features() driver.QueueFeatures {
	return driver.QueueFeatures{
		Name: q.name, Kind: "memory",
		Extends: true, Delays: true, DelaysSend: true, Counts: true, Orders: true, DeadLetters: true,
	}
}

// Send accepts all messages, or none if ctx is already done. Bodies and headers are kept, not copied. A message without ID gets
// one, and a message without SentAt gets the current time.
func (q *Queue) Send(ctx context.Context, m ...driver.Message) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("send to queue %q: %w", q.name, err)
	}
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	now := q.db.clock()
	for i := range m {
		q.accept(&m[i], now)
	}
	q.wake()
	return nil
}

func (q *Queue) accept(m *driver.Message, now time.Time) {
	e := q.newEntry()
	e.m = *m
	e.m.Queue, e.m.Delay, e.m.Position = q.name, 0, nil
	if e.m.ID == "" {
		e.m.ID = q.db.newID()
	}
	if e.m.SentAt.IsZero() {
		e.m.SentAt = now
	}
	e.due = now
	if m.Delay > 0 {
		e.due = e.m.SentAt.Add(m.Delay)
	}
	if q.newest == nil {
		q.oldest = e
	} else {
		e.older, q.newest.newer = q.newest, e
	}
	q.newest = e
	if m.Group != "" {
		g := q.groups[m.Group]
		if g != nil {
			g.tail.behind = e
			g.tail = e
			q.place(e, waiting)
			return
		}
		q.groups[m.Group] = &group{head: e, tail: e}
	}
	q.schedule(e, e.due, now)
}

func (q *Queue) newEntry() *entry {
	if e := q.free; e != nil {
		q.free, e.next = e.next, nil
		return e
	}
	if len(q.spare) == 0 {
		q.spare = make([]entry, 64)
	}
	e := &q.spare[0]
	q.spare = q.spare[1:]
	return e
}

// forget removes a message. The next one of its group becomes deliverable.
func (q *Queue) forget(e *entry, now time.Time) {
	q.unplace(e)
	if e.older == nil {
		q.oldest = e.newer
	} else {
		e.older.newer = e.newer
	}
	if e.newer == nil {
		q.newest = e.older
	} else {
		e.newer.older = e.older
	}
	if e.m.Group != "" {
		if next := e.behind; next != nil {
			q.groups[e.m.Group].head = next
			q.schedule(next, next.due, now)
		} else {
			delete(q.groups, e.m.Group)
		}
	}
	*e = entry{next: q.free}
	q.free = e
}

// Receive returns up to max messages, the longest deliverable first. It blocks until there is one or ctx is done, and then
// returns the error of ctx.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("receive from queue %q: max is %d, must be at least 1", q.name, limit)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, wait, due := q.take(limit)
		if out != nil {
			return out, nil
		}
		if err := q.await(ctx, wait, due); err != nil {
			return nil, err
		}
	}
}

// take returns deliverable messages. If there are none, it returns a channel that is signalled when that may have changed, and
// how long to wait for it at most (negative: no limit).
func (q *Queue) take(limit int) ([]driver.Delivery, chan struct{}, time.Duration) {
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	now := q.db.clock()
	q.advance(now)
	n := int(min(q.counts[ready], int64(limit)))
	if n == 0 {
		wait, left := make(chan struct{}, 1), time.Duration(-1)
		q.waiters = append(q.waiters, wait)
		if due, ok := q.nextDue(); ok {
			left = max(due.Sub(now), 0)
		}
		return nil, wait, left
	}
	out := make([]driver.Delivery, n)
	receipts := make([]receipt, n) // one allocation for all of them
	for i := range out {
		e := q.ready.first
		e.count++
		q.db.deliveries++
		e.delivery = q.db.deliveries
		receipts[i] = receipt{q: q, e: e, delivery: e.delivery}
		q.fly(e, now.Add(q.visible))
		out[i].Message = e.m
		out[i].Receipt, out[i].Count, out[i].Visible = &receipts[i], e.count, q.visible
	}
	q.wake()
	return out, nil, 0
}

// await waits for a signal, for left to pass, or for ctx.
func (q *Queue) await(ctx context.Context, wait chan struct{}, left time.Duration) error {
	var after <-chan time.Time
	if left >= 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		after = t.C
	}
	var err error
	select {
	case <-wait:
		return nil
	case <-after:
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.db.mu.Lock()
	defer q.db.mu.Unlock()
	for i, w := range q.waiters {
		if w == wait {
			q.waiters = append(q.waiters[:i], q.waiters[i+1:]...)
			return err
		}
	}
	q.wake() // the signal came at the same moment: pass it on to another waiter
	return err
}

// wake signals as many waiters as there are deliverable messages.
func (q *Queue) wake() {
	n := min(int64(len(q.waiters)), q.counts[ready])
	for _, w := range q.waiters[:n] {
		w <- struct{}{} // has room for one, and each is signalled once
	}
	q.waiters = append(q.waiters[:0], q.waiters[n:]...)
}

// wakeAll wakes every waiter.
func (q *Queue) wakeAll() {
	for _, w := range q.waiters {
		w <- struct{}{}
	}
	q.waiters = q.waiters[:0]
}

// dueChanged makes the waiters reset their timers if e is due before all other entries.
func (q *Queue) dueChanged(e *entry) {
	if len(q.waiters) == 0 {
		return
	}
	if due, _ := q.nextDue(); !due.Before(e.due) {
		q.wakeAll()
	}
}
