package mysql

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/driver/sqltext"
)

// Store keeps idempotency records. Plain claims and completions are in fast.go; package rowstore does the rest.
type Store struct {
	*slowPath
	db *DB
}

// slowPath is embedded under a name that programs do not see.
type slowPath = rowstore.Store

// Store returns the record store of the database; all of them are one.
func (db *DB) Store() *Store { return &Store{slowPath: rowstore.New(rows{db}), db: db} }

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
	return rowstore.CheckWork(w, func(a *driver.Settlement) error {
		rc, ok := a.Receipt.(*receipt)
		if !ok || rc.q.db != db {
			return fmt.Errorf("receipt %T is of another queue: %w", a.Receipt, driver.ErrUnsupported)
		}
		return rc.q.check(a)
	})
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
		for at := range w[i].Emit {
			if err := checkMessage(&w[i].Emit[at]); err != nil {
				return &driver.ItemError{Index: i, Err: fmt.Errorf("emit: message %d: %w", at, err)}
			}
		}
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
	for len(acks) > 0 {
		q := acks[0].Receipt.(*receipt).q
		mine := func(a *driver.Settlement) bool { return a.Receipt.(*receipt).q.name == q.name }
		others := slices.DeleteFunc(slices.Clone(acks), mine)
		those := slices.DeleteFunc(acks, func(a *driver.Settlement) bool { return !mine(a) })
		_, plain, err := x.ack(those)
		if !plain && err == nil {
			_, err = x.settle(q, those)
		}
		if err != nil { // a message that was delivered again is none: the record decided
			return err
		}
		acks = others
	}
	return nil
}

// maxRows bounds the rows of one INSERT.
const maxRows = 500

// rowsOf are rows of one table that follow each other, and go with one statement.
type rowsOf struct {
	list  []*driver.Statement
	items []int
	at    []int // the place of each in its item
}

// joins reports whether a row goes with the others.
func (r *rowsOf) joins(st *driver.Statement) bool {
	if len(r.list) == 0 {
		return true
	}
	return len(r.list) < maxRows && st.Table == r.list[0].Table && slices.Equal(st.Columns, r.list[0].Columns)
}

// effects runs the statements of works.
func (x *rowTx) effects(w []driver.Work, which []int) error {
	var rows rowsOf
	for _, i := range which {
		e, _ := w[i].Effects.(*driver.Statements)
		if e == nil {
			continue
		}
		for at := range e.List {
			st := &e.List[at]
			if st.Columns == nil || !rows.joins(st) {
				if err := x.insert(&rows); err != nil {
					return err
				}
			}
			if st.Columns != nil {
				rows.list, rows.items, rows.at = append(rows.list, st), append(rows.items, i), append(rows.at, at)
			} else if err := x.effect(st, i, at); err != nil {
				return err
			}
		}
	}
	err := x.insert(&rows)
	x.item = -1
	return err
}

// insert writes rows with one statement. If the server refuses it, nothing of it is written, and they go one by one.
func (x *rowTx) insert(rows *rowsOf) error {
	r := *rows
	*rows = rowsOf{}
	var args []sqldriver.Value
	var err error
	if len(r.list) > 1 {
		_, err = sqltext.Parse(sqltext.Lexer{In: insertRows(r.list[0], 1), MySQL: true}, refuseOwn)
	}
	for i := 0; len(r.list) > 1 && i < len(r.list) && err == nil; i++ {
		p := &sqltext.Parsed{Args: len(r.list[i].Args)}
		for at := range r.list[i].Args {
			p.Order = append(p.Order, at)
		}
		args, err = p.Values(args, r.list[i].Args, sqltext.Value)
	}
	if len(r.list) > 1 && err == nil {
		x.item = r.items[0]
		_, err = x.exec(insertRows(r.list[0], len(r.list)), anys(args)...)
		if err == nil || code(err) == errDeadlock || outage(err) {
			return err
		}
		if code(err) == 0 || x.db.rollsBack(err) { // behind it, each statement would commit by itself
			return refused(x.item, err)
		}
	}
	for i, st := range r.list {
		if err := x.effect(st, r.items[i], r.at[i]); err != nil {
			return err
		}
	}
	return nil
}

// insertRows is the statement that inserts n rows. [driver.Statement.InsertRows] quotes names as standard SQL does.
func insertRows(st *driver.Statement, n int) string {
	name := func(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }
	columns := make([]string, len(st.Columns))
	for i, c := range st.Columns {
		columns[i] = name(c)
	}
	schema, table, qualified := strings.Cut(st.Table, ".")
	if schema = name(schema); qualified {
		schema += "." + name(table)
	}
	row := values(len(columns))
	return "INSERT INTO " + schema + " (" + strings.Join(columns, ", ") + ") VALUES " + row + strings.Repeat(", "+row, n-1)
}

// effect runs the statement of an item.
func (x *rowTx) effect(st *driver.Statement, item, at int) error {
	sql := st.SQL
	if st.Columns != nil {
		sql = insertRows(st, 1)
	}
	x.item = item
	err := x.statement(st, sql)
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("statement %d (%s): %w", at+1, sqltext.Head(sql), err)
	if errors.Is(err, errStatement) {
		return &driver.ItemError{Index: item, Err: wrapped}
	}
	return refused(item, wrapped)
}

// errStatement marks a statement that was refused here.
var errStatement = errors.New("refused")

func (x *rowTx) statement(st *driver.Statement, sql string) error {
	p, err := sqltext.Parse(sqltext.Lexer{In: sql, MySQL: true}, refuseOwn)
	if err == nil && !slices.Contains(verbs, p.Verb) {
		err = fmt.Errorf("%s cannot be an effect: want %s, because other statements end semel's transaction or change the session",
			p.Verb, strings.Join(verbs, ", "))
	}
	var args []sqldriver.Value
	if err == nil {
		args, err = p.Values(nil, st.Args, sqltext.Value)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errStatement, err)
	}
	n, err := x.exec(p.SQL, anys(args)...)
	if err == nil && st.Rows >= 0 && n != int64(st.Rows) {
		return fmt.Errorf("%w: changed %d rows, must change %d", errStatement, n, st.Rows)
	}
	return err
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

func anys(values []sqldriver.Value) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}
