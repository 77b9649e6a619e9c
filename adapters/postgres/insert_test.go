package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// insertsFor are works whose only effects are rows of the ledger.
func insertsFor(t testing.TB, s *Store, prefix string, n int) []driver.Work {
	t.Helper()
	ws := worksFor(t, s, prefix, n)
	for i := range ws {
		ws[i].Effects = &driver.Statements{}
		stmts(&ws[i]).Insert("ledger", []string{"id"}, ws[i].Finish.Hold.Key.Raw)
	}
	return ws
}

// sent are the effects that a transaction sends for lists of statements, one list for each message.
func sent(j join, lists ...func(s *driver.Statements)) (out []string) {
	e := newEffects(&DB{}, &pipeline{limits: &limits{}}, j)
	for i, queue := range lists {
		var s driver.Statements
		queue(&s)
		e.add(i, s.List)
	}
	e.close()
	for i, q := range e.p.batch.QueuedQueries {
		if sql := strings.TrimPrefix(q.SQL, markEffect); !strings.Contains(sql, "semel_") {
			out = append(out, fmt.Sprint(e.p.steps[i].item, " ", strings.NewReplacer("INSERT INTO ", "", "VALUES ", "").Replace(sql), q.Arguments))
		}
	}
	return out
}

// TestRowsAreSentTogether: the rows of a table and list of columns are one statement, and no message's order changes.
func TestRowsAreSentTogether(t *testing.T) {
	in := func(tables ...string) func(s *driver.Statements) {
		return func(s *driver.Statements) {
			for _, table := range tables {
				switch table {
				case "exec":
					s.Exec("UPDATE x")
				case "text":
					s.Exec("INSERT INTO a (c) VALUES ($1)", 1)
				case "other text":
					s.Exec("INSERT INTO b (c) VALUES ($1)", 1)
				default:
					s.Insert(table, []string{"c"}, 1)
				}
			}
		}
	}
	for _, c := range []struct {
		name  string
		join  join
		lists []func(s *driver.Statements)
		want  string
	}{
		{"one table", joinAll, []func(*driver.Statements){in("a"), in("a"), in("a"), in("a")}, `-1 "a" ("c") ($1), ($2), ($3), ($4)[1 1 1 1]`},
		{"rows as text", joinAll, []func(*driver.Statements){in("text"), in("text", "text"), in("text"), in("a")},
			`-1 a (c) ($1), ($2), ($3), ($4)[1 1 1 1]; 3 "a" ("c") ($1)[1]`},
		{"rows as text, of two tables", joinAll, []func(*driver.Statements){in("text", "other text"), in("text", "other text")},
			`0 a (c) ($1)[1]; 0 b (c) ($1)[1]; 1 a (c) ($1)[1]; 1 b (c) ($1)[1]`},
		{"one message", joinAll, []func(*driver.Statements){in("a", "a", "a", "a")}, `0 "a" ("c") ($1), ($2), ($3), ($4)[1 1 1 1]`},
		{"parents and children", joinAll, []func(*driver.Statements){in("c"), in("p", "c"), in("p", "c"), in("p", "c"), in("p", "c")},
			`0 "c" ("c") ($1)[1]; -1 "p" ("c") ($1), ($2), ($3), ($4)[1 1 1 1]; -1 "c" ("c") ($1), ($2), ($3), ($4)[1 1 1 1]`},
		{"a statement between", joinAll, []func(*driver.Statements){in("a"), in("exec"), in("a")}, `0 "a" ("c") ($1)[1]; 1 UPDATE x[]; 2 "a" ("c") ($1)[1]`},
		{"a statement in a message", joinAll, []func(*driver.Statements){in("a"), in("a", "exec", "a", "a", "a", "a")},
			`0 "a" ("c") ($1)[1]; 1 "a" ("c") ($1)[1]; 1 UPDATE x[]; 1 "a" ("c") ($1), ($2), ($3), ($4)[1 1 1 1]`},
		{"rows after a statement", joinAll, []func(*driver.Statements){in("exec"), in("a"), in("a"), in("a"), in("a")},
			`0 UPDATE x[]; -1 "a" ("c") ($1), ($2), ($3), ($4)[1 1 1 1]`},
		{"within messages", joinItem, []func(*driver.Statements){in("a"), in("a", "a", "a", "a")},
			`0 "a" ("c") ($1)[1]; 1 "a" ("c") ($1), ($2), ($3), ($4)[1 1 1 1]`},
		{"apart", joinNone, []func(*driver.Statements){in("a", "a"), in("a")}, `0 "a" ("c") ($1)[1]; 0 "a" ("c") ($1)[1]; 1 "a" ("c") ($1)[1]`},
		{"a row that is counted", joinAll, []func(*driver.Statements){in("a"), func(s *driver.Statements) { in("a")(s); s.List[0].Rows = 1 }},
			`0 "a" ("c") ($1)[1]; 1 "a" ("c") ($1)[1]`},
		{"a statement that was changed", joinAll, []func(*driver.Statements){in("a"), func(s *driver.Statements) {
			in("a")(s)
			s.List[0].SQL += " ON CONFLICT DO NOTHING"
		}, in("a")}, `0 "a" ("c") ($1)[1]; 1 "a" ("c") ($1) ON CONFLICT DO NOTHING[1]; 2 "a" ("c") ($1)[1]`},
	} {
		if got := strings.Join(sent(c.join, c.lists...), "; "); got != c.want {
			t.Errorf("%s: sent\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// TestRefusedRowFailsItsMessage: whatever is wrong with a row, the message that queued it is named, and the others commit.
func TestRefusedRowFailsItsMessage(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	execSQL(t, db, "CREATE TYPE mood AS ENUM ('fine')")
	execSQL(t, db, `CREATE TABLE typed (id int UNIQUE, must int NOT NULL DEFAULT 1, mood mood, tags text[], amount numeric CHECK (amount > 0), parent text
		REFERENCES ledger_parent DEFERRABLE INITIALLY DEFERRED)`)
	execSQL(t, db, "INSERT INTO typed (id) VALUES (1)")
	for i, c := range []struct {
		table, column string
		value         any
		says          string
	}{
		{"typed", "id", 1, "23505"}, {"typed", "id", "one", "one"}, {"typed", "id", int64(1) << 40, "int4"}, {"typed", "must", nil, "23502"},
		{"typed", "mood", "sad", "22P02"}, {"typed", "amount", -1, "23514"}, {"typed", "id", make(chan int), "chan"},
		{"typed", "parent", "none", "23503"}, {"typed", "nosuch", 1, "42703"}, {"nowhere", "id", 1, "42P01"},
		{"no.where", "id", 1, "42P01"}, {`ledger" (id) VALUES ('x'); --`, "id", 1, "42P01"}, {"ledger", `id") VALUES ('x'); --`, 1, "42703"},
		{"Ledger", "id", "x", "42P01"}, {`"ledger"`, "id", "x", "42P01"}, {"semel_record", "state", 3, "refused"},
		{db.info.place + ".semel_record", "state", 3, "refused"}, {"semel_queue", "name", "x", "refused"}, {"pg_catalog.pg_class", "oid", 1, "23502"},
		{"ledger\x00", "id", 1, "zero byte"}, {"ledger", "id\x00", 1, "zero byte"},
	} {
		for _, culprit := range []int{0, 17, 19} {
			ws := insertsFor(t, s, fmt.Sprint(i, "-", culprit), 20)
			stmts(&ws[culprit]).Insert(c.table, []string{c.column}, c.value)
			refuses(t, s, ws, culprit, c.says)
		}
	}
	ws := insertsFor(t, s, "values", 20)
	for i := range ws {
		stmts(&ws[i]).Insert("typed", []string{"id", "mood", "tags", "amount"}, 100+i, "fine", []string{"a", "b"}, 1.5)
	}
	if out, err := s.Commit(t.Context(), ws...); err != nil || out[19] != driver.Applied {
		t.Fatal(out, err)
	}
	var n int
	if err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM typed WHERE tags = '{a,b}' AND amount = 1.5 AND mood = 'fine'").Scan(&n); err != nil || n != 20 {
		t.Errorf("%d rows with all values, %v", n, err)
	}
}

// TestRefusedRowIsWrittenTwice: among the rows of others, and then alone. A third transaction would find nothing more.
func TestRefusedRowIsWrittenTwice(t *testing.T) {
	db := openFor(t, Options{})
	execSQL(t, db, "CREATE SEQUENCE refusals")
	execSQL(t, db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM nextval('refusals'); RAISE check_violation; END $$`) // a rollback does not take back what nextval took
	execSQL(t, db, "CREATE TRIGGER refuse BEFORE INSERT ON ledger FOR EACH ROW WHEN (NEW.id = 'bad') EXECUTE FUNCTION refuse()")
	ws := insertsFor(t, db.Store(), "k", 20)
	stmts(&ws[17]).Insert("ledger", []string{"id"}, "bad")
	refuses(t, db.Store(), ws, 17, "23514")
	var n int
	if err := db.pool.QueryRow(t.Context(), "SELECT last_value FROM refusals").Scan(&n); err != nil || n != 2 {
		t.Errorf("the refused row was written %d times (%v)", n, err)
	}
}

// TestRowsWithSerialParents: a default that takes the id of the row before from its sequence gets that of its own message.
func TestRowsWithSerialParents(t *testing.T) {
	db := openFor(t, Options{})
	execSQL(t, db, "CREATE TABLE purchases (id bigserial PRIMARY KEY, name text)")
	execSQL(t, db, "CREATE TABLE lines (purchase bigint DEFAULT currval('purchases_id_seq'), name text)")
	ws := worksFor(t, db.Store(), "k", 10)
	for i := range ws {
		ws[i].Effects = &driver.Statements{}
		stmts(&ws[i]).Exec("INSERT INTO purchases (name) VALUES ($1)", fmt.Sprint(i))
		stmts(&ws[i]).Exec("INSERT INTO lines (name) VALUES ($1)", fmt.Sprint(i))
	}
	if out, err := db.Store().Commit(t.Context(), ws...); err != nil || out[9] != driver.Applied {
		t.Fatal(out, err)
	}
	var n int
	const query = "SELECT count(*) FROM lines JOIN purchases ON purchases.id = purchase AND purchases.name = lines.name"
	if err := db.pool.QueryRow(t.Context(), query).Scan(&n); err != nil || n != len(ws) {
		t.Errorf("%d of %d lines have their own purchase (%v)", n, len(ws), err)
	}
}

// TestFM47_RowBlockedByALock: the message whose row waits for another session's lock is named, and the others commit.
func TestFM47_RowBlockedByALock(t *testing.T) {
	db := openFor(t, Options{LockWait: 50 * time.Millisecond})
	s := db.Store()
	tx := beginOwn(t, db)
	if _, err := tx.Exec(t.Context(), "INSERT INTO ledger_parent VALUES ('wanted')"); err != nil {
		t.Fatal(err)
	}
	ws := insertsFor(t, s, "k", 20)
	stmts(&ws[17]).Insert("ledger_parent", []string{"id"}, "wanted")
	_, err := s.Commit(t.Context(), ws...)
	var item *driver.ItemError
	if !errors.As(err, &item) || item.Index != 17 || !errors.Is(err, driver.ErrBlocked) {
		t.Errorf("commit returned %v, want an ItemError that names 17 and wraps ErrBlocked", err)
	}
	if out, err := s.Commit(t.Context(), append(ws[:17:17], ws[18:]...)...); err != nil || out[0] != driver.Applied || countLedger(t, db) != 19 {
		t.Errorf("without it commit returned %v, %v; %d rows", out, err, countLedger(t, db))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Commit(t.Context(), ws[17]); err != nil || out[0] != driver.Applied {
		t.Errorf("after the lock commit returned %v, %v", out, err)
	}
}

// TestRowsLeaveTheSessionAlone: what a trigger of a message's rows changes in the session does not reach the messages after
// them.
func TestRowsLeaveTheSessionAlone(t *testing.T) {
	db := openFor(t, Options{MaxConns: 1})
	traps(t, db)
	s := db.Store()
	pid, want := session(t, db.pool)
	for name, table := range map[string]string{"at once": "seen", "deferred": "seen_late"} {
		ws := insertsFor(t, s, name, 6)
		for i := range 4 {
			stmts(&ws[i]).Insert(table, []string{"id"}, fmt.Sprint(i))
		}
		ws[5].Effects = &driver.Statements{}
		stmts(&ws[5]).ExecRows(1, "INSERT INTO ledger SELECT 'x' WHERE nullif(current_setting('app.tenant', true), '') IS NULL")
		if out, err := s.Commit(t.Context(), ws...); err != nil {
			t.Errorf("%s: commit returned %v, %v", name, out, err)
		}
		if is, got := session(t, db.pool); is != pid || got != want {
			t.Errorf("%s: session %d is\n%s, was\n%s of %d", name, is, got, want, pid)
		}
	}
	for _, table := range []string{"trap", "late", "ruled"} { // their triggers and rules write to semel's tables
		ws := insertsFor(t, s, table, 20)
		stmts(&ws[17]).Insert(table, []string{"id"}, "x")
		refuses(t, s, ws, 17, "refused")
	}
}

// TestRowsWithoutPreparedStatements: behind a pooler the types of values are those of Go.
func TestRowsWithoutPreparedStatements(t *testing.T) {
	db := openLedger(t, schemaURL(t)+"&default_query_exec_mode=exec", Options{})
	ws := insertsFor(t, db.Store(), "k", 100)
	if out, err := db.Store().Commit(t.Context(), ws...); err != nil || out[99] != driver.Applied || countLedger(t, db) != 100 {
		t.Errorf("commit returned %v, %v; %d rows", out, err, countLedger(t, db))
	}
	ws = insertsFor(t, db.Store(), "bad", 20)
	stmts(&ws[17]).Insert("ledger", []string{"id"}, make(chan int))
	refuses(t, db.Store(), ws, 17, "chan")
}
