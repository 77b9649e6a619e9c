package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// rows is what package rowstore needs of the database.
type rows struct{ db *DB }

// Layout says how records are stored.
func (d rows) Layout() rowstore.Layout {
	return rowstore.Layout{
		Columns: recordColumns,
		Record:  func(r rowstore.Row) (driver.Record, error) { return scanRecord(r) },
	}
}

// Atomic runs f in the next write transaction.
func (d rows) Atomic(ctx context.Context, items int, f func(rowstore.Tx) error) error {
	return d.db.write(ctx, items, func(t *txn) error { return f(rowTx{t}) })
}

// Read runs a query on the pool of readers.
func (d rows) Read(ctx context.Context, row func(rowstore.Row) error, query string, args ...any) error {
	for i := range args {
		args[i] = column(args[i])
	}
	return d.db.readRows(ctx, func(v []any) error { return row(v) }, query, args...)
}

// rowTx is a write transaction as package rowstore sees it.
type rowTx struct{ *txn }

// Lock reads records: the transaction has the only write lock.
func (x rowTx) Lock(keys []driver.Key, _ bool) ([]rowstore.Locked, error) {
	out := make([]rowstore.Locked, len(keys))
	hashes, which := hashes(keys, func(k *driver.Key) *driver.Key { return k }), make([]int, len(keys))
	for i := range which {
		which[i] = i
	}
	found, err := x.findAll(hashes, which)
	if err != nil {
		return nil, err
	}
	drawn, err := x.draw()
	if err != nil {
		return nil, err
	}
	for i, k := range keys {
		r := found[k]
		out[i] = rowstore.Locked{Record: r.Record, Err: r.err, Now: x.now, Drawn: uint64(drawn + int64(i))}
	}
	return out, nil
}

// Put writes a record.
func (x rowTx) Put(l *rowstore.Locked, after *driver.Record) error {
	x.use(int64(after.Token))
	return x.store(l.Record.Token, after)
}

// Exec runs a statement.
func (x rowTx) Exec(query string, args ...any) error {
	_, err := x.s.exec(query, columns(args)...)
	return err
}

// Query runs a query.
func (x rowTx) Query(row func(rowstore.Row) error, query string, args ...any) error {
	var r rowstore.Row
	return x.s.query(func(v []sqldriver.Value) error {
		r = r[:0]
		for i := range v {
			r = append(r, v[i])
		}
		return row(r)
	}, query, columns(args)...)
}

func columns(args []any) []sqldriver.Value {
	out := make([]sqldriver.Value, len(args))
	for i, a := range args {
		out[i] = column(a)
	}
	return out
}

// column is an argument of package rowstore as it is stored.
func column(v any) sqldriver.Value {
	switch v := v.(type) {
	case time.Time:
		return micro(v)
	case bool:
		return flag(v)
	case rowstore.Hash:
		return v[:]
	case rowstore.Text:
		return string(v)
	}
	return v
}
