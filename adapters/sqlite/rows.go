package sqlite

import (
	"context"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// rows is what package rowstore needs of the database.
type rows struct{ db *DB }

// Layout says how records are stored.
func (d rows) Layout() rowstore.Layout {
	return rowstore.Layout{
		Columns: recordColumns,
		Record:  scanRecord,
		Check:   d.db.checkWork,
	}
}

// Atomic runs f in the next write transaction.
func (d rows) Atomic(ctx context.Context, items int, f func(rowstore.Tx) error) error {
	return d.db.write(ctx, items, func(t *txn) error { return f(rowTx{t}) })
}

// Read runs a query on the pool of readers.
func (d rows) Read(ctx context.Context, row func(rowstore.Row) error, query string, args ...any) error {
	return explain(d.db.path, rowstore.Query(ctx, d.db.reader, row, query, columns(args)...))
}

// rowTx is a write transaction as package rowstore sees it.
type rowTx struct{ *txn }

// Lock reads records: the transaction has the only write lock.
func (x rowTx) Lock(keys []rowstore.ID, _ rowstore.Mode) ([]rowstore.Locked, error) {
	drawn, err := x.draw()
	if err != nil {
		return nil, err
	}
	out := make([]rowstore.Locked, len(keys))
	for i := range out {
		out[i].Now, out[i].Drawn = x.now, uint64(drawn+int64(i))
	}
	if err := x.find(keys, out); err != nil {
		return nil, err
	}
	for i := range out {
		if err := x.overtaken(&out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// find reads the records of keys, which are in the order of their places.
func (t *txn) find(keys []rowstore.ID, out []rowstore.Locked) error {
	read := func(v rowstore.Row) error {
		r, err := scanRecord(v)
		rowstore.Found(keys, out, rowstore.Place(v.Bytes(0)), v.Text(2), r, err)
		return nil
	}
	if len(keys) == 1 {
		return t.s.query(read, sqlRecordByPlace, []byte(keys[0].Place))
	}
	args := make([]any, findStep)
	for from := 0; from < len(keys); from += findStep {
		for i := range args {
			args[i] = []byte(keys[min(from+i, len(keys)-1)].Place)
		}
		if err := t.s.query(read, sqlRecordsByPlace, args...); err != nil {
			return err
		}
	}
	return nil
}

// overtaken reports a reserved token that is not the record's next one any more: others drew one meanwhile, or the record
// was purged with a token that was drawn after the reservation (FM12).
func (x rowTx) overtaken(l *rowstore.Locked) error {
	if x.tokens == nil {
		return nil
	}
	floor := l.Record.Token
	if l.Record.State == driver.Absent {
		if err := x.load(); err != nil {
			return err
		}
		floor = uint64(x.purged)
	}
	if l.Drawn <= floor {
		return errAgain
	}
	return nil
}

// Put writes a record.
func (x rowTx) Put(l *rowstore.Locked, after *driver.Record) error {
	x.use(int64(after.Token))
	if l.Record.State != driver.Absent {
		if err := x.store(l.Record.Token, after); err != nil {
			return err
		}
		return rowstore.WriteCase(x, &l.Record, after)
	}
	made, err := x.insert(after, rowstore.PlaceOf(&after.Key))
	switch {
	case err != nil:
		return err
	case !made:
		return rowstore.ErrCollision
	case x.tokens != nil:
		return x.touch(after.Token) // a reserved token may be of a block that a sweep knows already
	}
	return nil
}

// Drop removes a record (see the trigger semel_record_gone).
func (x rowTx) Drop(l *rowstore.Locked) error {
	if l.Record.State == driver.Absent {
		return nil
	}
	return x.erase(l.Record.Token)
}

// Works writes what comes with records.
func (x rowTx) Works(w []driver.Work, which []int) error { return x.works(w, which) }

// Exec runs a statement.
func (x rowTx) Exec(query string, args ...any) error {
	_, err := x.s.exec(query, columns(args)...)
	return err
}

// Query runs a query.
func (x rowTx) Query(row func(rowstore.Row) error, query string, args ...any) error {
	return x.s.query(row, query, columns(args)...)
}

// columns are arguments of package rowstore as they are stored.
func columns(args []any) []any { return rowstore.Values(args, func(s string) any { return s }) }
