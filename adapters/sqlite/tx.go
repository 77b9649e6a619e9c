package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	sqlite3lib "modernc.org/sqlite/lib"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// txConn is the one connection of synchronous transactions: *sql.Tx for the handler, and the session that decides the
// claims. The holder of DB.lock uses it.
type txConn struct {
	conn   *sql.Conn
	s      *session
	guard  *guard
	tokens reservation
}

// reservation is a range of tokens that a committed transaction drew. A rollback would return the tokens of a synchronous
// transaction to the sequence, but a handler has seen them, so they must not be drawn again (I3).
type reservation struct{ next, end int64 }

// reserveStep is how many tokens are reserved at once, at the least.
const reserveStep = 256

func (c *txConn) open(ctx context.Context, pool *sql.DB) error {
	if c.conn != nil {
		return nil
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	err = conn.Raw(func(dc any) error {
		raw, ok := dc.(sqldriver.Conn)
		if !ok {
			return fmt.Errorf("driver connection is a %T", dc)
		}
		c.s = newSession(raw)
		c.s.guard = c.guard
		return c.guard.check()
	})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	c.conn = conn
	return nil
}

// close returns the connection to the pool, which closes it.
func (c *txConn) close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Raw(func(any) error { return c.s.closeStatements() })
	return errors.Join(err, c.conn.Close())
}

// transaction is an open synchronous transaction. It holds SQLite's write lock and this process's turn.
type transaction struct {
	s     *Store
	tx    *sql.Tx
	t     *txn
	held  rowstore.Held
	timer *time.Timer

	mu      sync.Mutex
	ended   bool
	expired bool
}

// errExpired reports a transaction that was rolled back under its handler.
var errExpired = errors.New("the transaction was open for longer than MaxTx and was rolled back, because it holds the only write lock")

// errEnded reports a handler that called Commit or Rollback.
var errEnded = errors.New("the handler ended the transaction itself; semel commits it")

// OffersTx reports whether handle is a **sql.Tx.
func (s *Store) OffersTx(handle any) bool {
	_, ok := handle.(**sql.Tx)
	return ok
}

// Begin opens a transaction and decides the claims inside it. It waits for its turn to write, at most Options.BusyTimeout.
// Changes by claims that acquire nothing (an expired claim under Once is parked, a lease too far ahead is cut) are
// committed at once. The Tx is nil when nothing was acquired. It is rolled back after Options.MaxTx, and its Commit then
// returns driver.ErrNotCommitted.
func (s *Store) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	if s.db.o.ReadOnly {
		return nil, nil, fmt.Errorf("begin: database %s was opened read-only: %w", s.db.path, driver.ErrNotCommitted)
	}
	for range 8 {
		x, grants, again, err := s.begin(ctx, c)
		if err != nil {
			return nil, nil, fmt.Errorf("begin: %w", err)
		}
		if !again {
			if x == nil {
				return nil, grants, nil
			}
			return x, grants, nil
		}
		if err := s.prepare(ctx, c); err != nil {
			return nil, nil, fmt.Errorf("begin: %w", err)
		}
	}
	return nil, nil, fmt.Errorf("begin: the records change too fast: %w", driver.ErrNotCommitted)
}

