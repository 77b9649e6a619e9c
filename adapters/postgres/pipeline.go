package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
)

// sqlBegin names the isolation level, because a database or role can have another default. The Decide functions and the
// statements here are written for read committed.
const sqlBegin = "BEGIN ISOLATION LEVEL READ COMMITTED"

// pipeline is statements that go to the server in one round trip. A failed step skips those after it.
type pipeline struct {
	batch pgx.Batch
	steps []step
	tx    pgx.Tx // after run: what begin opened
	// limits is set when the pipeline has effects of handlers.
	limits *limits
}

// step is what a statement of a pipeline means for us.
type step struct {
	what string
	// item is the index of the work that a refusal is blamed on; -1: none.
	item int
	// several: it writes rows of several items (severalError).
	several bool
	// rows and tag read the result; both may be nil. Their errors come too late for a COMMIT in the same pipeline, which
	// has been sent already: they must not be used to decide.
	rows func(pgx.Rows) error
	tag  func(pgconn.CommandTag) error
	// after: the transaction is committed already. A failure only closes the connection.
	after bool
}

// exec adds a statement whose result does not matter.
func (p *pipeline) exec(what, sql string, args ...any) {
	p.add(step{what: what, item: -1}, markOwn+sql, args...)
}

// query adds a statement whose rows are read.
func (p *pipeline) query(what string, rows func(pgx.Rows) error, sql string, args ...any) {
	p.add(step{what: what, item: -1, rows: rows}, markOwn+sql, args...)
}

func (p *pipeline) add(s step, sql string, args ...any) {
	p.steps = append(p.steps, s)
	p.batch.Queue(sql, args...)
}

// sender is a connection or a transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

func connOf(s sender) *pgx.Conn {
	if c, ok := s.(*pgx.Conn); ok {
		return c
	}
	return s.(interface{ Conn() *pgx.Conn }).Conn()
}

// run sends the pipeline and reads its results. The error names the step. It is a *driver.ItemError when the statement of
// an item was refused for its own fault.
func (p *pipeline) run(ctx context.Context, c sender) (err error) {
	if len(p.steps) == 0 {
		return nil
	}
	w := p.limits.watch(ctx, connOf(c).PgConn().PID())
	defer w.end()
	results, err := p.send(ctx, c)
	if err != nil {
		return err
	}
	after := false
	defer func() {
		if cerr := results.Close(); err == nil && cerr != nil && !after {
			err = cerr
		}
		p.tx = results.Tx()
		if after {
			_ = connOf(c).Close(ctx)
		}
	}()
	for i := range p.steps {
		s := &p.steps[i]
		err := s.read(results)
		if err == nil {
			continue
		}
		if s.after {
			after = true
			return nil
		}
		if i == 0 && s.rows == nil && code(err) == "" && ctx.Err() == nil && !connOf(c).IsClosed() {
			err = &argsError{err} // without prepared statements arguments are refused like this, before anything is sent
		}
		err = fmt.Errorf("%s: %w", s.what, err)
		switch {
		case s.several && refusable(err):
			p.limits.blocked(err)
			return &severalError{err}
		case s.item < 0 || !refusable(err):
			return err
		case p.limits != nil:
			return p.limits.refusal(s.item, err, w)
		case !environmental(err):
			return &driver.ItemError{Index: s.item, Err: err}
		}
		return err
	}
	return nil
}

// send sends the pipeline. It turns a panic while a handler's arguments are encoded into an error. The connection is closed
// then.
func (p *pipeline) send(ctx context.Context, c sender) (results pgx.BatchResults, err error) {
	defer func() {
		if err != nil {
			_ = connOf(c).Close(ctx)
		}
	}()
	defer catch(&err)
	return c.SendBatch(ctx, &p.batch), nil
}

