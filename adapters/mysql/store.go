package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/driver/sqltext"
)

// Store keeps idempotency records. Plain claims and completions are in fast.go; package rowstore does the rest.
type Store struct {
	*slowPath
	*workers
	db *DB
}

// slowPath and workers are embedded under names that programs do not see.
type (
	slowPath = rowstore.Store
	workers  = rowstore.Workers
)

// Store returns the record store of the database; all of them are one.
func (db *DB) Store() *Store {
	return &Store{slowPath: rowstore.New(rows{db}), workers: rowstore.NewWorkers(rows{db}), db: db}
}

// Features describes the store.
func (s *Store) Features() driver.StoreFeatures {
	durable, caveats := s.db.facts.durability()
	return driver.StoreFeatures{
		Name: s.db.name, Kind: "mysql", Durable: durable, ServerClock: true, Caveats: caveats, Emits: true, MaxTx: s.db.o.MaxTx,
		MaxResult: s.db.facts.MaxPacket / 4, ListsUncertain: true, ClaimsAtCommit: true,
	}
}

// Joins reports that q is a queue of the same [DB], so that its acknowledgements commit with the record.
func (s *Store) Joins(q driver.Queue) bool {
	mine, ok := driver.Settles[*Queue](q)
	return ok && mine.db == s.db
}

// DeadLetterQueue returns the place for the dead letters of another queue: the queue of that name in this database.
func (s *Store) DeadLetterQueue(queue string) driver.DeadLetterQueue { return s.db.Queue(queue) }

func (db *DB) checkWork(w *driver.Work) error {
	err := rowstore.CheckWork(w, func(a *driver.Settlement) error { return rowqueue.CheckAck(rows{db}, a) })
	for i := 0; i < len(w.Emit) && err == nil; i++ {
		err = rowstore.Wrap(db.checkMessage(&w.Emit[i]), "emitted message %d", i)
	}
	return err
}

// Works writes what comes with records: effects, then messages and acks.
func (x *rowTx) Works(w []driver.Work, which []int) error {
	if err := x.flush(); err != nil {
		return err
	}
	if err := x.effects(w, which); err != nil {
		return err
	}
	var emit []driver.Message
	var acks []*driver.Settlement
	for _, i := range which {
		emit = append(emit, w[i].Emit...)
		if w[i].Ack != nil {
			acks = append(acks, w[i].Ack)
		}
	}
	if err := x.lockGroups(acks, emit); err != nil {
		return err
	}
	if err := x.send(emit); err != nil {
		return err
	}
	if len(acks) == 0 {
		return nil
	}
	_, plain, err := x.ack(acks)
	if !plain && err == nil {
		_, err = x.settle(acks)
	}
	return err // a message that was delivered again is none: the record decided
}

// effects runs the statements of works. Rows of one table that follow each other go together.
func (x *rowTx) effects(w []driver.Work, which []int) error {
	rows, last := &sqltext.Inserts{Bytes: flushBytes}, 0
	for _, i := range which {
		e, _ := w[i].Effects.(*driver.Statements)
		for nr := 0; e != nil && nr < len(e.List); nr++ {
			st := &e.List[nr]
			if rows.Is(st) {
				last = rows.Add(i, nr, st, last)
				continue
			}
			err := x.insert(rows)
			if err == nil {
				err = x.effect(i, nr, st)
			}
			if err != nil {
				return err
			}
			last = 0
		}
	}
	err := x.insert(rows)
	x.item = -1
	return err
}

// insert writes rows. If the server refuses a statement for several, nothing of it is written, and they go one by one.
func (x *rowTx) insert(rows *sqltext.Inserts) error {
	for _, part := range rows.Take() {
		done, err := x.together(part)
		for _, r := range part {
			if !done && err == nil {
				err = x.effect(r.Item, r.Nr, r.Statement)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// together writes rows with one statement. done is false if that was refused, and the transaction is open as before.
func (x *rowTx) together(rows []sqltext.Row) (done bool, err error) {
	if len(rows) == 1 {
		return false, nil
	}
	p, err := parse(rows[0].InsertRow('`'))
	var args []any
	for i := 0; i < len(rows) && err == nil; i++ {
		args, err = p.Values(args, rows[i].Args, sqltext.Value)
	}
	if err == nil {
		x.item = rows[0].Item
		_, err = x.exec(p.SQL+strings.Repeat(", "+values(p.Args), len(rows)-1), args...)
		switch {
		case err == nil || code(err) == errDeadlock || outage(err):
			return true, err
		case code(err) == 0 && !errors.Is(err, mysqldriver.ErrPktTooLarge) || x.db.rollsBack(err): // others would commit by themselves
			return true, refused(x.item, err)
		}
	}
	return false, nil // one of them is refused, and its own statement shows it
}

// effect runs the statement of an item.
func (x *rowTx) effect(item, nr int, st *driver.Statement) error {
	sql := st.SQL
	if st.Columns != nil {
		sql = st.InsertRow('`')
	}
	x.item = item
	err := x.statement(st, sql)
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("statement %d (%s): %w", nr+1, sqltext.Head(sql), err)
	if errors.Is(err, errStatement) {
		return &driver.ItemError{Index: item, Err: wrapped}
	}
	return refused(item, wrapped)
}

// errStatement marks a statement that was refused here.
var errStatement = errors.New("refused")

func (x *rowTx) statement(st *driver.Statement, sql string) error {
	p, err := parse(sql)
	var args []any
	if err == nil {
		args, err = p.Values(nil, st.Args, sqltext.Value)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errStatement, err)
	}
	n, err := x.exec(p.SQL, args...)
	if err == nil && st.Rows >= 0 && n != int64(st.Rows) {
		return fmt.Errorf("%w: changed %d rows, must change %d", errStatement, n, st.Rows)
	}
	return err
}

// parse reads the statement of an effect.
func parse(sql string) (*sqltext.Parsed, error) {
	p, err := sqltext.Parse(sqltext.Lexer{In: sql, MySQL: true}, refuseOwn)
	if err == nil && !slices.Contains(verbs, p.Verb) {
		err = fmt.Errorf("%s cannot be an effect: want %s, because other statements end semel's transaction or change the session",
			p.Verb, strings.Join(verbs, ", "))
	}
	return p, err
}

// verbs are what effects begin with.
var verbs = []string{"INSERT", "UPDATE", "DELETE", "REPLACE", "SELECT", "WITH"}

// refuseOwn refuses the names of semel's tables.
func refuseOwn(l *sqltext.Lexer) error {
	name := strings.ToLower(strings.Trim(l.Text, "`"))
	if (l.Kind == sqltext.WordToken || strings.HasPrefix(l.Text, "`")) && strings.HasPrefix(name, "semel_") {
		return fmt.Errorf("it names %s: names that begin with semel_ are semel's own", name)
	}
	return nil
}
