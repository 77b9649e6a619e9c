package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

const (
	// sqlOpen opens a transaction for handlers. 1 idle time in milliseconds 2 sealed. See semel_lend.
	sqlOpen = "SELECT semel_lend($1, $2)"
	// sqlUnclaim takes claims back. 1 places 2 tokens 3 nonces. See semel_unclaim.
	sqlUnclaim = "SELECT semel_unclaim($1, $2, $3)"
)

// sealFrom is how many claims a transaction needs for its new records to be written as COMPLETED in the first place.
const sealFrom = 16

// transaction is an open transaction that holds claims.
//
// New records of a batch are written as COMPLETED when they are claimed: nobody else sees them before COMMIT, and a second
// version of each would cost as much as the first. This is safe because only [transaction.Commit] can commit: with the row
// of semel_open the server refuses any other COMMIT (a handler's). Records of items that failed or did not run are deleted,
// those with another result or retention are written again.
type transaction struct {
	s    *Store
	std  *sql.Conn
	raw  *stdlib.Conn
	conn *pgx.Conn
	tx   pgx.Tx
	id   int64
	held rowstore.Held
	// keep is set when new records were written as COMPLETED: their retention in microseconds.
	keep int64
	// at is the server's time when the claims were decided, began ours.
	at, began time.Time

	mu    sync.Mutex
	ended bool
	binds int // how often a handle was lent: once for each run of a handler
	lent  *lentDB
	// cleaned: the session was cleaned after the handlers.
	cleaned bool
	// misuse is what a handler did that must not be committed, and during which run.
	misuse    error
	misuseRun int
}

// OffersTx reports whether handle is a *pgx.Tx or a **sql.Tx.
func (s *Store) OffersTx(handle any) bool {
	switch handle.(type) {
	case *pgx.Tx, **sql.Tx:
		return true
	}
	return false
}

// Begin opens a transaction and decides the claims inside it, in one round trip when all keys are new. It waits for a key
// that another transaction holds, at most Options.LockWait, and then returns Busy. Changes by claims that acquire nothing
// (an expired claim under Once is parked, a lease too far ahead is cut) are committed at once in another transaction. The
// Tx is nil when nothing was acquired. The server rolls it back when it is idle for Options.MaxTx.
//
// Nothing of it is committed before its Commit is called.
func (s *Store) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	if len(c) == 0 {
		return nil, nil, nil
	}
	o := &opening{s: s, c: c, out: make([]driver.Grant, len(c))}
	o.todo = sortKeys(len(c), func(i int) *driver.Key { return &c[i].Key })
	if len(o.todo.layers()) > 1 {
		return nil, nil, fmt.Errorf("begin: the same key twice: %w", driver.ErrNotCommitted)
	}
	for range claimTries {
		x, again, err := o.try(ctx)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("begin: %w", notSent(err))
		case again:
			continue
		case x == nil:
			return nil, o.out, nil
		}
		return x, o.out, nil
	}
	return nil, nil, fmt.Errorf("begin: the records change too fast: %w", driver.ErrNotCommitted)
}

// opening is one call of Begin.
type opening struct {
	s    *Store
	c    []driver.Claim
	out  []driver.Grant
	todo keyed // what is not busy
}

func (o *opening) busy(part keyed) {
	for _, i := range part.index {
		o.out[i] = grantBusy(&o.c[i])
	}
}

// try opens a transaction. again: something had to be done before, and was.
func (o *opening) try(ctx context.Context) (x *transaction, again bool, err error) {
	if len(o.todo.index) == 0 {
		return nil, false, nil
	}
	t, old, err := o.open(ctx)
	if err != nil {
		switch code(err) {
		case codeFloor:
			return nil, true, nil
		case codeLocked: // others hold some keys, which were waited for already: leave them out
			o.todo, err = o.probe(ctx, o.todo)
			return nil, true, err
		}
		return nil, false, err
	}
	keepIt := false
	defer func() {
		if !keepIt {
			t.end(ctx)
		}
	}()
	if len(old.index) > 0 {
		if again, err = o.known(ctx, t, old); again || err != nil {
			return nil, again, err
		}
	}
	if len(t.held.Claims) == 0 {
		return nil, false, nil
	}
	keepIt = true
	return t, false, nil
}

// open sends BEGIN and the claims of new keys. It returns the claims that need a lock on a record.
func (o *opening) open(ctx context.Context) (x *transaction, old keyed, err error) {
	x = &transaction{s: o.s, held: rowstore.Held{Claims: make([]rowstore.HeldClaim, 0, len(o.todo.index))}}
	if err := x.connect(ctx); err != nil {
		return nil, old, err
	}
	defer func() {
		if err != nil {
			x.end(ctx)
		}
	}()
	keep := o.s.db.keep.Load()
	part, later := makers(o.todo, o.c)
	if len(part.index) < sealFrom || versioned(part, o.c) {
		keep = 0
	}
	var arg *int64
	if keep > 0 {
		arg = &keep
	}
	x.keep = keep
	p := &pipeline{}
	p.begin()
	p.query("open", func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&x.id); err != nil {
				return err
			}
		}
		return rows.Err()
	}, sqlOpen, millis(o.s.db.o.MaxTx), keep > 0)
	newLimits(o.s.db, 0, o.s.db.o.LockWait).add(p) // a handler that is blocked blocks the others
	var known []int
	if len(part.index) > 0 {
		sql, args := claimQuery(part, o.c, arg, o.s.db.o.LockWait)
		p.query("claim", func(rows pgx.Rows) (err error) {
			known, x.at, err = readClaims(rows, part, o.c, o.out, func(r driver.Record) {
				x.held.Add(nil, r)
			})
			return err
		}, sql, args...)
	}
	if err := p.run(ctx, x.conn); err != nil {
		return x, old, err // x, not nil: the deferred function ends it
	}
	x.tx, x.began = p.tx, time.Now()
	return x, part.only(known).and(later), nil
}

