package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// SendTx sends inside the caller's transaction: the messages are there when it commits, together with whatever else it
// wrote. A message without ID gets one. Receivers are not woken, because only the caller knows when it has committed:
// call [Queue.Wake] then, or they find the messages within Options.PollInterval.
//
// The ordered groups of the messages stay locked until the transaction ends: others who send to them, or settle
// messages of them, wait. It has to be of isolation level read committed for those.
func (q *Queue) SendTx(ctx context.Context, tx pgx.Tx, m ...driver.Message) error {
	p, err := q.sendIn(ctx, m)
	if err == nil {
		err = p.run(ctx, tx)
	}
	if err != nil {
		q.db.forgetQueues(err)
		return fmt.Errorf("send to queue %q: %w", q.name, explain(err))
	}
	return nil
}

// SendSQLTx is [Queue.SendTx] for a transaction of database/sql. Its driver has to be pgx's (pgx/v5/stdlib).
func (q *Queue) SendSQLTx(ctx context.Context, tx *sql.Tx, m ...driver.Message) error {
	p, err := q.sendIn(ctx, m)
	if err != nil {
		return fmt.Errorf("send to queue %q: %w", q.name, explain(err))
	}
	for i, x := range p.batch.QueuedQueries {
		if _, err := tx.ExecContext(ctx, x.SQL, x.Arguments...); err != nil {
			q.db.forgetQueues(err)
			return fmt.Errorf("send to queue %q: %s: %w", q.name, p.steps[i].what, explain(err))
		}
	}
	return nil
}

// sendIn makes the statements that send. The queue is made before, in a transaction of its own.
func (q *Queue) sendIn(ctx context.Context, m []driver.Message) (*pipeline, error) {
	p := &pipeline{}
	if len(m) == 0 {
		return p, nil
	}
	if err := q.db.queueApart(ctx, q.name); err != nil { // the caller's transaction may have a connection of the pool
		return nil, err
	}
	return p, q.db.addSends(ctx, p, func(i int) int { return i }, q.own(m))
}

// Wake makes blocked receivers of the queue look, here and in other processes. It is never needed, only sooner.
func (q *Queue) Wake() { q.db.signal(q.name) }

// sqlFetch locks messages. 1 queue name 2 max 3 room for bodies
const sqlFetch = "SELECT * FROM semel_fetch($1, $2, $3)"

// ReceiveTx hands out up to limit messages inside the caller's transaction. They stay locked until it ends and are
// nobody else's: no visibility runs out. They have to be settled in it, by [Queue.SettleTx]; those that are not are
// deliverable again when it ends, and so is everything when the process dies, without a trace: Delivery.Count does not
// grow. It does not wait: no deliveries and a nil error are an answer.
func (q *Queue) ReceiveTx(ctx context.Context, tx pgx.Tx, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("receive from queue %q: max is %d, must be at least 1", q.name, limit)
	}
	if err := checkQueueName(q.name); err != nil {
		return nil, err
	}
	var out []driver.Delivery
	p := &pipeline{}
	p.query("receive", func(rows pgx.Rows) error {
		for rows.Next() {
			rc, d := &receipt{q: q}, driver.Delivery{}
			var id, group, headers []byte
			if err := rows.Scan(&rc.pos, &rc.count, &d.SentAt, &id, &group, &headers, &d.Body); err != nil {
				return err
			}
			rc.group, d.Receipt, d.Count = string(group), rc, int(rc.count)+1
			d.ID, d.Queue, d.Group = string(id), q.name, rc.group
			var err error
			if d.Headers, err = readHeaders(headers); err != nil {
				return fmt.Errorf("message %q: %w", d.ID, err)
			}
			out = append(out, d)
		}
		return nil
	}, sqlFetch, q.name, min(limit, maxBatch), q.db.o.ReceiveBytes)
	if err := p.run(ctx, tx); err != nil {
		return nil, fmt.Errorf("receive from queue %q: %w", q.name, explain(err))
	}
	return out, nil
}

// SettleTx ends deliveries inside the caller's transaction, those of [Queue.Receive] too. Nothing has happened before it
// commits. Groups are locked as by [Queue.SendTx]. After the commit call [Queue.Wake], as there.
func (q *Queue) SettleTx(ctx context.Context, tx pgx.Tx, s ...driver.Settlement) ([]driver.Outcome, error) {
	list := make([]*driver.Settlement, len(s))
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("settle in queue %q: item %d: %w", q.name, i, err)
		}
		list[i] = &s[i]
	}
	p, done := &pipeline{}, changed{}
	q.db.addLocks(p, list, nil)
	q.addSettle(p, list, done)
	if err := p.run(ctx, tx); err != nil {
		q.db.forgetQueues(err)
		return nil, fmt.Errorf("settle in queue %q: %w", q.name, explain(err))
	}
	out := make([]driver.Outcome, len(s))
	for i := range s {
		// The receipt is not spent: the transaction may be rolled back.
		out[i] = driver.Lost
		if done[change{s[i].Receipt.(*receipt).pos, back(s[i].Action)}] {
			out[i] = driver.Applied
		}
	}
	return out, nil
}
