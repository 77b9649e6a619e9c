package sqlite

import (
	"context"
	"errors"
	"fmt"
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
	return &Queue{shared: rowqueue.New(rows{db}, name, &queueSQL, table{db, name}), db: db, name: name, visible: visible}
}

// Features describes the queue.
func (q *Queue) Features() driver.QueueFeatures {
	return driver.QueueFeatures{
		Name: q.name, Kind: "sqlite", MaxBatch: rowqueue.MaxBatch, Durable: true,
		Extends: true, Delays: true, DelaysSend: true, Counts: true, Orders: true, DeadLetters: true,
	}
}

// receipt is a delivery's handle, the driver.Delivery's Receipt.
type receipt struct {
	rowqueue.Receipt
	hand int64
	// run: the message was in semel_stream when it was delivered.
	run bool
	// long: its body is in semel_body.
	long bool
}

// table is what the queue of a name does itself. See [rowqueue.Own].
type table struct {
	db   *DB
	name string
}

func (q table) Send(ctx context.Context, m []driver.Message) error {
	return q.db.write(ctx, len(m), func(t *txn) error { return t.send(m) })
}

func (q table) Put(ctx context.Context, l *driver.DeadLetter) error {
	return q.db.write(ctx, 1, func(t *txn) error {
		row, err := t.queue(q.name, true)
		if err == nil && l != nil {
			err = t.putDeadLetter(row, l)
		}
		return err
	})
}

func (q table) Settle(ctx context.Context, s []*driver.Settlement) (out []driver.Outcome, err error) {
	err = q.db.write(ctx, len(s), func(t *txn) (err error) { out, err = t.settle(q.name, s); return err })
	return out, err
}

func (q table) Extend(ctx context.Context, visible time.Duration, receipts []any) (out []driver.Outcome, err error) {
	err = q.db.write(ctx, len(receipts), func(t *txn) (err error) { out, err = t.extendAll(q.name, visible, receipts); return err })
	return out, err
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
	body := rowstore.OrNull(m.Body)
	if len(m.Body) > inlineBody {
		if _, err := t.s.exec(sqlSendBody, pos, m.Body); err != nil {
			return err
		}
		body = nil
	}
	if m.Group == "" && m.Delay <= 0 {
		_, err := t.s.exec(sqlSendStream, pos, id, rowstore.Micro(sent), int64(len(m.Body)), headers, body)
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
	_, err := t.s.exec(sqlSendTimed, pos, q.id, rowstore.Flag(waits), rowstore.Micro(until), hold, group, id, rowstore.Micro(sent),
		int64(len(m.Body)), headers, body)
	return err
}
