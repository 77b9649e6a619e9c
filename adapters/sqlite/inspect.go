package sqlite

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// sqlStats counts one queue (see rowqueue.Stats). 1 name 2 now
const sqlStats = `WITH q AS (SELECT id, id << 44 AS low, id << 44 | 17592186044415 AS high, taken FROM semel_queue WHERE name = ?1)
SELECT
  (SELECT count(*) FROM semel_stream, q WHERE pos > low + taken AND pos <= high) +
    (SELECT coalesce(sum(rest), 0) FROM semel_flight, q WHERE hand BETWEEN low AND high AND until <= ?2) +
    (SELECT count(*) FROM semel_timed t, q WHERE t.queue = q.id AND until <= ?2),
  (SELECT coalesce(sum(rest), 0) FROM semel_flight, q WHERE hand BETWEEN low AND high AND until > ?2) +
    (SELECT count(*) FROM semel_timed t, q WHERE t.queue = q.id AND until > ?2 AND held = 1),
  (SELECT count(*) FROM semel_timed t, q WHERE t.queue = q.id AND until > ?2 AND held = 0),
  (SELECT count(*) FROM semel_dead_letter l, q WHERE l.queue = q.id),
  ?2 - min(coalesce((SELECT sent_at FROM semel_stream, q WHERE pos BETWEEN low AND high ORDER BY pos LIMIT 1), ?2),
    coalesce((SELECT min(sent_at) FROM semel_timed t, q WHERE t.queue = q.id), ?2))`

// Stats counts the messages of the queue. Followers of a group's head are visible as soon as they are due.
func (q *Queue) Stats(ctx context.Context) (driver.QueueStats, error) {
	return rowqueue.Stats(ctx, rows{q.db}, q.name, sqlStats, q.name, q.db.now().UnixMicro())
}

// sqlCount counts up to a number of messages of each table (see rowqueue.Count). 1 name 2 now 3 limit
const sqlCount = `WITH q AS (SELECT id, id << 44 AS low, id << 44 | 17592186044415 AS high, taken FROM semel_queue WHERE name = ?1),
  m (state, n, sent_at) AS (
    SELECT * FROM (SELECT 0, 1, sent_at FROM semel_stream, q WHERE pos > low + taken AND pos <= high ORDER BY pos LIMIT ?3)
    UNION ALL SELECT until > ?2, rest, ?2 FROM semel_flight, q WHERE hand BETWEEN low AND high
    UNION ALL SELECT * FROM (SELECT 0, 0, sent_at FROM semel_stream, q WHERE pos BETWEEN low AND high ORDER BY pos LIMIT 1)
    UNION ALL SELECT * FROM (SELECT CASE WHEN until <= ?2 THEN 0 WHEN held = 1 THEN 1 ELSE 2 END, 1, sent_at
      FROM semel_timed, q WHERE pos BETWEEN low AND high ORDER BY pos LIMIT ?3))
SELECT state, sum(n), ?2 - min(sent_at) FROM m GROUP BY state`

// CountMessages counts the messages of the queue up to a limit. See [driver.QueueCounter].
func (q *Queue) CountMessages(ctx context.Context, most int) (driver.QueueStats, error) {
	return rowqueue.Count(ctx, rows{q.db}, q.name, most, sqlCount, q.name, q.db.now().UnixMicro(), int64(most))
}

// queueSQL are the queries of package rowqueue. Peek reads both tables in the order of sending. Dead letters are listed in the
// order of writing: sorting would hold all bodies in memory.
var queueSQL = rowqueue.SQL{
	Peek: `WITH q AS (SELECT id, id << 44 AS low, id << 44 | 17592186044415 AS high FROM semel_queue WHERE name = ?1),
  m AS (
    SELECT * FROM (SELECT pos, id, sent_at, headers, body, size, NULL AS grp,
        EXISTS (SELECT 1 FROM semel_flight f WHERE s.pos BETWEEN f.first AND f.last) AS count
      FROM semel_stream s WHERE pos BETWEEN (SELECT low FROM q) AND (SELECT high FROM q) ORDER BY pos LIMIT ?2)
    UNION ALL
    SELECT * FROM (SELECT pos, id, sent_at, headers, body, size, grp, count
      FROM semel_timed t WHERE pos BETWEEN (SELECT low FROM q) AND (SELECT high FROM q) ORDER BY pos LIMIT ?2))
  SELECT m.id, m.grp, m.sent_at, m.headers, coalesce(m.body, b.body), m.count FROM m
  LEFT JOIN semel_body b ON b.pos = m.pos ORDER BY m.pos LIMIT ?2`,
	DeadLetters: rowqueue.SelectDeadLetters + "WHERE +queue = (SELECT id FROM semel_queue WHERE name = ?) ORDER BY seq",
}