// prepare commits what has to be durable before the transaction: decisions that acquire nothing, and tokens.
func (s *Store) prepare(ctx context.Context, c []driver.Claim) error {
	need := int64(max(len(c), reserveStep))
	var fresh reservation
	err := s.db.write(ctx, len(c), func(t *txn) error {
		if err := rowstore.Park(rowTx{t}, rowstore.Wait, c...); err != nil {
			return err
		}
		next, err := t.draw()
		if err != nil {
			return err
		}
		t.use(next + need - 1)
		fresh = reservation{next: next, end: next + need}
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case s.db.lock <- struct{}{}:
	case <-s.db.closing: // Close keeps the turn
		return fmt.Errorf("%w: %w", driver.ErrNotCommitted, ErrClosed)
	}
	s.db.tx.tokens = fresh
	<-s.db.lock
	return nil
}

// begin tries once. again: something has to be committed before (see prepare).
func (s *Store) begin(ctx context.Context, c []driver.Claim) (x *transaction, grants []driver.Grant, again bool, err error) {
	db := s.db
	select {
	case db.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, false, fmt.Errorf("%w: %w", driver.ErrNotCommitted, ctx.Err())
	case <-db.closing:
		return nil, nil, false, fmt.Errorf("%w: %w", driver.ErrNotCommitted, ErrClosed)
	}
	keep := false
	defer func() {
		if !keep {
			<-db.lock
		}
	}()
	if db.tx.tokens.end-db.tx.tokens.next < int64(len(c)) {
		return nil, nil, true, nil
	}
	if err := patiently(ctx, db.o.BusyTimeout, func() error { return db.tx.open(ctx, db.txs) }); err != nil {
		return nil, nil, false, explain(db.path, err)
	}
	x = &transaction{s: s}
	err = patiently(ctx, db.o.BusyTimeout, func() (err error) {
		// Not ctx: its end would end the transaction.
		x.tx, err = db.tx.conn.BeginTx(context.WithoutCancel(ctx), nil)
		return err
	})
	if err != nil {
		return nil, nil, false, explain(db.path, err)
	}
	err = x.raw(func() error { grants, again, err = x.claim(c); return err })
	if err != nil || again || len(x.held.Claims) == 0 {
		return nil, grants, again, errors.Join(explain(db.path, err), x.tx.Rollback())
	}
	keep = true
	db.tx.guard.lend(modeHandler)
	x.mu.Lock() // expire reads timer
	x.timer = time.AfterFunc(db.o.MaxTx, x.expire)
	x.mu.Unlock()
	return x, grants, false, nil
}

// raw runs fn with the connection locked against the handle's own use.
func (x *transaction) raw(fn func() error) error {
	return x.s.db.tx.conn.Raw(func(any) error { return fn() })
}

// errAgain reports that something has to be committed before the transaction (see prepare).
var errAgain = errors.New("the transaction has to be prepared again")

// claim decides the claims inside the transaction.
func (x *transaction) claim(c []driver.Claim) ([]driver.Grant, bool, error) {
	x.t = newTxn(x.s.db, x.s.db.tx.s)
	x.t.tokens = &x.s.db.tx.tokens
	grants, durable, err := rowstore.ClaimTx(rowTx{x.t}, rowstore.Make, &x.held, c...)
	if errors.Is(err, errAgain) {
		return nil, true, nil
	}
	return grants, len(durable) > 0, err
}

// As sets a **sql.Tx.
func (x *transaction) As(handle any) bool {
	h, ok := handle.(**sql.Tx)
	if ok {
		*h = x.tx
	}
	return ok
}

// expire rolls back a transaction that was open for too long, and interrupts its statement.
func (x *transaction) expire() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ended {
		x.expired = true
		x.s.db.tx.guard.interruptAfter(0)
		_ = x.end(false)
	}
}

// end ends the transaction and the turn to write. The caller holds mu.
func (x *transaction) end(commit bool) (err error) {
	x.ended = true
	x.timer.Stop()
	if commit {
		err = x.tx.Commit()
	} else {
		err = x.tx.Rollback()
	}
	x.s.db.tx.guard.take()
	if code(err) == sqlite3lib.SQLITE_INTERRUPT { // the rollback was what was interrupted
		err = x.raw(func() error { _, err := x.t.s.exec("ROLLBACK"); return err })
	}
	<-x.s.db.lock
	return err
}

// Rollback undoes everything, the claims included.
func (x *transaction) Rollback(context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return nil
	}
	if err := x.end(false); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("roll back: %w", explain(x.s.db.path, err))
	}
	return nil
}

// Commit writes the works and commits. It removes claims without a work: their item failed or did not run. The transaction
// has ended afterwards, even after an error.
func (x *transaction) Commit(_ context.Context, w ...driver.Work) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.expired {
		return fmt.Errorf("commit: %w: %w", driver.ErrNotCommitted, errExpired)
	}
	if x.ended {
		return fmt.Errorf("commit: %w", sql.ErrTxDone)
	}
	err := rowstore.CheckWorks(w, x.s.db.checkWork)
	out := make([]driver.Outcome, len(w))
	if err == nil {
		err = x.raw(func() error {
			x.s.db.tx.guard.take()
			return x.works(w, out)
		})
	}
	if err != nil {
		if rerr := x.end(false); rerr != nil && !errors.Is(err, errEnded) {
			err = errors.Join(err, rerr)
		}
		return fmt.Errorf("commit: %w", explain(x.s.db.path, err))
	}
	if err := x.end(true); err != nil {
		return fmt.Errorf("commit: %w", explain(x.s.db.path, err))
	}
	x.t.committed()
	rowqueue.Settled(w, out)
	return nil
}

func (x *transaction) works(w []driver.Work, out []driver.Outcome) error {
	// If a handler ended the transaction itself, everything below would commit on its own. BEGIN fails inside a
	// transaction, which tells whether one is open.
	if _, err := x.t.s.exec("BEGIN"); err == nil {
		_, err = x.t.s.exec("ROLLBACK")
		return errors.Join(errEnded, err)
	}
	err := x.held.Commit(rowTx{x.t}, w, func() ([]driver.Outcome, error) { return out, x.t.commit(w, workPlaces(w), out) })
	if err != nil {
		return err
	}
	return x.t.flush()
}