func (s *step) read(results pgx.BatchResults) error {
	if s.rows == nil {
		tag, err := results.Exec()
		if err == nil && s.tag != nil {
			err = s.tag(tag)
		}
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := s.rows(rows); err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// begin adds BEGIN, for a transaction that is lent to a handler. It must be the first step.
func (p *pipeline) begin() {
	p.steps = append(p.steps, step{what: "begin", item: -1})
	p.batch.BeginTx(pgx.TxOptions{BeginQuery: sqlBegin})
}

// sqlIdle bounds how long the server waits for the next round trip of a transaction. 1 milliseconds, as text
const sqlIdle = "SELECT set_config('idle_in_transaction_session_timeout', $1, true)"

// beginLong adds BEGIN of a transaction that takes several round trips, which the server ends when none comes for
// Options.MaxTx:
//
//  1. A worker locks records, and is frozen before its next round trip: a stopped process, a paused machine.
//  2. Its leases end. Its connection does not, nor do its locks.
//  3. Without a bound its keys are busy for everybody else for as long as it is frozen.
func (p *pipeline) beginLong(db *DB) {
	p.exec("begin", sqlBegin)
	p.exec("bound the transaction", sqlIdle, strconv.Itoa(int(millis(db.o.MaxTx))))
}

// commit adds COMMIT, marked because deferred triggers of handlers run in it. It checks the tag: a server that had to roll
// back reports no error.
func (p *pipeline) commit() {
	p.add(step{what: "commit", item: -1, tag: committed}, markEffect+"COMMIT")
}

func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return errRolledBack
	}
	return nil
}

// once runs what fill adds in one transaction and one round trip. Errors are those of wrote.
func (db *DB) once(ctx context.Context, fill func(p *pipeline) error) error {
	p := &pipeline{}
	p.exec("begin", sqlBegin)
	if err := fill(p); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrNotCommitted, err)
	}
	p.commit()
	return db.with(ctx, func(c *pgxpool.Conn) error { return p.run(ctx, c) })
}

// millis is a time to wait as the server takes it: 0 would be forever, and 24 days are the most.
func millis(d time.Duration) int32 { return int32(min(max(d.Milliseconds(), 1), math.MaxInt32)) }

