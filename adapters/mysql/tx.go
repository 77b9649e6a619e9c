package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// beginTries is how often Begin tries.
const beginTries = 8

// transaction is an open transaction that holds claims. Its session does not commit by itself (autocommit), and has a
// savepoint: without it, the handler or an implicit commit ended the transaction.
type transaction struct {
	rowTx
	s    *Store
	conn *sql.Conn
	tx   *sql.Tx
	held rowstore.Held

	mu    sync.Mutex
	ended bool
}

// errEnded reports a handler that ended the transaction.
var errEnded = errors.New("the handler ended the transaction (COMMIT, ROLLBACK, or a statement that commits implicitly, as all DDL does); semel commits it")

// OffersTx reports whether handle is a **sql.Tx.
func (s *Store) OffersTx(handle any) bool {
	_, ok := handle.(**sql.Tx)
	return ok
}

// Begin opens a transaction and decides the claims inside it. It waits for a key that another transaction holds, at most
// Options.LockWait, and then returns Busy. Changes by claims that acquire nothing are committed at once in another
// transaction. The Tx is nil when nothing was acquired. The server rolls it back when it is idle for Options.MaxTx.
func (s *Store) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	if s.db.o.ReadOnly {
		return nil, nil, fmt.Errorf("begin: database %s was opened read-only: %w", s.db.name, driver.ErrNotCommitted)
	}
	mode := rowstore.Make
	for range beginTries {
		x, grants, durable, err := s.begin(ctx, mode, c)
		switch {
		case mode == rowstore.Make && errors.Is(err, driver.ErrBlocked):
			mode = rowstore.Skip
		case code(err) == errDeadlock:
		case err != nil:
			return nil, nil, fmt.Errorf("begin: %w", err)
		case len(durable) > 0:
			err := rows{s.db}.Atomic(ctx, len(c), func(tx rowstore.Tx) error { return rowstore.Park(tx, rowstore.Wait, c...) })
			if err != nil {
				return nil, nil, fmt.Errorf("begin: %w", err)
			}
		case x == nil:
			return nil, grants, nil
		default:
			return x, grants, nil
		}
	}
	return nil, nil, fmt.Errorf("begin: the records change too fast: %w", driver.ErrNotCommitted)
}

// begin tries once. x is nil when nothing was acquired.
func (s *Store) begin(ctx context.Context, mode rowstore.Mode, c []driver.Claim) (_ *transaction, grants []driver.Grant, durable []int, err error) {
	x := &transaction{s: s, rowTx: rowTx{ctx: ctx, db: s.db, item: -1}}
	if x.conn, err = s.db.acquire(ctx); err != nil {
		return nil, nil, nil, err
	}
	keep := false
	defer func() {
		if !keep {
			x.close(ctx)
		}
	}()
	if err = lend(x.conn); err == nil {
		_, err = x.conn.ExecContext(ctx, "SET SESSION autocommit = 0")
	}
	if err == nil {
		x.tx, err = open(ctx, x.conn)
	}
	if err != nil {
		return nil, nil, nil, wrote(err, false)
	}
	x.run = x.tx
	grants, durable, err = rowstore.ClaimTx(&x.rowTx, mode, &x.held, c...)
	for i := range grants {
		if errors.Is(grants[i].Err, rowstore.ErrLocked) || errors.Is(grants[i].Err, rowstore.ErrAbsent) {
			grants[i] = rowstore.LockedGrant(&c[i])
		}
	}
	if err == nil {
		err = x.flush()
	}
	if err == nil && len(durable) == 0 && len(x.held.Claims) > 0 {
		_, err = x.exec("SAVEPOINT semel_claims")
		keep = err == nil
	}
	if err != nil || !keep {
		return nil, grants, durable, wrote(err, false)
	}
	return x, grants, nil, nil
}

// open begins a transaction, within ctx. It outlives ctx.
func open(ctx context.Context, c *sql.Conn) (*sql.Tx, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	return c.BeginTx(life, nil)
}

// As sets a **sql.Tx.
func (x *transaction) As(handle any) bool {
	h, ok := handle.(**sql.Tx)
	if ok {
		*h = x.tx
	}
	return ok
}

// close rolls back and returns the session. While the handle is open, the connection must not be used but through it: if it is
// broken, database/sql would wait for the handle.
func (x *transaction) close(ctx context.Context) {
	x.ended = true
	if x.tx != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
		_, _ = x.tx.ExecContext(end, "ROLLBACK") // within a time; a session that does not respond is closed
		cancel()
		_ = x.tx.Rollback()
	}
	_ = x.conn.Close() // the session is set up again before its next use
}

// Rollback undoes everything, the claims included.
func (x *transaction) Rollback(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ended {
		x.close(ctx)
	}
	return nil
}

// Commit writes the works and commits. Claims without a work are removed. The transaction has ended afterwards, even after an
// error.
func (x *transaction) Commit(ctx context.Context, w ...driver.Work) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return fmt.Errorf("commit: %w", sql.ErrTxDone)
	}
	defer x.close(ctx)
	x.ctx = ctx
	err := rowstore.CheckWorks(w, x.db.checkWork)
	if err == nil {
		err = x.works(w)
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if _, err = x.exec("COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", wrote(err, true))
	}
	x.committed()
	rowqueue.Settled(w, slices.Repeat([]driver.Outcome{driver.Applied}, len(w)))
	return nil
}

func (x *transaction) works(w []driver.Work) error {
	if _, err := x.exec("RELEASE SAVEPOINT semel_claims"); err != nil {
		if code(err) == errNoSavepoint || errors.Is(err, sql.ErrTxDone) {
			return errEnded
		}
		if errors.Is(err, sqldriver.ErrBadConn) { // nothing was sent; a server that is gone is the next Begin's outage
			return fmt.Errorf("%w: the connection is broken, or the handler left *sql.Rows open: %w", driver.ErrNotCommitted, err)
		}
		return wrote(err, false)
	}
	err := x.held.Commit(&x.rowTx, w, func() ([]driver.Outcome, error) {
		return rowstore.CommitTx(&x.rowTx, rowstore.Wait, w...)
	})
	if err == nil {
		err = x.end()
	}
	return wrote(err, false)
}

// Transient classifies an error that a handler got from the handle. See driver.TxClassifier.
func (x *transaction) Transient(err error) error {
	switch n := code(err); {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case n == errLockWait:
		return driver.ErrBlocked
	case outage(err):
		return driver.ErrOutage
	case n == errDeadlock, broken(err):
		return driver.ErrNotCommitted
	}
	return nil
}
