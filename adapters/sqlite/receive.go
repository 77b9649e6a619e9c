package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

const (
	sqlFlightsOver  = "SELECT hand, first, last, until, hold FROM semel_flight WHERE hand >= ? AND hand <= ? AND until <= ?"
	sqlFlightDelete = "DELETE FROM semel_flight WHERE hand = ?"
	// 1 hand 2 first 3 last 4 rest 5 until 6 hold
	sqlFlightInsert = "INSERT INTO semel_flight (hand, first, last, rest, parted, until, hold) VALUES (?, ?, ?, ?, 0, ?, ?)"

	// sqlToTimed moves messages that were delivered once from semel_stream. 1 queue 2 until 3 hold 4 held 5 hand 6 first 7
	// last
	sqlToTimed = `INSERT INTO semel_timed (pos, queue, waits, until, hold, held, hand, count, grp, id, sent_at, size,
  headers, body)
  SELECT pos, ?, 0, ?, ?, ?, ?, 1, NULL, id, sent_at, size, headers, body FROM semel_stream WHERE pos BETWEEN ? AND ?`
	sqlStreamDelete = "DELETE FROM semel_stream WHERE pos BETWEEN ? AND ?"

	// The columns of Row.Message, then those of candidate.
	sqlTakeTimed = `SELECT id, grp, sent_at, headers, body, pos, size, count, until FROM semel_timed INDEXED BY semel_timed_due
  WHERE queue = ? AND waits = 0 AND until <= ? ORDER BY until LIMIT ?`
	sqlTakeStream = `SELECT id, NULL, sent_at, headers, body, pos, size, 0, sent_at FROM semel_stream WHERE pos > ? AND pos <= ?
  ORDER BY pos LIMIT ?`
	// 1 until 2 hold 3 hand 4 pos
	sqlHandTimed = "UPDATE semel_timed SET until = ?, hold = ?, held = 1, hand = ?, count = count + 1 WHERE pos = ?"
	sqlBody      = "SELECT body FROM semel_body WHERE pos = ?"
)

// errStop ends the reading of rows early.
var errStop = errors.New("stop")

// Receive returns up to limit messages, roughly the longest deliverable first. It blocks until there is one or ctx is done,
// and then returns ctx's error. It notices writes of other processes within Options.PollInterval.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	take := func(ctx context.Context, limit int) ([]driver.Delivery, time.Duration, error) {
		out, err := q.take(ctx, limit)
		return out, 0, err
	}
	return q.db.watch.waiters.Receive(ctx, q.name, limit, take, q.db.watch.sleep)
}