// ask runs one statement that is a transaction of its own, in one round trip.
func (db *DB) ask(ctx context.Context, what string, rows func(pgx.Rows) error, sql string, args ...any) error {
	if !db.info.plain {
		return db.once(ctx, func(p *pipeline) error { p.query(what, rows, sql, args...); return nil })
	}
	return db.with(ctx, func(c *pgxpool.Conn) error {
		r, err := c.Query(ctx, sql, args...)
		if err == nil {
			err = rows(r)
			r.Close()
			err = errors.Join(err, r.Err())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// inQueues is once for writes to queues. It is repeated when one of them does not exist any more.
func (db *DB) inQueues(ctx context.Context, fill func(p *pipeline) error) error {
	err := db.once(ctx, fill)
	if code(err) == codeQueue {
		err = db.once(ctx, fill)
	}
	return err
}

// with lends a connection to fn. After an error it rolls back the open transaction.
func (db *DB) with(ctx context.Context, fn func(c *pgxpool.Conn) error) error {
	c, err := db.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	if err = fn(c); err == nil {
		return nil
	}
	reset(ctx, c.Conn())
	db.forgetQueues(err)
	return wrote(err)
}

// reset ends the transaction that is open on a connection.
func reset(ctx context.Context, c *pgx.Conn) {
	if c.IsClosed() || c.PgConn().TxStatus() == 'I' {
		return
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
	defer cancel()
	if _, err := c.Exec(end, "ROLLBACK"); err != nil {
		_ = c.Close(end) // the server rolls back what has no connection any more
	}
}

// rollbackWait bounds the wait for a ROLLBACK.
const rollbackWait = 2 * time.Second

// acquire takes a connection. Without one nothing was sent: the error wraps driver.ErrNotCommitted.
func (db *DB) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	var c *pgxpool.Conn
	err := ErrClosed
	if !db.isClosed() {
		c, err = db.pool.Acquire(ctx)
	}
	switch {
	case err == nil:
		db.history.prepare(ctx, c.Conn())
	case db.isClosed(): // perhaps meanwhile, which is no outage
		return nil, fmt.Errorf("%w: %w", driver.ErrNotCommitted, ErrClosed)
	default:
		return nil, fmt.Errorf("connect to %s: %w: %w: %w", db.name, driver.ErrNotCommitted, driver.ErrOutage, explain(err))
	}
	return c, nil
}

func (db *DB) isClosed() bool {
	select {
	case <-db.closing:
		return true
	default:
		return false
	}
}

// errClient marks our own mistake in reading a result.
var errClient = errors.New("unexpected response of the server")

// Parameters of the multi-row statements: arrays whose elements pgx can encode without a copy of each. Plain slices cost a
// box and a reflection for every element, as much as the server needs for the row.
type (
	uuids  [][16]byte
	bytess [][]byte
	int64s []int64
	int32s []int32
	int16s []int16
	stamps []time.Time // the zero time is NULL

	uuidItem  [16]byte
	bytesItem []byte
	int64Item int64
	int32Item int32
	int16Item int16
	stampItem time.Time
)

// UUIDValue is pgtype's hook.
func (u *uuidItem) UUIDValue() (pgtype.UUID, error) { return uuid(*u), nil }

// BytesValue is pgtype's hook; nil is NULL.
func (b *bytesItem) BytesValue() ([]byte, error) { return *b, nil }

// Int64Value is pgtype's hook.
func (n *int64Item) Int64Value() (pgtype.Int8, error) { return int8of(int64(*n)) }

// Int64Value is pgtype's hook.
func (n *int32Item) Int64Value() (pgtype.Int8, error) { return int8of(int64(*n)) }

// Int64Value is pgtype's hook.
func (n *int16Item) Int64Value() (pgtype.Int8, error) { return int8of(int64(*n)) }

func int8of(n int64) (pgtype.Int8, error) { return pgtype.Int8{Int64: n, Valid: true}, nil }

// TimestamptzValue is pgtype's hook.
func (t *stampItem) TimestamptzValue() (pgtype.Timestamptz, error) {
	at := time.Time(*t)
	return pgtype.Timestamptz{Time: at, Valid: !at.IsZero()}, nil
}

func dimensions(n int) []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(n), LowerBound: 1}}
}

func (a uuids) Dimensions() []pgtype.ArrayDimension  { return dimensions(len(a)) }
func (a bytess) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a int64s) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a int32s) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a int16s) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a stamps) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }

func (a uuids) Index(i int) any  { return (*uuidItem)(&a[i]) }
func (a bytess) Index(i int) any { return (*bytesItem)(&a[i]) }
func (a int64s) Index(i int) any { return (*int64Item)(&a[i]) }
func (a int32s) Index(i int) any { return (*int32Item)(&a[i]) }
func (a int16s) Index(i int) any { return (*int16Item)(&a[i]) }
func (a stamps) Index(i int) any { return (*stampItem)(&a[i]) }

func (a uuids) IndexType() any  { return new(uuidItem) }
func (a bytess) IndexType() any { return new(bytesItem) }
func (a int64s) IndexType() any { return new(int64Item) }
func (a int32s) IndexType() any { return new(int32Item) }
func (a int16s) IndexType() any { return new(int16Item) }
func (a stamps) IndexType() any { return new(stampItem) }

// registerArrays registers the types of these parameters on a connection: without prepared statements
// (default_query_exec_mode=exec, for poolers) nothing else names them.
func registerArrays(c *pgx.Conn) {
	m := c.TypeMap()
	m.RegisterDefaultPgType(uuids(nil), "_uuid")
	m.RegisterDefaultPgType(bytess(nil), "_bytea")
	m.RegisterDefaultPgType(int64s(nil), "_int8")
	m.RegisterDefaultPgType(int32s(nil), "_int4")
	m.RegisterDefaultPgType(int16s(nil), "_int2")
	m.RegisterDefaultPgType(stamps(nil), "_timestamptz")
}
