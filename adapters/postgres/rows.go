package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// rows is what package rowstore needs of the database. Its statements are planned each time: they are rare, and a plan that
// a session made while the tables were empty would read them from end to end for as long as the session lasts.
type rows struct{ db *DB }

// sqlIdlePlan is sqlIdle, and has statements planned for their parameters. Functions have their own settings.
const sqlIdlePlan = sqlIdle + ", set_config('plan_cache_mode', 'force_custom_plan', true)"

// Layout says how records are stored.
func (d rows) Layout() rowstore.Layout {
	return rowstore.Layout{
		Columns: "semel_row(r)",
		Record:  func(r rowstore.Row) (driver.Record, error) { return readRecord(r.Bytes(0)) },
		Check:   d.db.checkWork,

		LockPeriods: "LOCK TABLE semel_long_term IN ACCESS EXCLUSIVE MODE",
	}
}

// Atomic runs f in a transaction. Its writes are sent with its next query, or with COMMIT.
func (d rows) Atomic(ctx context.Context, items int, f func(rowstore.Tx) error) error {
	err := d.atomic(ctx, joinAll, f)
	if isSeveral(err) {
		err = apart{d}.Atomic(ctx, items, f)
	}
	return err
}

// apart is rows for works whose rows were refused together: each row has a statement of its own, so that the refusal has a culprit.
type apart struct{ rows }

// Atomic is that of rows.
func (d apart) Atomic(ctx context.Context, _ int, f func(rowstore.Tx) error) error {
	return d.atomic(ctx, joinNone, f)
}

func (d rows) atomic(ctx context.Context, j join, f func(rowstore.Tx) error) error {
	begin := func(x *rowTx) error {
		x.join = j
		x.p.exec("begin", sqlBegin)
		x.p.exec("bound the transaction", sqlIdlePlan, strconv.Itoa(int(millis(d.db.o.MaxTx))))
		return f(x)
	}
	err := d.try(ctx, false, begin)
	if blameless(err) && !isSeveral(err) {
		err = d.try(ctx, true, begin)
	}
	return err
}

