package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/driver"

	"github.com/semel-dev/semel/driver/sqltext"
)

// rowsError reports that a statement changed another number of rows than it must.
type rowsError struct{ got, want int64 }

func (e *rowsError) Error() string {
	return fmt.Sprintf("changed %d rows, must change %d", e.got, e.want)
}

// addStatements adds the statements of item to the pipeline, rows that follow each other together. A wrong number of rows
// stops the reading with a *rowsError: COMMIT must not be in the same pipeline then (see counts).
func (e *effects) addStatements(item int, list []driver.Statement) {
	p, at := e.p, 0
	for i := range list {
		st := &list[i]
		if e.join != joinNone && e.rows.Is(st) {
			at = e.rows.Add(item, i, st, at)
			continue
		}
		p.write(&e.rows)
		at = 0
		s := step{what: effectName(i, st.SQL), item: item}
		if st.Rows >= 0 {
			s.tag = func(tag pgconn.CommandTag) error { return expect(st, tag) }
		}
		p.add(s, markEffect+st.SQL, st.Args...)
	}
	p.write(&e.rows)
}

func expect(st *driver.Statement, tag pgconn.CommandTag) error {
	if st.Rows >= 0 && tag.RowsAffected() != int64(st.Rows) {
		return &rowsError{got: tag.RowsAffected(), want: int64(st.Rows)}
	}
	return nil
}

func effectName(i int, sql string) string {
	return fmt.Sprintf("statement %d (%s)", i+1, sqltext.Head(sql))
}

// statements returns the statements of a work.
func statements(w *driver.Work) []driver.Statement {
	if e, _ := w.Effects.(*driver.Statements); e != nil {
		return e.List
	}
	return nil
}

// sets reports that a work has statements that may change settings of the transaction.
func sets(w *driver.Work) bool { return setting(statements(w)) }

func setting(list []driver.Statement) bool {
	for _, st := range list {
		if word, rest := keyword(st.SQL); word == "SET" || word == "SELECT" && strings.Contains(strings.ToLower(rest), "set_config") {
			return true
		}
	}
	return false
}

// counts reports that some works have statements whose rows are counted.
func counts(w []driver.Work, which []int) bool {
	counted := func(s driver.Statement) bool { return s.Rows >= 0 }
	return slices.ContainsFunc(which, func(i int) bool { return slices.ContainsFunc(statements(&w[i]), counted) })
}

// refused are the first words of statements that an effect must not be: they end or split the transaction, or change the
// connection.
var refused = map[string]string{
	"BEGIN": "transaction", "START": "transaction", "COMMIT": "transaction", "END": "transaction", "ROLLBACK": "transaction",
	"ABORT": "transaction", "SAVEPOINT": "transaction", "RELEASE": "transaction", "PREPARE": "transaction",
	"DEALLOCATE": "connection", "DISCARD": "connection", "RESET": "connection", "LISTEN": "connection",
	"UNLISTEN": "connection", "LOAD": "connection", "COPY": "protocol",
}

// checkStatement refuses SQL that would end semel's transaction or change its connection.
func checkStatement(sql string) error {
	word, rest := keyword(sql)
	if word == "" {
		return fmt.Errorf("statement %q is empty", sqltext.Head(sql))
	}
	what, bad := refused[word]
	if word == "SET" {
		// SET LOCAL and SET CONSTRAINTS end with the transaction.
		next, _ := keyword(rest)
		what, bad = "connection", next != "LOCAL" && next != "CONSTRAINTS"
	}
	if !bad {
		return nil
	}
	switch what {
	case "transaction":
		return fmt.Errorf("statement %q: the transaction is semel's, which commits it with the record", sqltext.Head(sql))
	case "protocol":
		return fmt.Errorf("statement %q: COPY cannot be queued", sqltext.Head(sql))
	}
	return fmt.Errorf("statement %q would change the connection for whoever uses it next; Try: SET LOCAL", sqltext.Head(sql))
}

// keyword returns the first word of a statement in upper case, and what follows it.
func keyword(sql string) (word, rest string) {
	return (&sqltext.Lexer{In: sql, Nested: true}).Keyword()
}

// The server recognizes the SQL of handlers by the text of the statement that the client sent, which functions, DO blocks
// and triggers cannot change (semel_guard).
const (
	// markOwn stands before semel's statements.
	markOwn = "/* semel */ "
	// markEffect stands before the statements that a handler queued, and before the COMMIT that runs their deferred triggers.
	markEffect = "/* semel: effect */ "
)

// sqlSession asks for settings of the session that RESET does not restore: those of a pooler's connect_query.
const sqlSession = `SELECT coalesce(array_agg(name ORDER BY name), '{}'), coalesce(array_agg(current_setting(name) ORDER BY name), '{}')
FROM pg_settings WHERE source = 'session'`

// The functions are named with their schema, because handlers can change the search_path.

// sqlEnd ends the SQL of messages. 1 handlers have the transaction 2 it is the last 3 it is more than DML 4 user 5 idle time
// in milliseconds 6 names and 7 values of settings. See semel_end.
func (db *DB) sqlEnd() string {
	return "SELECT " + db.info.place + ".semel_end($1, $2, $3, $4, $5, $6, $7)"
}

