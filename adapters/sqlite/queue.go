package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// inlineBody is the longest body in the row of its message. Rows move to the other table when a message is returned. Longer
// bodies stay where they are.
const inlineBody = 2048

// Queue is a queue in the database. It keeps counts, delays, ordered groups and dead letters.
type Queue struct {
	*shared
	db      *DB
	name    string
	visible time.Duration
}

// shared is embedded under a name that programs do not see.
type shared = rowqueue.Queue

// Queue returns the queue of that name with the visibility of [Options]. The first message creates it.
func (db *DB) Queue(name string) *Queue { return db.QueueWith(name, db.o.Visibility) }

// QueueWith returns the queue of that name. visible is how long its Receive hides a message from others (0 = as in
// [Options]). It belongs to the receiver, not to the queue.
func (db *DB) QueueWith(name string, visible time.Duration) *Queue {
	if visible <= 0 {
		visible = db.o.Visibility
	}
	return &Queue{shared: rowqueue.New(rows{db}, name, &queueSQL), db: db, name: name, visible: visible}
}

// Features describes the queue.
func (q *Queue) Features() driver.QueueFeatures {
	return driver.QueueFeatures{
		Name: q.name, Kind: "sqlite", MaxBatch: rowqueue.MaxBatch, Durable: true,
		Extends: true, Delays: true, DelaysSend: true, Counts: true, Orders: true, DeadLetters: true,
	}
}

// receipt is a delivery's handle, the driver.Delivery's Receipt. It stays valid until the message is delivered again, even
// after its visibility has expired.
type receipt struct {
	q    *Queue
	pos  int64
	hand int64
	// run: the message was in semel_stream when it was delivered.
	run bool
	// long: its body is in semel_body.
	long bool
	// settled is the action (from 1) that spent this receipt, so that a repetition returns Applied.
	settled atomic.Uint32
}

// mine checks that a receipt is of this queue.
func (q *Queue) mine(r any) (*receipt, error) {
	rc, ok := r.(*receipt)
	if !ok || rc.q.db != q.db || rc.q.name != q.name {
		return nil, fmt.Errorf("receipt %T is not of queue %q", r, q.name)
	}
	return rc, nil
}

// Send accepts all messages or none. It sets a missing ID, and SentAt to now.
func (q *Queue) Send(ctx context.Context, m ...driver.Message) error {
	if len(m) == 0 {
		return nil
	}
	list := make([]driver.Message, len(m))
	copy(list, m)
	for i := range list {
		list[i].Queue = q.name
	}
	err := q.db.write(ctx, len(list), func(t *txn) error { return t.send(list) })
	return rowstore.Wrap(err, "send to queue %q", q.name)
}

const (
	// 1 pos 2 id 3 sent_at 4 size 5 headers 6 body
	sqlSendStream = "INSERT INTO semel_stream (pos, id, sent_at, size, headers, body) VALUES (?, ?, ?, ?, ?, ?)"
	// 1 pos 2 queue 3 waits 4 until 5 hold 6 grp 7 id 8 sent_at 9 size 10 headers 11 body
	sqlSendTimed = `INSERT INTO semel_timed (pos, queue, waits, until, hold, held, hand, count, grp, id, sent_at, size,
  headers, body) VALUES (?, ?, ?, ?, ?, 0, 0, 0, ?, ?, ?, ?, ?, ?)`
	sqlSendBody = "INSERT INTO semel_body (pos, body) VALUES (?, ?)"
	sqlGroupHas = "SELECT pos FROM semel_timed WHERE queue = ? AND grp = ? LIMIT 1"
)

// send accepts messages, each into the queue that it names.
func (t *txn) send(m []driver.Message) error {
	for i := range m {
		q, err := t.queue(m[i].Queue, true)
		if err != nil {
			return err
		}
		if err := t.accept(q, &m[i]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		t.wake(q)
	}
	return nil
}

func (t *txn) accept(q *queueRow, m *driver.Message) error {
	if err := driver.CheckHeaders(m.Headers); err != nil {
		return err
	}
	var headers any
	if h := rowqueue.PackHeaders(m.Headers); h != nil {
		headers = string(h)
	}
	id, sent := m.ID, m.SentAt
	if id == "" {
		id = driver.NewMessageID()
	}
	if sent.IsZero() {
		sent = t.now
	}
	if q.next > posMask {
		return errors.New("the queue has run out of positions")
	}
	pos := q.low() | q.next
	q.next++
	q.dirty = true
	body := bytesOrNull(m.Body)
	if len(m.Body) > inlineBody {
		if _, err := t.s.exec(sqlSendBody, pos, m.Body); err != nil {
			return err
		}
		body = nil
	}
	if m.Group == "" && m.Delay <= 0 {
		_, err := t.s.exec(sqlSendStream, pos, id, micro(sent), int64(len(m.Body)), headers, body)
		return err
	}
	waits, until := false, t.now
	if m.Delay > 0 {
		until = sent.Add(m.Delay)
	}
	var group any
	if m.Group != "" {
		group = m.Group
		var first int64
		var err error
		if waits, err = t.s.one([]*int64{&first}, sqlGroupHas, q.id, m.Group); err != nil {
			return err
		}
	}
	hold := max(until.Sub(t.now), 0).Microseconds()
	_, err := t.s.exec(sqlSendTimed, pos, q.id, flag(waits), micro(until), hold, group, id, micro(sent),
		int64(len(m.Body)), headers, body)
	return err
}

// Create makes the queue before its first message, so that [DB.Queues] lists it. It leaves an existing queue alone.
func (q *Queue) Create(ctx context.Context) error {
	err := q.db.write(ctx, 1, func(t *txn) error {
		_, err := t.queue(q.name, true)
		return err
	})
	return rowstore.Wrap(err, "create queue %q", q.name)
}
