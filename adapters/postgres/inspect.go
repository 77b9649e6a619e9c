package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// sqlStats counts one queue; it reads all messages of the database. 1 queue name
const sqlStats = `SELECT count(*) FILTER (WHERE flies), count(*) FILTER (WHERE NOT flies AND due_at > t), count(*),
  coalesce(extract(epoch FROM max(t) - min(sent_at)) * 1000000, 0)::bigint,
  (SELECT count(*) FROM semel_dead_letter WHERE queue = (SELECT id FROM semel_queue WHERE name = ?))
FROM (SELECT m.due_at, m.sent_at, n.t, coalesce(m.until > n.t, false) AS flies
  FROM semel_message m, (SELECT clock_timestamp() AS t OFFSET 0) n
  WHERE m.queue = (SELECT id FROM semel_queue WHERE name = ?)) x`

// Stats counts the messages of the queue. Followers of a group's head are visible as soon as they are due. It reads all
// messages of the database, so do not call it every second.
func (q *Queue) Stats(ctx context.Context) (s driver.QueueStats, err error) {
	err = rows{q.db}.Read(ctx, func(r rowstore.Row) error {
		s.InFlight, s.Delayed, s.DeadLetters = r.Int(0), r.Int(1), r.Int(4)
		s.Visible = r.Int(2) - s.InFlight - s.Delayed
		s.Oldest = max(time.Duration(r.Int(3))*time.Microsecond, 0)
		return nil
	}, sqlStats, rowstore.Name(q.name), rowstore.Name(q.name))
	return s, rowstore.Wrap(err, "count messages of queue %q", q.name)
}

// 1 queue name 2 limit
const sqlPeek = `SELECT id, grp, sent_at, headers, body, count FROM semel_message
  WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) ORDER BY pos LIMIT ?`

// Peek shows up to limit messages without receiving them, oldest first. They carry no receipt.
func (q *Queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit <= 0 {
		return nil, nil
	}
	return rowstore.Peek(ctx, rows{q.db}, q.name, sqlPeek, rowstore.Name(q.name), int64(limit))
}

// purgeStep bounds what one transaction of Purge removes.
const purgeStep = 2000

const (
	sqlPurgeEnd = "SELECT coalesce(max(pos), 0) FROM semel_message"
	// 1 queue name 2 after position 3 last position 4 limit
	sqlPurgeList = `SELECT pos, grp FROM semel_message
  WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) AND pos > ? AND pos <= ? ORDER BY pos LIMIT ?`
	// 1 positions
	sqlPurge = "DELETE FROM semel_message WHERE pos = ANY($1)"
)

// Purge removes every message that was sent before the call, but no dead letters. Receipts of messages in flight become
// invalid. It works in short transactions.
func (q *Queue) Purge(ctx context.Context) (removed int64, err error) {
	end := int64(0)
	err = rows{q.db}.Read(ctx, func(r rowstore.Row) error { end = r.Int(0); return nil }, sqlPurgeEnd)
	for after := int64(0); err == nil && after < end; {
		var n int64
		n, after, err = q.purge(ctx, after, end)
		removed += n
	}
	return removed, rowstore.Wrap(err, "purge queue %q", q.name)
}

// purge removes up to purgeStep messages behind a position and returns the position of the last one.
func (q *Queue) purge(ctx context.Context, after, end int64) (removed, last int64, err error) {
	var list int64s
	var ms []driver.Message // for their groups
	err = rows{q.db}.Read(ctx, func(r rowstore.Row) error {
		list, ms = append(list, r.Int(0)), append(ms, driver.Message{Queue: q.name, Group: r.Text(1)})
		return nil
	}, sqlPurgeList, rowstore.Name(q.name), after, end, int64(purgeStep))
	if err != nil || len(list) == 0 {
		return 0, end, err
	}
	var groups []string
	for i := range ms {
		if ms[i].Group != "" {
			groups = append(groups, ms[i].Group)
		}
	}
	p := &pipeline{}
	p.exec("begin", sqlBegin)
	q.db.addLocks(p, nil, ms)
	p.add(step{what: "purge", item: -1, tag: func(tag pgconn.CommandTag) error { removed = tag.RowsAffected(); return nil }},
		sqlPurge, list)
	// Messages of these groups that were sent after the call began go on.
	p.exec("next of groups", sqlRemove, int64s{}, int32s{}, uuids{}, q.name, distinct(groups))
	p.commit()
	err = q.db.with(ctx, func(c *pgxpool.Conn) error { return p.run(ctx, c) })
	if len(groups) > 0 {
		q.db.signal(q.name)
	}
	return removed, list[len(list)-1], err
}

