package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"

	"github.com/semel-dev/semel/driver/rowqueue"
)

const (
	// sendBytes bounds the bodies of one statement: the server holds its arguments in memory, several times.
	sendBytes = 8 << 20
	// maxBody is the largest body. A value of PostgreSQL, and a message of its protocol, ends at 1 GiB.
	maxBody = 256 << 20
)

func (q table) Send(ctx context.Context, m []driver.Message) error {
	err := q.db.inQueues(ctx, func(p *pipeline) error {
		q.db.addLocks(p, nil, m)
		return q.db.addSends(ctx, p, func(i int) int { return i }, m)
	})
	if err == nil {
		q.db.signal(q.name)
	}
	return err
}

const (
	// sqlSend accepts messages of no group. Its arguments are arrays, an element for each message:
	// 1 queue, a place in 7 from 1 2 delay after sent_at in microseconds, 0 = none 3 sent_at, NULL = now 4 id 5 headers 6 body, then
	// 7 names of queues
	sqlSend = `INSERT INTO semel_message (queue, due_at, hold, sent_at, id, headers, body)
SELECT n.ids[s.queue], d.due, (extract(epoch FROM d.due - n.now) * 1000000)::bigint,
  coalesce(s.sent_at, n.now), s.id, s.headers, s.body
FROM (SELECT clock_timestamp() AS now, semel_queue_ids($7) AS ids OFFSET 0) n,
  unnest($1::int[], $2::bigint[], $3::timestamptz[], $4::bytea[], $5::bytea[], $6::bytea[])
    AS s(queue, delay, sent_at, id, headers, body),
  LATERAL (SELECT CASE s.delay WHEN 0 THEN n.now
    ELSE greatest(n.now, coalesce(s.sent_at, n.now) + s.delay * interval '1 microsecond') END AS due) d`
	// sqlSendOrdered accepts messages of groups, whose locks the transaction holds. The arguments of sqlSend, then
	// 8 group 9 true for the first of its group in this statement
	sqlSendOrdered = "SELECT semel_send($7, $1, $2, $3, $4, $5, $6, $8, $9)"
)

// addSends adds the statements that send messages, each to the queue that it names, to a pipeline inside a transaction.
// item maps a refused message to the work to blame. It may create queues first, in a transaction of its own. After the
// commit call [DB.signal] for the queues. The caller has added the locks of their groups.
func (db *DB) addSends(ctx context.Context, p *pipeline, item func(i int) int, m []driver.Message) error {
	var free, ordered sendRows
	for i := range m {
		if err := checkMessage(&m[i]); err != nil {
			return &driver.ItemError{Index: item(i), Err: fmt.Errorf("message %d: %w", i, err)}
		}
	}
	for i := range m {
		if err := db.queueMade(ctx, m[i].Queue); err != nil {
			return fmt.Errorf("queue %q: %w", m[i].Queue, err)
		}
		rows := &free
		if m[i].Group != "" {
			rows = &ordered
		}
		rows.add(p, &m[i])
	}
	free.flush(p)
	ordered.flush(p)
	return nil
}

// sendRows are messages on their way into one statement, as columns.
type sendRows struct {
	names                    []string
	queue                    int32s // places in names, from 1
	delay                    int64s
	sent                     stamps
	id, headers, body, group bytess
	first                    []bool
	seen                     map[groupName]bool
	bytes                    int
}

// groupName names an ordered group.
type groupName struct {
	queue, group string
}

// add appends a message. It flushes first what would get too much with it.
func (r *sendRows) add(p *pipeline, m *driver.Message) {
	id := m.ID
	if id == "" {
		id = driver.NewMessageID()
	}
	if r.bytes > 0 && r.bytes+len(m.Body) > sendBytes {
		r.flush(p)
	}
	r.bytes += len(m.Body)
	r.queue, r.id, r.headers = append(r.queue, r.place(m.Queue)), append(r.id, []byte(id)), append(r.headers, rowqueue.PackHeaders(m.Headers))
	r.delay, r.sent = append(r.delay, max(m.Delay, 0).Microseconds()), append(r.sent, m.SentAt)
	r.body = append(r.body, bytesOf(m.Body))
	if m.Group == "" {
		return
	}
	g := groupName{m.Queue, m.Group}
	r.group, r.first = append(r.group, []byte(m.Group)), append(r.first, !r.seen[g])
	if r.seen == nil {
		r.seen = map[groupName]bool{}
	}
	r.seen[g] = true
}

// place is the place of a queue in names, from 1.
func (r *sendRows) place(queue string) int32 {
	at := slices.Index(r.names, queue)
	if at < 0 {
		at = len(r.names)
		r.names = append(r.names, queue)
	}
	return int32(at) + 1
}

// flush adds the statement for what was gathered.
func (r *sendRows) flush(p *pipeline) {
	switch {
	case len(r.queue) == 0:
		return
	case len(r.group) == 0:
		p.exec("send", sqlSend, r.queue, r.delay, r.sent, r.id, r.headers, r.body, r.names)
	default:
		p.exec("send in order", sqlSendOrdered, r.queue, r.delay, r.sent, r.id, r.headers, r.body, r.names, r.group, r.first)
	}
	*r = sendRows{}
}

// checkMessage refuses what could not be stored exactly: two different headers would be read as one, and keys are made of
// headers.
func checkMessage(m *driver.Message) error {
	if m.Queue == "" {
		return errors.New("it names no queue")
	}
	if err := checkText("queue name", m.Queue); err != nil {
		return err
	}
	if len(m.Body) > maxBody {
		return fmt.Errorf("body of %d bytes: at most %d; keep it elsewhere and send where it is", len(m.Body), maxBody)
	}
	return driver.CheckHeaders(m.Headers)
}

// bytesOf keeps no bytes apart from NULL.
func bytesOf(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
