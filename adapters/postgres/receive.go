package postgres

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semel-dev/semel/driver"

	"github.com/semel-dev/semel/driver/rowqueue"
)

const (
	// sqlReceive delivers messages. 1 queue name 2 max 3 visibility in microseconds 4, 5 behind which place of the index,
	// NULL = from its beginning 6 room for bodies 7 nonce
	sqlReceive = "SELECT * FROM semel_receive($1, $2, $3, $4, $5, $6, $7)"
)

// Receive returns up to limit messages, roughly the longest deliverable first. It blocks until there is one or ctx is done,
// and then returns ctx's error. It notices messages of other processes at once with notifications, else within
// Options.PollInterval.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	return q.db.wake.waiters.Receive(ctx, q.name, limit, q.take, q.db.wake.sleep)
}

// take returns what is deliverable now. If that is nothing, next is how long until there may be something by itself;
// negative: unknown.
func (q *Queue) take(ctx context.Context, limit int) (out []driver.Delivery, next time.Duration, err error) {
	if err := checkQueueName(q.name); err != nil {
		return nil, -1, err
	}
	linger, cancel := rowqueue.Linger(ctx)
	defer cancel()
	f := q.db.cursor(q.name)
	q.db.wake.shorten(q.name, f)
	t := taking{q: q, limit: limit, began: time.Now()}
	_, _ = rand.Read(t.nonce[:]) // it never fails
	t.at, t.pos = f.begin(q.db.history.now())
	if err := t.run(linger); err != nil {
		return nil, -1, err
	}
	return t.out, f.look(&t), nil
}

// taking is one look at the queue.
type taking struct {
	q     *Queue
	limit int
	began time.Time
	nonce [16]byte // of these deliveries
	// at and pos are the place to look behind, at nil = from the beginning; then that of the last message.
	at  *time.Time
	pos int64

	out []driver.Delivery
	// clock is the server's, started when that began. next is when there will be something by itself, nil = unknown.
	clock, started time.Time
	next           *time.Time
	last           place

	receipts []receipt // some at a time: one allocation for many
	cols     receiveRow
}

// receiveRow is a row of semel_receive. Bytes that are not kept are not copied.
type receiveRow struct {
	pos                pgtype.Int8
	due, sent          pgtype.Timestamptz
	count              pgtype.Int4
	id, group, headers pgtype.DriverBytes
	body               []byte
	dest               []any
}

func (t *taking) run(ctx context.Context) error {
	c := &t.cols
	c.dest = []any{&t.clock, &t.started, &c.pos, &c.due, &c.count, &c.sent, &c.id, &c.group, &c.headers, &c.body}
	err := t.q.db.once(ctx, func(p *pipeline) error {
		p.query("receive", t.rows, sqlReceive, t.q.name, t.limit, t.q.visible.Microseconds(), t.at, t.pos,
			t.q.db.o.ReceiveBytes, uuid(t.nonce))
		return nil
	})
	if err != nil {
		return err
	}
	t.q.db.history.heard(t.started)
	// The visibility began inside the statement, before the response.
	left := max(t.q.visible-time.Since(t.began), time.Nanosecond)
	for i := range t.out {
		t.out[i].Visible = left
	}
	return nil
}

// rows reads the rows of semel_receive.
func (t *taking) rows(rows pgx.Rows) error {
	c := &t.cols
	for rows.Next() {
		c.body = nil
		if err := rows.Scan(c.dest...); err != nil {
			return err
		}
		if !c.pos.Valid {
			if c.due.Valid {
				t.next = &c.due.Time
			}
			continue
		}
		if p := (place{c.due.Time, c.pos.Int64}); t.last.less(p) {
			t.last = p
		}
		if len(t.receipts) == 0 {
			t.receipts = make([]receipt, min(t.limit-len(t.out), 64))
		}
		rc := &t.receipts[0]
		t.receipts = t.receipts[1:]
		d := driver.Delivery{Receipt: rc, Count: int(c.count.Int32)}
		d.ID, d.Queue, d.Group, d.SentAt, d.Body = string(c.id), t.q.name, string(c.group), c.sent.Time, c.body
		rc.Of, rc.Pos, rc.count, rc.nonce, rc.Group = t.q.shared, c.pos.Int64, c.count.Int32, t.nonce, d.Group
		var err error
		if d.Headers, err = rowqueue.ReadHeaders(d.ID, c.headers); err != nil {
			return err
		}
		if t.out == nil {
			t.out = make([]driver.Delivery, 0, min(t.limit, 64))
		}
		t.out = append(t.out, d)
	}
	return nil
}
