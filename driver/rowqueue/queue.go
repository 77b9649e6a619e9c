// Package rowqueue is what queues share that keep their messages as rows of a database: receipts and their checks,
// dead letters, peeks, blocked receivers. The database has the tables semel_queue and semel_dead_letter, with the columns that
// adapters/sqlite/schema describes, and the operations of package rowstore, whose DB is comparable. An adapter's queue embeds
// [Queue], and writes Receive, Purge, Stats and what [Own] lists.
package rowqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Queue is what an adapter's queue takes from this package. Make it with [New].
type Queue struct {
	db   rowstore.DB
	name string
	sql  *SQL
	own  Own
}

// SQL are an adapter's queries. The first parameter is the name of the queue.
type SQL struct {
	// Peek lists messages: the columns of [Message], then the delivery count. The second parameter is a limit.
	Peek string
	// DeadLetters lists dead letters, the oldest first. It begins with SelectDeadLetters, and has no limit.
	DeadLetters string
}

// New returns what a queue shares with others.
func New(db rowstore.DB, name string, sql *SQL, own Own) *Queue { return &Queue{db, name, sql, own} }

// Wrap adds to an error what a queue did; nil stays nil, and costs nothing.
func Wrap(err error, what, queue string) error {
	if err != nil {
		return fmt.Errorf("%s queue %q: %w", what, queue, err)
	}
	return nil
}

// Named returns copies of messages that name the queue.
func Named(queue string, m []driver.Message) []driver.Message {
	list := slices.Clone(m)
	for i := range list {
		list[i].Queue = queue
	}
	return list
}

// PackHeaders returns headers as they are stored, nil when there are none.
func PackHeaders(h map[string]string) []byte {
	if len(h) == 0 {
		return nil
	}
	b, _ := json.Marshal(h) // strings always marshal
	return b
}

// ReadHeaders reads what PackHeaders wrote.
func ReadHeaders(id string, b []byte) (h map[string]string, err error) {
	if len(b) > 0 {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		err = fmt.Errorf("message %q: read headers: %w", id, err)
	}
	return h, err
}

// Message reads the columns id, grp, sent_at, headers and body, of which i is the first.
func Message(r rowstore.Row, i int, queue string) (m driver.Message, err error) {
	m = driver.Message{ID: r.Text(i), Queue: queue, Group: r.Text(i + 1), SentAt: r.Time(i + 2), Body: r.Bytes(i + 4)}
	m.Headers, err = ReadHeaders(m.ID, []byte(r.Text(i+3)))
	return m, err
}

// Peek shows up to limit messages without receiving them, oldest first. They carry no receipt.
func (q *Queue) Peek(ctx context.Context, limit int) (out []driver.Delivery, err error) {
	if limit <= 0 {
		return nil, nil
	}
	err = q.db.Read(ctx, func(r rowstore.Row) error {
		m, err := Message(r, 0, q.name)
		out = append(out, driver.Delivery{Message: m, Count: int(r.Int(5))})
		return err
	}, q.sql.Peek, rowstore.Name(q.name), int64(limit))
	return out, Wrap(err, "peek into", q.name)
}

// Stats runs a query for the numbers of messages that are visible, in flight and delayed, the number of dead letters, and
// the age of the oldest message in microseconds.
func Stats(ctx context.Context, db rowstore.DB, queue, sql string, args ...any) (s driver.QueueStats, err error) {
	err = db.Read(ctx, func(r rowstore.Row) error {
		s.Visible, s.InFlight, s.Delayed, s.DeadLetters = r.Int(0), r.Int(1), r.Int(2), r.Int(3)
		s.Oldest = max(time.Duration(r.Int(4))*time.Microsecond, 0)
		return nil
	}, sql, args...)
	return s, Wrap(err, "count messages of", queue)
}

// Count runs a query for the states of up to most messages (0 visible, 1 in flight, 2 delayed), how many are in each, and the age
// of the oldest in microseconds. See [driver.QueueCounter].
func Count(ctx context.Context, db rowstore.DB, queue string, most int, sql string, args ...any) (s driver.QueueStats, err error) {
	err = db.Read(ctx, func(r rowstore.Row) error {
		*[]*int64{&s.Visible, &s.InFlight, &s.Delayed}[r.Int(0)] += r.Int(1)
		s.Oldest = max(s.Oldest, time.Duration(r.Int(2))*time.Microsecond)
		return nil
	}, sql, args...)
	s.AtLeast = s.Visible+s.InFlight+s.Delayed >= int64(most)
	return s, Wrap(err, "count messages of", queue)
}

// List lists the names of the queues, sorted by byte.
func List(ctx context.Context, db rowstore.DB) (out []string, err error) {
	err = db.Read(ctx, func(r rowstore.Row) error { out = append(out, r.Text(0)); return nil }, "SELECT name FROM semel_queue")
	slices.Sort(out)
	return out, rowstore.Wrap(err, "list queues")
}
