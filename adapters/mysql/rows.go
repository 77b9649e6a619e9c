package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// rows is what package rowstore needs of the database.
type rows struct{ db *DB }

// Layout describes how records are stored.
func (d rows) Layout() rowstore.Layout {
	return rowstore.Layout{
		Columns: "r." + strings.Join(recordColumns, ", r."),
		Record:  readRecord,
		Now:     d.db.now,
		Check:   d.db.checkWork,

		SharePeriods: "SELECT version FROM semel_schema LOCK IN SHARE MODE",
		LockPeriods:  "SELECT version FROM semel_schema FOR UPDATE",
	}
}

// now reads the clock in a transaction.
func (db *DB) now(tx rowstore.SQL) (now time.Time, err error) {
	err = tx.Query(func(r rowstore.Row) error { now = r.Time(0); return nil }, "SELECT "+db.clock)
	return now, err
}

// deadlockTries is how often a transaction runs that deadlocks.
const deadlockTries = 10

// Atomic runs f in a transaction, again after a deadlock.
func (d rows) Atomic(ctx context.Context, _ int, f func(rowstore.Tx) error) error {
	return d.db.atomic(ctx, func(x *rowTx) error { return f(x) })
}

func (db *DB) atomic(ctx context.Context, f func(*rowTx) error) (err error) {
	if db.o.ReadOnly {
		return fmt.Errorf("database %s was opened read-only: %w", db.name, driver.ErrNotCommitted)
	}
	for try := 1; ; try++ {
		x := &rowTx{ctx: ctx, db: db, item: -1}
		if err = x.once(f); code(err) != errDeadlock {
			return err
		}
		if try == deadlockTries && x.item >= 0 {
			return &driver.ItemError{Index: x.item, Err: err, Transient: true}
		}
		if try == deadlockTries || ctx.Err() != nil {
			return err
		}
	}
}

// acquire takes a connection of the pool.
func (db *DB) acquire(ctx context.Context) (*sql.Conn, error) {
	c, err := db.pool.Conn(ctx)
	select {
	case <-db.closing:
		if err == nil {
			_ = c.Close() // returns it to the pool
		}
		return nil, fmt.Errorf("%w: %w", driver.ErrNotCommitted, ErrClosed)
	default:
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w: %w: %w", db.name, driver.ErrNotCommitted, driver.ErrOutage, explain(err))
	}
	return c, nil
}