const (
	sqlDeadLetters = rowstore.SelectDeadLetters + "WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) ORDER BY seq"
	sqlDeadLetter  = rowstore.SelectDeadLetters + "WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) AND id = ?"
	// 1 queue name, then the columns
	sqlDeadLetterInsert = "INSERT INTO semel_dead_letter (queue, dead_at, " + rowstore.DeadLetterColumns + `)
  VALUES ((semel_queue_ids(ARRAY[?::text]))[1], clock_timestamp(), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (queue, id) DO NOTHING`
)

// DeadLetterQueue returns the place for the dead letters of another queue: the queue of that name in this database.
func (s *Store) DeadLetterQueue(queue string) driver.DeadLetterQueue { return s.db.Queue(queue) }

// addDeadLetter adds the statement that writes a dead letter once per id. It fails (codeQueue) when the queue does not
// exist, see queueMade.
func (q *Queue) addDeadLetter(p *pipeline, l *driver.DeadLetter) {
	args := append(columns(append([]any{rowstore.Name(q.name)}, rowstore.DeadLetterValues(l)...)), bytesOf(l.Message.Body))
	p.exec("write a dead letter", numbered(sqlDeadLetterInsert), args...)
}

// deleteDeadLetter adds the statement that removes one.
func (q *Queue) deleteDeadLetter(p *pipeline, id string) {
	p.exec("delete a dead letter", numbered(rowstore.DeleteDeadLetter), q.name, id)
}

// checkDeadLetter refuses what the columns of a dead letter cannot hold.
func checkDeadLetter(l *driver.DeadLetter) error {
	for _, c := range []struct{ what, s string }{
		{"dead letter id", l.ID}, {"dead letter kind", string(l.Kind)}, {"dead letter's queue", l.Message.Queue},
	} {
		if err := checkText(c.what, c.s); err != nil {
			return err
		}
	}
	return nil
}

// DeadLetters lists up to limit dead letters (0 = all), oldest first.
func (q *Queue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	return rowstore.DeadLetters(ctx, rows{q.db}, limit, sqlDeadLetters, rowstore.Name(q.name))
}

// DeadLetter returns one dead letter; ok is false when there is none.
func (q *Queue) DeadLetter(ctx context.Context, id string) (l driver.DeadLetter, ok bool, err error) {
	if !isText(id) {
		return l, false, nil
	}
	return rowstore.DeadLetter(ctx, rows{q.db}, sqlDeadLetter, rowstore.Name(q.name), rowstore.Name(id))
}

// PutDeadLetter writes a dead letter without a delivery. Each id is written once.
func (q *Queue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("put dead letter: it has no ID")
	}
	err := checkDeadLetter(&l)
	if err == nil {
		err = q.db.inQueues(ctx, func(p *pipeline) error {
			q.addDeadLetter(p, &l)
			return q.db.queueMade(ctx, q.name)
		})
	}
	return rowstore.Wrap(err, "put dead letter %s", l.ID)
}

// DeleteDeadLetter removes a dead letter, if it exists.
func (q *Queue) DeleteDeadLetter(ctx context.Context, id string) error {
	if !isText(id) {
		return nil // no dead letter has it
	}
	err := q.db.once(ctx, func(p *pipeline) error { q.deleteDeadLetter(p, id); return nil })
	return rowstore.Wrap(err, "delete dead letter %s", id)
}