// sqlNext sets settings back between two messages. 1 statement_timeout and 2 lock_timeout of the transaction. See semel_next.
func (db *DB) sqlNext() string { return "SELECT " + db.info.place + ".semel_next($1, $2)" }

// sqlTake takes a transaction back from its handlers. 1 its id 2 idle time 3 names 4 values. See semel_take.
func (db *DB) sqlTake() string { return "SELECT " + db.info.place + ".semel_take($1, $2, $3, $4)" }

// sqlClean takes back what is left in the session. 1 names 2 values. See semel_clean.
func (db *DB) sqlClean() string { return "SELECT " + db.info.place + ".semel_clean($1, $2)" }

// join is which rows of driver.Statements.Insert one statement may insert together.
type join uint8

const (
	joinNone join = iota
	joinItem      // those of one item, so that a refusal has a culprit
	joinAll
)

// effects adds the statements of works to a pipeline, and what ends them. A transaction has one list.
type effects struct {
	db    *DB
	p     *pipeline
	join  join
	rows  sqltext.Inserts // not yet in the pipeline
	of    []int           // the items of rows
	items int
	last  int  // the item before; -1: anybody's
	open  bool // what that one left was not taken back yet
}

func newEffects(db *DB, p *pipeline, j join) *effects {
	return &effects{db: db, p: p, join: j, rows: sqltext.Inserts{Sizes: insertSizes, Bytes: maxInsertBytes, Texts: true}}
}

// add adds the statements of item. Settings of one item are reset before the next: SET LOCAL, and what functions and
// triggers set, lasts as long as the transaction. Statements that only change rows are checked once, for all.
func (e *effects) add(item int, list []driver.Statement) {
	if len(list) == 0 {
		return
	}
	if e.join == joinAll && e.rows.All(list) {
		at := 0
		for i := range list {
			at = e.rows.Add(item, i, &list[i], at)
		}
		e.of = append(e.of, item)
		return
	}
	e.flush()
	if e.items > 0 {
		e.next()
	}
	e.addStatements(item, list)
	e.items, e.last, e.open = e.items+1, item, true
	if slices.ContainsFunc(list, func(s driver.Statement) bool { return !plain(s.SQL) }) {
		e.endRole(list)
		e.end(item, false, true)
		e.open = false
	}
}

// flush adds the rows of items that have nothing else.
func (e *effects) flush() {
	if len(e.of) == 0 {
		return
	}
	if e.items > 0 {
		e.next()
	}
	e.p.write(&e.rows)
	e.items, e.last, e.open = e.items+len(e.of), e.of[0], true
	if len(e.of) > 1 {
		e.last = -1
	}
	e.of = nil
}

// next resets what the item before left, and limits the statements of the next one.
func (e *effects) next() {
	switch {
	case e.open && len(e.db.info.names) == 0:
		e.p.add(step{what: "reset settings", item: e.last}, markEffect+e.db.sqlNext(), e.p.limits.statement, e.p.limits.lock)
	case e.open:
		e.end(e.last, false, false)
		e.p.limits.add(e.p)
	default: // it was ended
		e.p.limits.add(e.p)
	}
}

// close adds what follows the last statement. Deferred triggers run here, because nobody would look after COMMIT.
func (e *effects) close() {
	e.flush()
	if e.items > 1 {
		e.last = -1 // they are written one by one then
	}
	if e.items > 0 {
		e.end(e.last, true, false)
	}
}

func (e *effects) end(item int, last, deep bool) {
	e.p.add(step{what: "end of its statements", item: item}, markEffect+e.db.sqlEnd(), false, last, deep, e.db.info.user, millis(e.db.o.MaxTx),
		e.db.info.names, e.db.info.values)
}

// endRole resets the role that list took. It may not be allowed to call semel's functions.
func (e *effects) endRole(list []driver.Statement) {
	if setting(list) {
		e.p.add(step{what: "reset the role", item: e.last}, "RESET SESSION AUTHORIZATION")
		e.p.add(step{what: "reset the role", item: e.last}, "RESET ROLE")
	}
}

// plain reports a statement that by itself only changes rows.
func plain(sql string) bool {
	switch word, _ := keyword(sql); word {
	case "INSERT", "UPDATE", "DELETE", "MERGE":
		return true
	}
	return false
}

// commitLent adds the COMMIT of a transaction that handlers had, and what cleans the session behind it. A failure of that
// undoes nothing.
func (db *DB) commitLent(p *pipeline) {
	p.commit()
	p.add(step{what: "clean the session", item: -1, after: true}, markOwn+db.sqlClean(), db.info.names, db.info.values)
}

// clean ends the open transaction of a connection and cleans the session, or closes it.
func (db *DB) clean(ctx context.Context, c *pgx.Conn) {
	reset(ctx, c)
	if c.IsClosed() {
		return
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
	defer cancel()
	if _, err := c.Exec(end, markOwn+db.sqlClean(), db.info.names, db.info.values); err != nil {
		_ = c.Close(end)
	}
}