// take returns what is deliverable now.
func (q *Queue) take(ctx context.Context, limit int) (out []driver.Delivery, err error) {
	var until time.Time
	err = q.db.write(ctx, limit, func(t *txn) (err error) {
		until = t.now.Add(q.visible)
		out, err = t.receive(q, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	// The visibility began inside the transaction, before the commit.
	left := min(q.visible, max(until.Sub(q.db.now()), time.Nanosecond))
	for i := range out {
		out[i].Visible = left
	}
	return out, nil
}

// receive hands out messages inside the transaction.
func (t *txn) receive(q *Queue, limit int) ([]driver.Delivery, error) {
	row, err := t.queue(q.name, false)
	if row == nil || err != nil {
		return nil, err
	}
	if err := t.load(); err != nil { // a clock that stepped back is noticed here
		return nil, err
	}
	if err := t.landFlights(row, limit); err != nil {
		return nil, err
	}
	h := &handing{t: t, q: q, row: row, limit: limit}
	timed, err := h.timed()
	if err != nil {
		return nil, err
	}
	stream, err := h.stream()
	if err != nil {
		return nil, err
	}
	return h.merge(timed, stream)
}

// landFlights ends runs whose visibility has expired. Their messages move to semel_timed, due in the past. Receipts stay
// valid until the messages are delivered again.
func (t *txn) landFlights(row *queueRow, enough int) error {
	type landing struct{ hand, first, last, until, hold int64 }
	var over []landing
	err := t.s.query(func(v rowstore.Row) error {
		over = append(over, landing{v.Int(0), v.Int(1), v.Int(2), v.Int(3), v.Int(4)})
		return nil
	}, sqlFlightsOver, row.low(), row.high(), t.micros())
	if err != nil {
		return err
	}
	moved := int64(0)
	for _, f := range over {
		if moved >= int64(enough) {
			return nil // the next Receive continues
		}
		n, err := t.s.exec(sqlToTimed, row.id, f.until, f.hold, int64(1), f.hand, f.first, f.last)
		if err != nil {
			return err
		}
		if _, err := t.s.exec(sqlStreamDelete, f.first, f.last); err != nil {
			return err
		}
		if _, err := t.s.exec(sqlFlightDelete, f.hand); err != nil {
			return err
		}
		moved += n
	}
	return nil
}

// handing is one hand-out.
type handing struct {
	t     *txn
	q     *Queue
	row   *queueRow
	limit int
}

// candidate is a message that may be handed out.
type candidate struct {
	driver.Delivery
	pos, since, size int64
	inline           bool
}

func (h *handing) timed() ([]candidate, error) {
	var out []candidate
	err := h.t.s.query(func(v rowstore.Row) error {
		c, err := h.candidate(v)
		out = append(out, c)
		return err
	}, sqlTakeTimed, h.row.id, h.t.micros(), int64(h.limit))
	return out, err
}

func (h *handing) stream() ([]candidate, error) {
	out := make([]candidate, 0, min(h.limit, 128))
	bytes := int64(0)
	err := h.t.s.query(func(v rowstore.Row) error {
		c, err := h.candidate(v)
		if err != nil {
			return err
		}
		if bytes += c.size; bytes > h.q.db.o.ReceiveBytes && len(out) > 0 {
			return errStop
		}
		out = append(out, c)
		return nil
	}, sqlTakeStream, h.row.low()|h.row.taken, h.row.high(), int64(h.limit))
	if err != nil && !errors.Is(err, errStop) {
		return nil, err
	}
	return out, nil
}

func (h *handing) candidate(v rowstore.Row) (c candidate, err error) {
	c.Message, err = rowqueue.Message(v, 0, h.q.name)
	c.pos, c.size, c.Count, c.since = v.Int(5), v.Int(6), int(v.Int(7))+1, v.Int(8)
	c.inline = c.size <= inlineBody
	return c, err
}

// merge delivers the candidates, the longest deliverable first.
func (h *handing) merge(timed, stream []candidate) ([]driver.Delivery, error) {
	n := min(len(timed)+len(stream), h.limit)
	if n == 0 {
		return nil, nil
	}
	out := make([]driver.Delivery, 0, n)
	receipts := make([]receipt, n) // one allocation for all of them
	until, hold := rowstore.Micro(h.t.now.Add(h.q.visible)), h.q.visible.Microseconds()
	bytes, run := int64(0), 0
	hand := h.row.handNumber()
	for len(out) < n {
		first := len(timed) > 0 && (run == len(stream) || timed[0].since <= stream[run].since)
		var c *candidate
		if first {
			c = &timed[0]
		} else {
			c = &stream[run]
		}
		if bytes += c.size; bytes > h.q.db.o.ReceiveBytes && len(out) > 0 {
			break
		}
		if first {
			timed = timed[1:]
			if _, err := h.t.s.exec(sqlHandTimed, until, hold, hand, c.pos); err != nil {
				return nil, err
			}
		} else {
			run++
		}
		if err := h.load(c); err != nil {
			return nil, err
		}
		rc := &receipts[len(out)]
		rc.Of, rc.Pos, rc.hand, rc.run, rc.long = h.q.shared, c.pos, hand, !first, !c.inline
		c.Receipt = rc
		out = append(out, c.Delivery)
	}
	if run > 0 {
		first, last := stream[0].pos, stream[run-1].pos
		if _, err := h.t.s.exec(sqlFlightInsert, hand, first, last, int64(run), until, hold); err != nil {
			return nil, err
		}
		h.row.taken = last & posMask
	}
	return out, nil
}

// load reads a body that is not in the message's row.
func (h *handing) load(c *candidate) error {
	if c.inline {
		return nil
	}
	return h.t.s.query(func(v rowstore.Row) error { c.Body = v.Bytes(0); return nil }, sqlBody, c.pos)
}
