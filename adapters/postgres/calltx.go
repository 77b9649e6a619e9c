package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"

	"github.com/semel-dev/semel/driver/rowqueue"
)

// This file is for programs that hold a transaction of their own: the records commit with it. It has to be at read
// committed, the default. After an error it is aborted and must be rolled back.

// ErrPending reports a key that is neither new nor completed: it runs, or its last run failed or is unclear. ClaimTx says
// more.
var ErrPending = errors.New("the key has a record that is not completed")

// sqlSeen claims one key as completed. 1 place 2 nonce 3 consumer 4 rest 5 keep 6 wait. See semel_claim.
const sqlSeen = markOwn + `SELECT found FROM semel_claim(ARRAY[$1::bytea], ARRAY[$2::uuid], ARRAY[0::bigint], ARRAY[0::smallint],
  ARRAY[$3::bytea], ARRAY[$4::bytea], ARRAY[NULL::bytea], ARRAY[NULL::bytea], $5::bigint, $6::int, ARRAY[0::bigint])`

// sqlRecordText reads one record. 1 its place
const sqlRecordText = "SELECT semel_row(r) FROM semel_record r WHERE place = $1::bytea"

// SeenTx is an inbox in one call. It returns true when the key was completed before. Otherwise it records the key as
// completed, for at least keep, in the caller's transaction: do the effects in it, and commit. A duplicate waits for the
// commit, at most Options.LockWait. [ErrPending] reports that a consumer holds the key.
func (s *Store) SeenTx(ctx context.Context, tx pgx.Tx, k driver.Key, keep time.Duration) (bool, error) {
	return s.seen(k, keep, func(sql string, args ...any) scanner { return tx.QueryRow(ctx, sql, args...) })
}

// SeenSQLTx is SeenTx for database/sql, with any driver for PostgreSQL.
func (s *Store) SeenSQLTx(ctx context.Context, tx *sql.Tx, k driver.Key, keep time.Duration) (bool, error) {
	return s.seen(k, keep, func(sql string, args ...any) scanner { return tx.QueryRowContext(ctx, sql, args...) })
}

func (s *Store) seen(k driver.Key, keep time.Duration, ask func(sql string, args ...any) scanner) (bool, error) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	place := placeOf(&k)
	for range claimTries {
		var found []byte
		err := ask(sqlSeen, place, uuidText(nonce), []byte(k.Consumer), restOf(place, &k), micros(keep), millis(s.db.o.LockWait)).Scan(&found)
		if isNone(err) { // this very transaction wrote the record, or it went away
			if err = ask(sqlRecordText, place).Scan(&found); isNone(err) {
				continue
			}
		}
		switch {
		case err != nil:
			return false, fmt.Errorf("look for key %q: %w", k.Raw, explain(err))
		case found == nil:
			return false, nil
		}
		return isSeen(found, k)
	}
	return false, fmt.Errorf("look for key %q: the record goes away whenever it is looked at: %w", k.Raw,
		driver.ErrNotCommitted)
}

func isNone(err error) bool { return errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows) }

// isSeen judges a record that was there.
func isSeen(found []byte, k driver.Key) (bool, error) {
	r, err := readRecord(found)
	switch {
	case err != nil:
		return false, err
	case r.Key != k:
		return false, fmt.Errorf("key %q: %w", k.Raw, rowstore.ErrCollision)
	case r.Watermark.Running != "":
		return false, fmt.Errorf("key %q has versions: Seen cannot tell whether this message is an old one; Try: ClaimTx with "+
			"Claim.Version", k.Raw)
	case r.State != driver.Completed:
		return false, fmt.Errorf("key %q is %s: %w", k.Raw, r.State, ErrPending)
	}
	return true, nil
}

func uuidText(u [16]byte) string { return pgtype.UUID{Bytes: u, Valid: true}.String() }

// ClaimTx decides claims inside the caller's transaction. What it acquires is held when that commits. Complete it with
// FinishTx before, or with Finish after.
func (s *Store) ClaimTx(ctx context.Context, tx pgx.Tx, c ...driver.Claim) ([]driver.Grant, error) {
	out := make([]driver.Grant, len(c))
	registerArrays(tx.Conn())
	for _, part := range sortKeys(len(c), func(i int) *driver.Key { return &c[i].Key }).layers() {
		if len(part.index) == 0 {
			continue
		}
		part, known := makers(part, c)
		if len(part.index) > 0 {
			var old []int
			p := &pipeline{}
			sql, args := claimQuery(part, c, nil, s.db.o.LockWait)
			p.query("claim", func(rows pgx.Rows) (err error) {
				old, _, err = readClaims(rows, part, c, out, nil)
				return err
			}, sql, args...)
			if err := p.run(ctx, tx); err != nil {
				return nil, fmt.Errorf("claim: %w", explain(err))
			}
			known = part.only(old).and(known)
		}
		x := s.db.rowTx(ctx, tx)
		grants, _, err := rowstore.ClaimTx(x, rowstore.Wait, nil, rowstore.Some(c, known.index)...)
		if err == nil {
			err = x.write()
		}
		if err != nil {
			return nil, fmt.Errorf("claim: %w", explain(err))
		}
		for at, g := range grants {
			if errors.Is(g.Err, rowstore.ErrAbsent) {
				g.Err = fmt.Errorf("the record went away: %w", driver.ErrNotCommitted)
			}
			out[known.index[at]] = g
		}
	}
	return out, nil
}