// once runs f in a transaction.
func (x *rowTx) once(f func(*rowTx) error) error {
	c, err := x.db.acquire(x.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // returns it to the pool
	x.run = c
	if _, err = x.exec("START TRANSACTION"); err == nil {
		if err = f(x); err == nil {
			err = x.end()
		}
	}
	if err != nil {
		rollback(x.ctx, c)
		return wrote(err, false)
	}
	if _, err = x.exec("COMMIT"); err != nil {
		rollback(x.ctx, c)
		return wrote(err, true)
	}
	x.committed()
	return nil
}

// Read runs a query on the pool.
func (d rows) Read(ctx context.Context, row func(rowstore.Row) error, query string, args ...any) error {
	return explain(rowstore.Query(ctx, d.db.pool, row, query, columns(args)...))
}

// rowTx is an open transaction.
type rowTx struct {
	ctx   context.Context
	db    *DB
	run   runner
	puts  []driver.Record
	drops []rowstore.Place
	floor uint64          // the greatest token of a dropped record
	item  int             // whose effects run; -1: none
	wakes map[string]bool // queues that have something deliverable after the commit; true: the transaction made it
}

// exec runs a statement and returns the number of rows that it matched.
func (x *rowTx) exec(query string, args ...any) (int64, error) {
	res, err := x.run.ExecContext(x.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Exec runs a statement.
func (x *rowTx) Exec(query string, args ...any) error {
	if err := x.flush(); err != nil {
		return err
	}
	_, err := x.exec(query, columns(args)...)
	return err
}

// Query runs a query.
func (x *rowTx) Query(row func(rowstore.Row) error, query string, args ...any) error {
	if err := x.flush(); err != nil {
		return err
	}
	return x.query(row, query, columns(args)...)
}

func (x *rowTx) query(row func(rowstore.Row) error, query string, args ...any) error {
	return rowstore.Query(x.ctx, x.run, row, query, args...)
}

const (
	// lockStep is how many records one statement locks, and flushBytes about how many bytes one writes.
	lockStep   = 1000
	flushBytes = 2 << 20
)

// Lock locks records. With rowstore.Make, keys without a record get a placeholder, a row of state 0: Put overwrites it, and
// Drop removes it. INSERT IGNORE would take a shared lock on existing rows first, and two sessions would then wait for each other.
func (x *rowTx) Lock(keys []rowstore.ID, mode rowstore.Mode) ([]rowstore.Locked, error) {
	if err := x.flush(); err != nil {
		return nil, err
	}
	out := make([]rowstore.Locked, len(keys))
	for from := 0; from < len(keys); from += lockStep {
		to := min(from+lockStep, len(keys))
		if err := x.lock(keys[from:to], mode, out[from:to]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (x *rowTx) lock(keys []rowstore.ID, mode rowstore.Mode, out []rowstore.Locked) error {
	if mode == rowstore.Make {
		args := make([]any, 0, 2*len(keys))
		for i := range keys {
			args = append(args, []byte(keys[i].Place), []byte(keys[i].Key.Consumer))
		}
		const row = "(?, ?, 0, 0, 0, '', 0, 0)"
		_, err := x.exec("INSERT INTO semel_record (place, consumer, token, state, bits, nonce, created_at, updated_at) VALUES "+
			row+strings.Repeat(", "+row, len(keys)-1)+" ON DUPLICATE KEY UPDATE place = VALUES(place)", args...)
		if err != nil {
			return err
		}
	}
	places := make([]any, len(keys))
	for i := range keys {
		places[i] = []byte(keys[i].Place)
	}
	skip := ""
	if mode == rowstore.Skip {
		skip = " SKIP LOCKED"
		for i := range out {
			out[i].Err = rowstore.ErrLocked // or there is none
		}
	}
	err := x.query(func(v rowstore.Row) error {
		r, err := readRecord(v)
		rowstore.Found(keys, out, rowstore.Place(v.Bytes(0)), v.Text(2), r, err)
		return nil
	}, "SELECT "+strings.Join(recordColumns, ", ")+" FROM semel_record FORCE INDEX (PRIMARY) WHERE place IN "+values(len(places))+
		" AND state <> 0 ORDER BY place FOR UPDATE"+skip, places...)
	if err != nil {
		return err
	}
	return x.draw(out)
}

// draw sets time and tokens of locked records. A token is the time, or one more than the greatest of a purged record, and than the
// last one of this process.
func (x *rowTx) draw(out []rowstore.Locked) error {
	var now, floor int64
	read := func(r rowstore.Row) error { now, floor = r.Int(0), r.Int(1); return nil }
	if err := x.query(read, "SELECT "+x.db.clock+", purged FROM semel_floor"); err != nil {
		return err
	}
	x.db.floor.Store(floor)
	var first int64
	for n := int64(len(out)); ; {
		last := x.db.last.Load()
		first = max(now, floor+1, last+1)
		if x.db.last.CompareAndSwap(last, first+n-1) {
			break
		}
	}
	for i := range out {
		out[i].Now, out[i].Drawn = time.UnixMicro(now), uint64(first)+uint64(i)
	}
	return nil
}

// Put writes a record, with the next other statement.
func (x *rowTx) Put(l *rowstore.Locked, after *driver.Record) error {
	if l.Record.Case() || after.Case() {
		if err := rowstore.WriteCase(x, &l.Record, after); err != nil {
			return err
		}
	}
	x.puts = append(x.puts, *after)
	return nil
}

// Drop removes a record or a placeholder, with the next other statement.
func (x *rowTx) Drop(l *rowstore.Locked) error {
	place := l.Place
	if l.Record.State != driver.Absent {
		place, x.floor = rowstore.PlaceOf(&l.Record.Key), max(x.floor, l.Record.Token)
	}
	x.drops = append(x.drops, place)
	return nil
}

// flush writes what Put and Drop gathered.
func (x *rowTx) flush() error {
	puts, drops := x.puts, x.drops
	x.puts, x.drops = nil, nil
	var args []any
	n, size := 0, 0
	for i := range puts {
		args = append(args, recordValues(&puts[i])...)
		n++
		if size += len(puts[i].Result) + len(puts[i].Reason); size < flushBytes && n < lockStep && i < len(puts)-1 {
			continue
		}
		if _, err := x.exec(sqlUpsert[0]+sqlUpsert[1]+strings.Repeat(", "+sqlUpsert[1], n-1)+sqlUpsert[2], args...); err != nil {
			return err
		}
		args, n, size = args[:0], 0, 0
	}
	for part := range slices.Chunk(drops, lockStep) {
		places := make([]any, len(part))
		for i := range part {
			places[i] = []byte(part[i])
		}
		for _, table := range [...]string{"record", "step", "audit", "duplicate", "case"} {
			if _, err := x.exec("DELETE FROM semel_"+table+" WHERE place IN "+values(len(places)), places...); err != nil {
				return err
			}
		}
	}
	return nil
}

// end writes what must come last: the row of the floor is locked for as short as can be.
func (x *rowTx) end() error {
	err := x.flush()
	if err == nil && x.floor > 0 {
		_, err = x.exec("UPDATE semel_floor SET purged = ? WHERE purged < ?", int64(x.floor), int64(x.floor))
	}
	return err
}

// columns are arguments of package rowstore as they are stored: text is bytes.
func columns(args []any) []any {
	return rowstore.Values(args, func(s string) any { return []byte(s) })
}
