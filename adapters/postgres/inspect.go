package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"

	"github.com/semel-dev/semel/driver/rowqueue"
)

// sqlStats counts one queue (see rowqueue.Stats); it reads all messages of the database. 1, 2 queue name
const sqlStats = `SELECT count(*) FILTER (WHERE NOT flies AND due_at <= t), count(*) FILTER (WHERE flies),
  count(*) FILTER (WHERE NOT flies AND due_at > t),
  (SELECT count(*) FROM semel_dead_letter WHERE queue = (SELECT id FROM semel_queue WHERE name = ?)),
  coalesce(extract(epoch FROM max(t) - min(sent_at)) * 1000000, 0)::bigint
FROM (SELECT m.due_at, m.sent_at, n.t, coalesce(m.until > n.t, false) AS flies
  FROM semel_message m, (SELECT clock_timestamp() AS t OFFSET 0) n
  WHERE m.queue = (SELECT id FROM semel_queue WHERE name = ?)) x`

// Stats counts the messages of the queue. Followers of a group's head are visible as soon as they are due. It reads all
// messages of the database, so do not call it every second.
func (q *Queue) Stats(ctx context.Context) (driver.QueueStats, error) {
	return rowqueue.Stats(ctx, rows{q.db}, q.name, sqlStats, rowstore.Name(q.name), rowstore.Name(q.name))
}

// sqlCount counts up to a number of messages that are due first, and of the waiting ones of groups (see rowqueue.Count).
// 1, 3 queue name 2, 4 limit
const sqlCount = `SELECT state, count(*), (extract(epoch FROM max(t - sent_at)) * 1000000)::bigint FROM (
  SELECT CASE WHEN m.until > n.t THEN 1 WHEN m.due_at > n.t THEN 2 ELSE 0 END AS state, m.sent_at, n.t
  FROM (SELECT clock_timestamp() AS t OFFSET 0) n, (
    (SELECT due_at, until, sent_at FROM semel_message
      WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) AND NOT waits ORDER BY due_at, pos LIMIT ?)
    UNION ALL
    SELECT due_at, until, sent_at FROM (SELECT due_at, until, sent_at, waits FROM semel_message
      WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) AND grp IS NOT NULL ORDER BY grp, pos LIMIT ?) g WHERE waits) m) x
GROUP BY state`

// CountMessages counts the messages of the queue up to a limit. See [driver.QueueCounter].
func (q *Queue) CountMessages(ctx context.Context, most int) (driver.QueueStats, error) {
	name := rowstore.Name(q.name)
	return rowqueue.Count(ctx, rows{q.db}, q.name, most, sqlCount, name, int64(most), name, int64(most))
}

// queueSQL are the queries of package rowqueue.
var queueSQL = rowqueue.SQL{
	Peek: `SELECT id, grp, sent_at, headers, body, count FROM semel_message
  WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) ORDER BY pos LIMIT ?`,
	DeadLetters: rowqueue.SelectDeadLetters + "WHERE queue = (SELECT id FROM semel_queue WHERE name = ?) ORDER BY seq",
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
	var groups []string
	err = rows{q.db}.Read(ctx, func(r rowstore.Row) error {
		if list = append(list, r.Int(0)); r.Text(1) != "" {
			groups = append(groups, r.Text(1))
		}
		return nil
	}, sqlPurgeList, rowstore.Name(q.name), after, end, int64(purgeStep))
	if err != nil || len(list) == 0 {
		return 0, end, err
	}
	ms := make([]driver.Message, len(groups)) // for their groups
	for i := range ms {
		ms[i] = driver.Message{Queue: q.name, Group: groups[i]}
	}
	err = q.db.once(ctx, func(p *pipeline) error {
		q.db.addLocks(p, nil, ms)
		p.add(step{what: "purge", item: -1, tag: func(tag pgconn.CommandTag) error { removed = tag.RowsAffected(); return nil }},
			sqlPurge, list)
		// Messages of these groups that were sent after the call began go on.
		p.exec("next of groups", sqlRemove, int64s{}, int32s{}, uuids{}, q.name, distinct(groups))
		return nil
	})
	if len(groups) > 0 {
		q.db.signal(q.name)
	}
	return removed, list[len(list)-1], err
}

// sqlDeadLetterInsert writes a dead letter once. 1 queue name, then the columns
const sqlDeadLetterInsert = "INSERT INTO semel_dead_letter (queue, dead_at, " + rowqueue.DeadLetterColumns + `)
  VALUES ((semel_queue_ids(ARRAY[?::text]))[1], clock_timestamp(), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (queue, id) DO NOTHING`

// DeadLetterQueue returns the place for the dead letters of another queue: the queue of that name in this database.
func (s *Store) DeadLetterQueue(queue string) driver.DeadLetterQueue { return s.db.Queue(queue) }

// addDeadLetter adds the statement that writes a dead letter once per id. It fails (codeQueue) when the queue does not
// exist, see queueMade.
func addDeadLetter(p *pipeline, queue string, l *driver.DeadLetter) {
	args := append(columns(append([]any{rowstore.Name(queue)}, rowqueue.DeadLetterValues(l)...)), bytesOf(l.Message.Body))
	p.exec("write a dead letter", numbered(sqlDeadLetterInsert), args...)
}

// checkDeadLetter refuses what the columns of a dead letter cannot hold.
func checkDeadLetter(l *driver.DeadLetter) error {
	return cmp.Or(checkText("dead letter id", l.ID), checkText("dead letter kind", string(l.Kind)),
		checkText("dead letter's queue", l.Message.Queue))
}
