package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
)

// sqlStats counts one queue; it reads all messages of the database. 1 queue name
const sqlStats = `SELECT count(*) FILTER (WHERE flies), count(*) FILTER (WHERE NOT flies AND due_at > t), count(*),
  coalesce(extract(epoch FROM max(t) - min(sent_at)), 0)::float8,
  (SELECT count(*) FROM semel_dead_letter WHERE queue = (SELECT id FROM semel_queue WHERE name = $1))
FROM (SELECT m.due_at, m.sent_at, n.t, coalesce(m.until > n.t, false) AS flies
  FROM semel_message m, (SELECT clock_timestamp() AS t OFFSET 0) n
  WHERE m.queue = (SELECT id FROM semel_queue WHERE name = $1)) x`

// Stats counts what the queue holds. Followers of a group's head are visible as soon as they are due. It reads all
// messages of the database: not for every second.
func (q *Queue) Stats(ctx context.Context) (s driver.QueueStats, err error) {
	err = q.db.read(ctx, func(row scanner) error {
		var all int64
		var age float64
		err := row.Scan(&s.InFlight, &s.Delayed, &all, &age, &s.DeadLetters)
		s.Visible = all - s.InFlight - s.Delayed
		s.Oldest = max(time.Duration(age*float64(time.Second)), 0)
		return err
	}, sqlStats, q.name)
	if err != nil {
		return s, fmt.Errorf("count messages of queue %q: %w", q.name, err)
	}
	return s, nil
}

// 1 queue name 2 limit
const sqlPeek = `SELECT id, sent_at, grp, headers, body, count FROM semel_message
  WHERE queue = (SELECT id FROM semel_queue WHERE name = $1) ORDER BY pos LIMIT $2`

// Peek shows up to limit messages without receiving them, oldest first. They carry no receipt.
func (q *Queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit <= 0 {
		return nil, nil
	}
	var out []driver.Delivery
	err := q.db.read(ctx, func(row scanner) error {
		var id, group, headers []byte
		d := driver.Delivery{}
		if err := row.Scan(&id, &d.SentAt, &group, &headers, &d.Body, &d.Count); err != nil {
			return err
		}
		d.ID, d.Queue, d.Group = string(id), q.name, string(group)
		var err error
		if d.Headers, err = readHeaders(headers); err != nil {
			return fmt.Errorf("message %q: %w", d.ID, err)
		}
		out = append(out, d)
		return nil
	}, sqlPeek, q.name, limit)
	if err != nil {
		return nil, fmt.Errorf("peek into queue %q: %w", q.name, err)
	}
	return out, nil
}

// purgeStep bounds what one transaction of Purge removes.
const purgeStep = 2000

const (
	sqlPurgeEnd = "SELECT coalesce(max(pos), 0) FROM semel_message"
	// 1 queue name 2 after position 3 last position 4 limit
	sqlPurgeList = `SELECT pos, grp FROM semel_message
  WHERE queue = (SELECT id FROM semel_queue WHERE name = $1) AND pos > $2 AND pos <= $3 ORDER BY pos LIMIT $4`
	// 1 positions
	sqlPurge = "DELETE FROM semel_message WHERE pos = ANY($1)"
)

// Purge removes every message that is not a dead letter and was sent before the call, those in flight too: their receipts are
// lost. It works in short transactions.
func (q *Queue) Purge(ctx context.Context) (removed int64, err error) {
	end := int64(0)
	err = q.db.read(ctx, func(row scanner) error { return row.Scan(&end) }, sqlPurgeEnd)
	for after := int64(0); err == nil && after < end; {
		var n int64
		n, after, err = q.purge(ctx, after, end)
		removed += n
	}
	if err != nil {
		return removed, fmt.Errorf("purge queue %q: %w", q.name, err)
	}
	return removed, nil
}

// purge removes up to purgeStep messages behind a position and answers the position of the last one it found.
func (q *Queue) purge(ctx context.Context, after, end int64) (removed, last int64, err error) {
	var list int64s
	var ms []driver.Message // for their groups
	err = q.db.read(ctx, func(row scanner) error {
		var pos int64
		var group []byte
		err := row.Scan(&pos, &group)
		list, ms = append(list, pos), append(ms, driver.Message{Queue: q.name, Group: string(group)})
		return err
	}, sqlPurgeList, q.name, after, end, purgeStep)
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
	// Those of these groups that were sent after the call began go on.
	p.exec("next of groups", sqlRemove, int64s{}, int32s{}, uuids{}, q.name, distinct(groups))
	p.commit()
	err = q.db.with(ctx, func(c *pgxpool.Conn) error { return p.run(ctx, c) })
	if len(groups) > 0 {
		q.db.signal(q.name)
	}
	return removed, list[len(list)-1], err
}