// FinishTx ends attempts inside the caller's transaction.
func (s *Store) FinishTx(ctx context.Context, tx pgx.Tx, f ...driver.Finish) ([]driver.Outcome, error) {
	registerArrays(tx.Conn())
	x := s.db.rowTx(ctx, tx)
	out, _, err := rowstore.FinishTx(x, rowstore.Wait, f...)
	if err == nil {
		err = x.write()
	}
	if err != nil {
		return nil, fmt.Errorf("finish: %w", explain(err))
	}
	return out, nil
}

// SendTx sends inside the caller's transaction. A message without ID gets one. It cannot wake receivers, because only the
// caller knows when the transaction has committed: call [Queue.Wake] then, or they find the messages within
// Options.PollInterval.
//
// The ordered groups of the messages stay locked until the transaction ends. It has to be at read committed for those.
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

// sendIn makes the statements that send. The queue is created before, in a transaction of its own.
func (q *Queue) sendIn(ctx context.Context, m []driver.Message) (*pipeline, error) {
	p := &pipeline{}
	if len(m) == 0 {
		return p, nil
	}
	if err := q.db.queueApart(ctx, q.name); err != nil { // the caller's transaction may have a connection of the pool
		return nil, err
	}
	list := rowqueue.Named(q.name, m)
	q.db.addLocks(p, nil, list)
	return p, q.db.addSends(ctx, p, func(i int) int { return i }, list)
}

// Wake makes blocked receivers of the queue look, in all processes. They also look without it, only later.
func (q *Queue) Wake() { q.db.signal(q.name) }

// sqlFetch locks messages. 1 queue name 2 max 3 room for bodies
const sqlFetch = "SELECT id, grp, sent_at, headers, body, count, pos FROM semel_fetch($1, $2, $3)"

// ReceiveTx receives up to limit messages inside the caller's transaction, without waiting. They stay locked until it ends,
// so no visibility expires, and [Queue.SettleTx] has to settle them in it. Others are deliverable again when it ends, or
// when the process dies, and Delivery.Count does not grow.
func (q *Queue) ReceiveTx(ctx context.Context, tx pgx.Tx, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("receive from queue %q: max is %d, must be at least 1", q.name, limit)
	}
	if err := checkQueueName(q.name); err != nil {
		return nil, err
	}
	var out []driver.Delivery
	p := &pipeline{}
	p.query("receive", func(found pgx.Rows) error {
		return eachRow(found, func(r rowstore.Row) error {
			m, err := rowqueue.Message(r, 0, q.name)
			rc := &receipt{Receipt: rowqueue.Receipt{Of: q.shared, Pos: r.Int(6), Group: m.Group}, count: int32(r.Int(5))}
			out = append(out, driver.Delivery{Message: m, Receipt: rc, Count: int(rc.count) + 1})
			return err
		})
	}, sqlFetch, q.name, min(limit, rowqueue.MaxBatch), q.db.o.ReceiveBytes)
	if err := p.run(ctx, tx); err != nil {
		return nil, fmt.Errorf("receive from queue %q: %w", q.name, explain(err))
	}
	return out, nil
}

// SettleTx ends deliveries inside the caller's transaction, also those of [Queue.Receive]. It locks groups as
// [Queue.SendTx] does. After the commit call [Queue.Wake].
func (q *Queue) SettleTx(ctx context.Context, tx pgx.Tx, s ...driver.Settlement) ([]driver.Outcome, error) {
	list, err := rowqueue.Settlements(q.shared, s)
	if err != nil {
		return nil, err
	}
	p, done := &pipeline{}, changed{}
	q.db.addLocks(p, list, nil)
	addSettle(p, q.name, list, done)
	if err := p.run(ctx, tx); err != nil {
		q.db.forgetQueues(err)
		return nil, fmt.Errorf("settle in queue %q: %w", q.name, explain(err))
	}
	out := make([]driver.Outcome, len(s))
	for i := range s { // the receipt is not spent: the transaction may be rolled back
		out[i] = done.outcome(s[i].Receipt.(*receipt), rowqueue.Returns(s[i].Action))
	}
	return out, nil
}