// known decides claims on existing records under their locks. Records that others have locked are Busy. again: a record
// went away, or a decision has to be durable whatever becomes of this transaction.
func (o *opening) known(ctx context.Context, x *transaction, part keyed) (again bool, err error) {
	c, tx := rowstore.Some(o.c, part.index), o.s.db.rowTx(ctx, x.conn)
	grants, durable, err := rowstore.ClaimTx(tx, rowstore.Skip, &x.held, c...)
	if err != nil {
		return false, err
	}
	for at, i := range part.index {
		if o.out[i] = grants[at]; errors.Is(grants[at].Err, rowstore.ErrLocked) { // or gone
			o.out[i] = grantBusy(&o.c[i])
		}
	}
	if len(durable) > 0 {
		x.end(ctx)
		return true, rows{o.s.db}.Atomic(ctx, len(durable), func(tx rowstore.Tx) error {
			return rowstore.Park(tx, rowstore.Skip, rowstore.Some(c, durable)...)
		})
	}
	return false, tx.write()
}

// probe claims keys in a transaction that is rolled back, and returns those that nobody else holds.
func (o *opening) probe(ctx context.Context, part keyed) (free keyed, err error) {
	c, err := o.s.db.acquire(ctx)
	if err != nil {
		return free, err
	}
	p := &pipeline{}
	p.exec("begin", sqlBegin)
	p.exec("claim", sqlClaim, claimArgs(part, o.c, nil, lockedRetry)...)
	p.exec("rollback", "ROLLBACK")
	err = p.run(ctx, c)
	reset(ctx, c.Conn())
	c.Release()
	switch {
	case err == nil:
		return part, nil
	case code(err) != codeLocked:
		return free, err
	case len(part.index) == 1:
		o.busy(part)
		return free, nil
	}
	half := len(part.index) / 2
	a, err := o.probe(ctx, keyed{part.places[:half], part.index[:half]})
	if err != nil {
		return free, err
	}
	b, err := o.probe(ctx, keyed{part.places[half:], part.index[half:]})
	return a.and(b), err
}

// connect takes a connection that can be lent as pgx's and as database/sql's.
func (x *transaction) connect(ctx context.Context) error {
	if x.s.db.isClosed() {
		return ErrClosed
	}
	std, err := x.s.db.std.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", x.s.db.name, explain(err))
	}
	x.std = std
	return std.Raw(func(c any) error {
		raw, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("driver connection is a %T", c)
		}
		x.raw, x.conn = raw, raw.Conn()
		x.s.db.history.prepare(ctx, x.conn)
		return nil
	})
}

// end rolls back the open transaction and returns the connection. The caller holds mu, or nobody else knows x yet.
func (x *transaction) end(ctx context.Context) {
	if x.ended {
		return
	}
	x.ended = true
	if x.lent != nil {
		x.lent.close()
	}
	switch {
	case x.conn == nil:
	case x.binds > 0 && !x.cleaned:
		x.s.db.clean(ctx, x.conn)
	default:
		reset(ctx, x.conn)
	}
	_ = x.std.Close() // the pool discards a connection that is closed or in a transaction
}

// Rollback undoes everything, the claims included.
func (x *transaction) Rollback(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.end(ctx)
	return nil
}

// Transient reports an error of the handle that is not the handler's failure: a deadlock, a serialization failure, a lock
// that was waited for in vain, a broken connection, a server that cannot write (FM50), a transaction that the handler
// before it had aborted. Errors that a statement can cause itself, such as a timeout or too much memory, are the handler's:
// they must not be repeated forever.
func (x *transaction) Transient(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	var yes bool
	switch c := code(err); {
	case c == codeLocked:
		return driver.ErrBlocked
	case c == "53100", c == "58030", c == codeReadOnly: // the disk is full, or broken; the server became a standby
		return driver.ErrOutage
	case c == "40001", c == "40P01", isStale(err), c == "26000", c == "42P05": // or a prepared statement got lost
		yes = true
	case c == "25P02": // aborted by the handler before
		yes = x.misused(errAborted)
	case c == "":
		yes = x.conn.IsClosed() || x.misused(errOpen)
	default:
		yes = environmental(err) && x.conn.IsClosed()
	}
	if yes {
		return driver.ErrNotCommitted
	}
	return nil
}
