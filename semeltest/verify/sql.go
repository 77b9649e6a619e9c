package verify

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"sync"
)

// DB opens a database through a registered driver of database/sql, as sql.Open does, and records what is written
// through it: see [Process.Connect].
func (p *Process) DB(driverName, dsn string) *sql.DB {
	opened := opener{dsn: dsn}
	db, err := sql.Open(driverName, dsn)
	if err == nil {
		defer db.Close() // only its driver is wanted: it has no connection yet
		opened.d = db.Driver()
		if dc, ok := opened.d.(sqldriver.DriverContext); ok {
			var c sqldriver.Connector
			if c, err = dc.OpenConnector(dsn); err == nil {
				return p.Connect(c)
			}
		}
	}
	if err != nil {
		p.err, opened.err = err, err // of the start of the process
	}
	return p.Connect(opened)
}

// Connect opens a database and records what is written through it. An Exec, or a Query that writes (INSERT, UPDATE,
// DELETE, MERGE, REPLACE, CALL, also behind WITH), is an effect when it changed a row. In a transaction that was begun
// with BeginTx it has not happened before the commit, which is a separate effect; a death rolls back. Statements have no
// key: one that changes rows again has happened twice, unless Options.State shows that the world is the same.
//
// Transactions that are begun with an Exec of BEGIN are not seen. The handle is closed when the schedule ends.
func (p *Process) Connect(c sqldriver.Connector) *sql.DB {
	db := sql.OpenDB(&connector{p: p, inner: c})
	p.OnEnd(func() { _ = db.Close() })
	return db
}

// opener opens connections by the driver alone, or fails.
type opener struct {
	d   sqldriver.Driver
	dsn string
	err error
}

// Connect opens a connection.
func (o opener) Connect(context.Context) (sqldriver.Conn, error) {
	if o.err != nil {
		return nil, o.err
	}
	return o.d.Open(o.dsn)
}

// Driver is the driver.
func (o opener) Driver() sqldriver.Driver { return o.d }

type connector struct {
	p     *Process
	inner sqldriver.Connector
}

// Connect opens a connection, which a death of the process cuts.
func (c *connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c.p.alive()
	in, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	x := &conn{p: c.p, inner: in}
	c.p.w.update(func() { c.p.conns[x] = true })
	return x, nil
}

// Driver is the inner one.
func (c *connector) Driver() sqldriver.Driver { return c.inner.Driver() }

// conn is a connection of a process.
type conn struct {
	p     *Process
	inner sqldriver.Conn

	mu   sync.Mutex // a driver's connection is used by one goroutine at a time: a cut waits for the call under way
	gone bool
	tx   *tx
}

// call makes one call of the inner connection.
func (c *conn) call(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return sqldriver.ErrBadConn
	}
	return f()
}

// cut closes the connection, so that the database rolls its transaction back.
func (c *conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close()
}

func (c *conn) close() error {
	if c.gone {
		return nil
	}
	c.gone = true
	if c.tx != nil {
		_ = c.tx.inner.Rollback() // before the close, which some drivers refuse in a transaction
	}
	return c.inner.Close()
}

// Close closes the connection.
func (c *conn) Close() error {
	c.p.w.update(func() { delete(c.p.conns, c) })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.close()
}

// tx is a transaction of the program.
type tx struct {
	c       *conn
	inner   sqldriver.Tx
	nth     int
	pending []Effect
}

// Begin begins a transaction.
func (c *conn) Begin() (sqldriver.Tx, error) {
	return c.BeginTx(context.Background(), sqldriver.TxOptions{})
}

// BeginTx begins a transaction. A schedule that lets another process go first does so here: later this one holds locks.
func (c *conn) BeginTx(ctx context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	c.p.alive()
	nth := c.p.begins()
	var in sqldriver.Tx
	err := c.call(func() (err error) {
		if b, ok := c.inner.(sqldriver.ConnBeginTx); ok {
			in, err = b.BeginTx(ctx, o)
		} else {
			in, err = c.inner.Begin() //nolint:staticcheck // what an old driver offers
		}
		if err == nil {
			c.tx = &tx{c: c, inner: in, nth: nth}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.tx, nil
}

// commitName is the name of the commit of a program's own transaction.
const commitName = "COMMIT"

// begins counts transactions, and stalls where the schedule aims at the commit of this one.
func (p *Process) begins() (nth int) {
	stall := false
	p.w.update(func() {
		nth = p.begun
		if p.where() != "" {
			return
		}
		p.begun++
		f := &p.w.fault
		stall = f.kind.stalls() && f.kind != ResponseLate && p.number == 1 && !p.w.struck && f.target == target{commitName, nth}
		p.w.struck = p.w.struck || stall
	})
	if stall {
		p.stall()
		p.alive()
	}
	return nth
}

// Commit commits; what the transaction wrote has happened now.
func (t *tx) Commit() error {
	if len(t.pending) == 0 {
		return t.end(t.inner.Commit)
	}
	ended := false
	err := t.c.p.effect(Effect{Name: commitName, kind: commit, nth: t.nth}, func() (bool, error) {
		late := t.c.p.ended()
		ended = true
		if err := t.end(t.inner.Commit); err != nil {
			return false, err
		}
		for _, e := range t.pending {
			e.Ended = late
			t.c.p.w.record(e)
		}
		return true, nil
	})
	if !ended {
		_ = t.Rollback() // the commit was never sent: as after a lost connection, the database rolls back
	}
	return err
}

// Rollback rolls back.
func (t *tx) Rollback() error { return t.end(t.inner.Rollback) }

func (t *tx) end(f func() error) error {
	return t.c.call(func() error {
		t.c.tx = nil
		return f()
	})
}

// write does a statement that writes as one effect.
func (c *conn) write(query string, args []sqldriver.NamedValue, do func() (rows int64, err error)) error {
	e := Effect{Name: oneLine(query), kind: statement, content: argText(args)}
	if t := c.tx; t != nil {
		e.inTx = true
		return c.p.inTx(t, e, do)
	}
	return c.p.effect(e, func() (bool, error) {
		rows, err := do()
		return err == nil && rows > 0, err
	})
}

// inTx does a statement inside of a transaction: it happens with the commit.
func (p *Process) inTx(t *tx, e Effect, do func() (int64, error)) error {
	hit := p.enter(&e)
	if hit && p.w.fault.kind == NotSent {
		return errNotSent
	}
	rows, err := do()
	if err == nil && rows > 0 {
		t.pending = append(t.pending, e)
	}
	if hit && p.w.fault.kind == CrashAfter {
		p.die()
	}
	p.alive()
	return err
}

func argText(args []sqldriver.NamedValue) string {
	var b strings.Builder
	for _, a := range args {
		fmt.Fprintf(&b, "%v\x00", a.Value)
	}
	return b.String()
}

// oneLine is a statement without the layout of its source.
func oneLine(query string) string { return strings.Join(strings.Fields(query), " ") }