// try runs f, whose pipeline begins with BEGIN, and commits.
func (d rows) try(ctx context.Context, singly bool, f func(*rowTx) error) error {
	return d.db.with(ctx, func(conn *pgxpool.Conn) error {
		x := d.db.rowTx(ctx, conn)
		x.singly = singly
		err := f(x)
		if err == nil {
			err = x.commit()
		}
		if err != nil && x.effects {
			d.db.clean(ctx, conn.Conn())
		}
		return err
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
	conn    sender
	p       *pipeline
	changes []driver.Record // to be put
	which   []int           // the works that were written
	// effects: there is SQL of handlers. counts: its rows are counted, so that COMMIT is sent after the results. singly:
	// each statement waits for the result of the one before, so that a refusal has a culprit.
	effects, counts, singly bool
	made                    map[*rowstore.Locked]placeholder // see Lock
	join                    join
}

// rowTx is a transaction that somebody else began, and commits.
func (db *DB) rowTx(ctx context.Context, conn sender) *rowTx {
	return &rowTx{ctx: ctx, db: db, conn: conn, p: &pipeline{}, join: joinAll}
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

// write sends what was written.
func (x *rowTx) write() error {
	x.flush()
	return x.send()
}

func (x *rowTx) commit() error {
	x.flush()
	if x.counts {
		if err := x.send(); err != nil {
			return err
		}
	}
	x.p.commit()
	err := x.send()
	if len(x.which) == 1 && blameless(err) {
		// A deferred constraint or trigger, and no other item to blame.
		return &driver.ItemError{Index: x.which[0], Err: err}
	}
	return err
}

// sqlLockRecords locks records. 1 places 2 leave out locked ones 3 wait. See semel_lock.
const sqlLockRecords = "SELECT * FROM semel_lock($1, $2, $3)"

// Lock locks records. They come in the order of their places. With rowstore.Make, keys without a record get a placeholder:
// Put overwrites it, and Drop removes it.
func (x *rowTx) Lock(keys []rowstore.ID, mode rowstore.Mode) ([]rowstore.Locked, error) {
	var made map[string]int64
	if mode == rowstore.Make {
		var err error
		if made, err = x.hold(keys); err != nil {
			return nil, err
		}
	}
	places, out, skip := make(bytess, len(keys)), make([]rowstore.Locked, len(keys)), mode == rowstore.Skip
	for i := range keys {
		places[i] = []byte(keys[i].Place)
		if skip {
			out[i].Err = rowstore.ErrLocked // or there is none
		}
	}
	read := func(rows pgx.Rows) error {
		var (
			found []byte
			drawn int64
		)
		for at := 0; rows.Next(); at++ {
			var l rowstore.Locked
			var place []byte
			if err := rows.Scan(&place, &found, &l.Now, &drawn); err != nil {
				return err
			}
			for at < len(keys) && string(keys[at].Place) != string(place) {
				at++
			}
			if at == len(keys) {
				return fmt.Errorf("%w: a record that was not asked for", errClient)
			}
			if l.Record, l.Err = readRecord(found); l.Err == nil && l.Record.Key != keys[at].Key {
				l.Err = rowstore.ErrCollision
			}
			token, fresh := made[string(place)]
			if fresh = fresh && l.Err == nil; fresh {
				x.made[&out[at]] = placeholder{place, token}
			}
			if fresh || l.Err != nil {
				l.Record = driver.Record{}
			}
			l.Drawn = uint64(drawn)
			out[at] = l
		}
		return rows.Err()
	}
	x.flush()
	x.p.query("lock records", read, sqlLockRecords, places, skip, millis(x.db.o.LockWait))
	return out, x.send()
}

// placeholder is the row that keeps others from making the record of a key.
type placeholder struct {
	place []byte
	token int64
}

// hold makes placeholders for keys without a record, and returns their tokens by place.
func (x *rowTx) hold(keys []rowstore.ID) (map[string]int64, error) {
	part, claims := keyed{}, make([]driver.Claim, len(keys))
	for i := range keys {
		claims[i].Key = keys[i].Key
		if i == 0 || keys[i].Place != keys[i-1].Place {
			part.places, part.index = append(part.places, []byte(keys[i].Place)), append(part.index, i)
		}
	}
	made := map[string]int64{}
	x.made = map[*rowstore.Locked]placeholder{}
	read := func(rows pgx.Rows) error {
		var (
			place, found []byte
			token        int64
			now          time.Time
		)
		for rows.Next() {
			if err := rows.Scan(&place, &token, &now, &found); err != nil {
				return err
			}
			if found == nil {
				made[string(place)] = token
			}
		}
		return rows.Err()
	}
	x.flush()
	x.p.query("lock keys", read, sqlClaim, claimArgs(part, claims, nil, x.db.o.LockWait)...)
	return made, x.send()
}

// Put writes a record and its case (semel_store). Records of new keys are made by claims in one statement.
func (x *rowTx) Put(_ *rowstore.Locked, after *driver.Record) error {
	x.changes = append(x.changes, *after)
	return nil
}

// Drop removes a record, or a placeholder.
func (x *rowTx) Drop(l *rowstore.Locked) error {
	if l.Record.State != driver.Absent {
		x.flush()
		x.p.exec("erase a record", "SELECT semel_erase($1)", placeOf(&l.Record.Key))
	} else if h, ok := x.made[l]; ok {
		x.p.exec("drop a placeholder", "SELECT semel_unclaim(ARRAY[$1::bytea], ARRAY[$2::bigint], ARRAY[$3::uuid])", h.place,
			h.token, uuid(driver.Nonce{}))
	}
	return nil
}

// Works adds what comes with records.
func (x *rowTx) Works(w []driver.Work, which []int) error {
	x.flush()
	x.which = which
	alone := true // the effects are those of one run
	for _, i := range which {
		x.effects = x.effects || len(statements(&w[i])) > 0
		alone = alone && w[i].Finish.Hold.Key == w[which[0]].Finish.Hold.Key
	}
	if x.effects {
		x.p.limit(x.ctx, x.db, alone)
	}
	x.counts = counts(w, which)
	if x.singly {
		return x.oneByOne(w, which)
	}
	if err := x.db.addWorks(x.ctx, x.p, x.join, w, which); err != nil {
		return notSent(err)
	}
	return nil
}

// oneByOne is Works for effects that were refused without naming an item. Deferred constraints are checked at the end of
// every item, and arguments that cannot be sent are found one at a time. Statements that only work one after the other (a
// table, then its rows) end here.
func (x *rowTx) oneByOne(w []driver.Work, which []int) error {
	limits := x.p.limits
	rest := func() error {
		if err := x.db.addRest(x.ctx, x.p, w, which); err != nil {
			return notSent(err)
		}
		return nil
	}
	last := slices.ContainsFunc(which, func(i int) bool { return sets(&w[i]) }) // see addWorks
	if last {
		if err := rest(); err != nil {
			return err
		}
	}
	if err := x.send(); err != nil {
		return err
	}
	for _, i := range which {
		if err := limits.runEffects(x.ctx, connOf(x.conn), i, statements(&w[i])); err != nil {
			return err
		}
	}
	if last {
		return nil
	}
	return rest()
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

// numbered turns the placeholders of package rowstore into PostgreSQL's, and removes its quotes.
func numbered(query string) string {
	if known, ok := numberedOnce.Load(query); ok {
		return known.(string)
	}
	var b strings.Builder
	for i, part := range strings.Split(strings.ReplaceAll(query, "`", ""), "?") {
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
		case rowstore.Place:
			out[i] = []byte(v)
		case driver.Nonce:
			out[i] = uuid(v)
		case rowstore.Name:
			if isText(string(v)) { // else NULL, which equals nothing
				out[i] = string(v)
			}
		case time.Time:
			if out[i] = a; v.IsZero() {
				out[i] = nil
			}
		default:
			out[i] = a
		}
	}
	return out
}