// purgeStep bounds what one transaction of Purge removes.
const purgeStep = 2000

const (
	sqlPurgeStream = `DELETE FROM semel_stream WHERE pos IN
  (SELECT pos FROM semel_stream WHERE pos BETWEEN ? AND ? ORDER BY pos LIMIT ?)`
	sqlPurgeTimed = `DELETE FROM semel_timed WHERE pos IN
  (SELECT pos FROM semel_timed WHERE pos BETWEEN ? AND ? ORDER BY pos LIMIT ?)`
	sqlPurgeFlights = "DELETE FROM semel_flight WHERE hand BETWEEN ? AND ? AND last <= ?"
)

// Purge removes every message that was sent before the call, but no dead letters. Receipts of messages in flight become
// invalid. It works in short transactions.
func (q *Queue) Purge(ctx context.Context) (removed int64, err error) {
	end := int64(0)
	for {
		var n int64
		err := q.db.write(ctx, purgeStep, func(t *txn) (err error) {
			row, err := t.queue(q.name, false)
			if row == nil || err != nil {
				n = 0
				return err
			}
			if end == 0 {
				end = row.low() | (row.next - 1)
			}
			n, err = t.purge(row, end)
			return err
		})
		if err != nil {
			return removed, fmt.Errorf("purge queue %q: %w", q.name, err)
		}
		removed += n
		if n == 0 {
			return removed, nil
		}
	}
}

// purge removes up to purgeStep messages from each table. When none is left it removes their bodies and flights.
func (t *txn) purge(row *queueRow, end int64) (int64, error) {
	timed, err := t.s.exec(sqlPurgeTimed, row.low(), end, int64(purgeStep))
	if err != nil {
		return 0, err
	}
	stream, err := t.s.exec(sqlPurgeStream, row.low(), end, int64(purgeStep))
	if err != nil {
		return 0, err
	}
	if timed+stream > 0 {
		return timed + stream, nil
	}
	if _, err := t.s.exec(sqlBodyDelete, row.low(), end); err != nil {
		return 0, err
	}
	if _, err := t.s.exec(sqlPurgeFlights, row.low(), row.high(), end); err != nil {
		return 0, err
	}
	// Followers that were sent after the call began, whose head was removed.
	_, err = t.s.exec(`UPDATE semel_timed SET waits = 0 WHERE queue = ? AND waits = 1 AND pos =
  (SELECT min(pos) FROM semel_timed g WHERE g.queue = semel_timed.queue AND g.grp = semel_timed.grp)`, row.id)
	t.wake(row)
	return 0, err
}

// sqlDeadLetterInsert writes a dead letter once. 1 queue 2 dead_at, then the columns
const sqlDeadLetterInsert = "INSERT INTO semel_dead_letter (queue, dead_at, " + rowqueue.DeadLetterColumns + `)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, id) DO NOTHING`

// DeadLetterQueue returns the place for the dead letters of another queue: the queue of that name in this database.
func (s *Store) DeadLetterQueue(queue string) driver.DeadLetterQueue { return s.db.Queue(queue) }

// putDeadLetter writes a dead letter unless its id is there already.
func (t *txn) putDeadLetter(row *queueRow, l *driver.DeadLetter) error {
	args := append(columns(append([]any{row.id, t.now}, rowqueue.DeadLetterValues(l)...)), rowstore.OrNull(l.Message.Body))
	_, err := t.s.exec(sqlDeadLetterInsert, args...)
	return err
}
