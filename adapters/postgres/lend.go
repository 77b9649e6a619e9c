package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/semel-dev/semel/driver"
)

// errLent is the error of a handler's Commit or Rollback.
var errLent = errors.New("the transaction is semel's: it commits when the handler returns nil; " +
	"to undo what the handler did, return an error")

// errAborted reports a handler that returned nil after one of its statements had failed. Nothing after that was done.
var errAborted = errors.New("a statement of the handler failed, which aborts its transaction, and the handler returned " +
	"nil; Try: return the error, ON CONFLICT, or a savepoint (Begin of the pgx.Tx) around what may fail")

// errOpen reports a handler that returned nil with open rows.
var errOpen = errors.New("the handler left rows open; Try: defer rows.Close()")

// As sets a *pgx.Tx or a **sql.Tx on the same connection. Their Commit and Rollback are refused, and the item of a handler
// that calls one fails. Transactions inside it (savepoints) work.
func (x *transaction) As(handle any) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return false
	}
	x.notice()
	switch h := handle.(type) {
	case *pgx.Tx:
		x.binds++
		*h = &lentTx{Tx: x.tx, x: x}
		return true
	case **sql.Tx:
		x.binds++
		tx, err := x.sqlTx()
		if err != nil {
			return false
		}
		*h = tx
		return true
	}
	return false
}

// misused reports whether a handler did this.
func (x *transaction) misused(how error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return errors.Is(x.misuse, how)
}

// refuse remembers a handler's first forbidden call.
func (x *transaction) refuse(what string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.misuse == nil {
		x.misuse, x.misuseRun = fmt.Errorf("the handler called %s: %w", what, errLent), x.binds
	}
	return errLent
}

// notice remembers that the latest handler left an aborted transaction or open rows. For the server that is an error of the
// next statement: of the next handler, see [transaction.Transient], or of Commit. The caller holds mu.
func (x *transaction) notice() {
	switch c := x.conn.PgConn(); {
	case x.misuse != nil || c.IsClosed():
	case c.IsBusy():
		x.misuse, x.misuseRun = errOpen, x.binds
	case c.TxStatus() == 'E':
		x.misuse, x.misuseRun = errAborted, x.binds
	}
}

// recall takes the transaction back from the handlers. It fails when one of them tried to end it or aborted it: its writes
// must not be committed.
func (x *transaction) recall(w []driver.Work) error {
	if x.lent != nil {
		if err := x.lent.recall(); err != nil && x.misuse == nil {
			x.misuse, x.misuseRun = err, x.binds
		}
	}
	x.notice()
	if x.misuse == nil {
		return nil
	}
	i := x.misuseRun - 1
	switch {
	case len(w) == 1:
		i = 0
	case len(w) == 0:
		return notSent(x.misuse)
	case x.binds != len(w):
		i = -1 // one handler ran for all of them
	}
	return &driver.ItemError{Index: i, Err: x.misuse}
}

// lentTx is a pgx.Tx without its end.
type lentTx struct {
	pgx.Tx
	x *transaction
}

// Commit is refused.
func (t *lentTx) Commit(context.Context) error { return t.x.refuse("Commit") }

// Rollback is refused.
func (t *lentTx) Rollback(context.Context) error { return t.x.refuse("Rollback") }

// lentDB is a database/sql database that has one connection, on which a transaction is open already.
type lentDB struct {
	db   *sql.DB
	tx   *sql.Tx
	conn *lentConn
}

// sqlTx returns the open transaction as database/sql's.
func (x *transaction) sqlTx() (*sql.Tx, error) {
	if x.lent != nil {
		return x.lent.tx, nil
	}
	c := &lentConn{Conn: x.raw, x: x}
	db := sql.OpenDB(lender{c})
	tx, err := db.BeginTx(context.Background(), nil) // a context would end it behind our back
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	x.lent = &lentDB{db: db, tx: tx, conn: c}
	return tx, nil
}

// recall ends the *sql.Tx and closes its open rows.
func (l *lentDB) recall() error {
	l.conn.recalled.Store(true)
	return l.tx.Commit()
}

func (l *lentDB) close() {
	l.conn.recalled.Store(true)
	_ = l.tx.Rollback()
	_ = l.db.Close()
}

// lender connects to the connection that there is.
type lender struct{ c *lentConn }

func (l lender) Connect(context.Context) (sqldriver.Conn, error) { return l.c, nil }
func (l lender) Driver() sqldriver.Driver                        { return stdlib.GetDefaultDriver() }

// lentConn is pgx's connection without the parts that end anything.
type lentConn struct {
	*stdlib.Conn
	x        *transaction
	recalled atomic.Bool
}

// Close leaves the connection to the transaction.
func (c *lentConn) Close() error { return nil }

// BeginTx returns the transaction that is open.
func (c *lentConn) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) {
	return lentEnd{c}, nil
}

// ResetSession has nothing to reset.
func (c *lentConn) ResetSession(context.Context) error { return nil }

// lentEnd is the end of a *sql.Tx, which ends nothing.
type lentEnd struct{ c *lentConn }

// Commit is refused to handlers.
func (e lentEnd) Commit() error { return e.end("Commit") }

// Rollback is refused to handlers.
func (e lentEnd) Rollback() error { return e.end("Rollback") }

func (e lentEnd) end(what string) error {
	if e.c.recalled.Load() {
		return nil
	}
	return e.c.x.refuse(what)
}
