package postgres

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// rows is what package rowstore needs of the database. Its statements are planned each time: they are asked for rarely, and
// a plan that a session made while the tables were empty would read them from end to end for as long as the session lasts.
type rows struct{ db *DB }

// sqlPlan has statements of a transaction planned for their parameters. Functions have settings of their own.
const sqlPlan = "SET LOCAL plan_cache_mode = force_custom_plan"

// Layout says how records are stored.
func (d rows) Layout() rowstore.Layout {
	return rowstore.Layout{
		Columns:   "semel_row(r)",
		Record:    func(r rowstore.Row) (driver.Record, error) { return readRecord(r.Bytes(0)) },
		Uncertain: "SELECT * FROM semel_list_uncertain(?, ?)",
	}
}

// Atomic runs f in a transaction. What f writes is sent with its next question, or with COMMIT.
func (d rows) Atomic(ctx context.Context, _ int, f func(rowstore.Tx) error) error {
	return d.db.with(ctx, func(conn *pgxpool.Conn) error {
		x := &rowTx{ctx: ctx, db: d.db, conn: conn, p: &pipeline{}}
		x.p.beginLong(d.db)
		x.p.exec("plan", sqlPlan)
		if err := f(x); err != nil {
			return err
		}
		x.flush()
		x.p.commit()
		return x.p.run(ctx, conn)
	})
}

// Read runs a query on a connection of the pool.
func (d rows) Read(ctx context.Context, row func(rowstore.Row) error, query string, args ...any) error {
	c, err := d.db.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	found, err := c.Query(ctx, numbered(query), append([]any{pgx.QueryExecModeExec}, columns(args)...)...)
	if err == nil {
		err = eachRow(found, row)
	}
	return explain(err)
}

func eachRow(found pgx.Rows, row func(rowstore.Row) error) error {
	defer found.Close()
	for found.Next() {
		v, err := found.Values()
		if err == nil {
			err = row(v)
		}
		if err != nil {
			return err
		}
	}
	return found.Err()
}

// rowTx is a transaction as package rowstore sees it.
type rowTx struct {
	ctx     context.Context
	db      *DB
	conn    *pgxpool.Conn
	p       *pipeline
	changes []driver.Record // to be put
}

// flush adds the records that were put to the pipeline.
func (x *rowTx) flush() {
	x.p.store(x.changes)
	x.changes = nil
}

func (x *rowTx) send() error {
	p := x.p
	x.p = &pipeline{}
	return p.run(x.ctx, x.conn)
}

// Lock locks records.
func (x *rowTx) Lock(keys []driver.Key, skip bool) ([]rowstore.Locked, error) {
	part := sortKeys(len(keys), func(i int) *driver.Key { return &keys[i] })
	out := make([]rowstore.Locked, len(keys))
	x.flush()
	x.db.addLock(x.p, part, skip, out)
	if err := x.send(); err != nil {
		return nil, err
	}
	for i := range out {
		if l := &out[i]; l.Err == nil && l.Record.State == driver.Absent && skip {
			l.Err = rowstore.ErrLocked
		} else if l.Err == nil && l.Record.State != driver.Absent && l.Record.Key != keys[part.index[i]] {
			l.Record, l.Err = driver.Record{}, errCollision
		}
	}
	return out, nil
}

// Put writes a record.
func (x *rowTx) Put(_ *rowstore.Locked, after *driver.Record) error {
	x.changes = append(x.changes, *after)
	return nil
}

// Exec adds a statement.
func (x *rowTx) Exec(query string, args ...any) error {
	x.flush()
	x.p.exec("write", numbered(query), columns(args)...)
	return nil
}

// Query runs a query.
func (x *rowTx) Query(row func(rowstore.Row) error, query string, args ...any) error {
	x.flush()
	x.p.query("read", func(found pgx.Rows) error { return eachRow(found, row) }, numbered(query), columns(args)...)
	return x.send()
}

// numberedOnce remembers what numbered made of the statements of package rowstore, which are few.
var numberedOnce sync.Map

// numbered turns the placeholders of package rowstore into PostgreSQL's.
func numbered(query string) string {
	if known, ok := numberedOnce.Load(query); ok {
		return known.(string)
	}
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	numberedOnce.Store(query, b.String())
	return b.String()
}

// columns are arguments of package rowstore as they are stored.
func columns(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case string:
			out[i] = []byte(v)
		case rowstore.Text:
			out[i] = bytesOrNull(v)
		case rowstore.Hash:
			out[i] = uuid(v)
		case time.Time:
			out[i] = v
		default:
			out[i] = a
		}
	}
	return out
}
