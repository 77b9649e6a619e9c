package postgres

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/driver"
)

// worksFor claims n keys and makes a work with one effect of each.
func worksFor(t testing.TB, s *Store, prefix string, n int) []driver.Work {
	t.Helper()
	gs := mustClaim(t, s, claimsOf(testKeys(prefix+"-%d", n), long)...)
	ws := make([]driver.Work, n)
	for i, g := range gs {
		ws[i] = driver.Work{Finish: completion(g), Effects: effectFor(g.Hold.Key.Raw)}
	}
	return ws
}

func stmts(w *driver.Work) *driver.Statements { return w.Effects.(*driver.Statements) }

// refuses wants a commit refused with that culprit, nothing written, and the others accepted without it.
func refuses(t *testing.T, s *Store, ws []driver.Work, culprit int, says string) {
	t.Helper()
	before := countLedger(t, s.db)
	out, err := s.Commit(t.Context(), ws...)
	var item *driver.ItemError
	if !errors.As(err, &item) || item.Index != culprit {
		t.Errorf("commit returned %v, %v, wanted an ItemError that names %d", out, err, culprit)
		return
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("the error is %q, wanted %q in it", err, says)
	}
	if n := countLedger(t, s.db); n != before {
		t.Errorf("%d effects of a refused commit", n-before)
	}
	rest := append(append([]driver.Work(nil), ws[:culprit]...), ws[culprit+1:]...)
	if len(rest) == 0 {
		return
	}
	if out, err := s.Commit(t.Context(), rest...); err != nil || out[0] != driver.Applied {
		t.Errorf("without the culprit commit returned %v, %v", out, err)
	}
	if n := countLedger(t, s.db); n != before+len(rest) {
		t.Errorf("%d effects, wanted %d", n-before, len(rest))
	}
}

type badValue struct{}

func (badValue) Value() (sqldriver.Value, error) { panic("no value") }

// TestRefusedEffects finds the culprit of every kind of refusal, in each place of a batch.
func TestRefusedEffects(t *testing.T) {
	db := openFor(t, Options{})
	execSQL(t, db, "CREATE TABLE parent (id int PRIMARY KEY)")
	execSQL(t, db, "CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
	execSQL(t, db, "CREATE TABLE account (id int PRIMARY KEY, balance int CHECK (balance >= 0))")
	execSQL(t, db, "INSERT INTO account VALUES (1, 10)")
	s := db.Store()
	for _, x := range []struct {
		name, says string
		add        func(e *driver.Statements)
	}{
		{"constraint", "statement 2 (UPDATE account", func(e *driver.Statements) { e.Exec("UPDATE account SET balance = balance - 11") }},
		{"deferred constraint", "child_parent_fkey", func(e *driver.Statements) { e.Exec("INSERT INTO child VALUES ($1)", 7) }},
		{"number of rows", "changed 0 rows, must change 1", func(e *driver.Statements) { e.ExecRows(1, "UPDATE account SET id = 2 WHERE id = 3") }},
		{"syntax", "syntax error", func(e *driver.Statements) { e.Exec("UPDATE SET") }},
		{"unknown table", "does not exist", func(e *driver.Statements) { e.Exec("INSERT INTO nowhere VALUES (1)") }},
		{"two statements", "multiple commands", func(e *driver.Statements) { e.Exec("SELECT 1; COMMIT") }},
		{"too few arguments", "argument", func(e *driver.Statements) { e.Exec("SELECT $1::int, $2::int", 1) }},
		{"an argument of another type", "encode", func(e *driver.Statements) { e.Exec("UPDATE account SET balance = $1", struct{ A chan int }{}) }},
		{"a panicking argument", "panicked", func(e *driver.Statements) { e.Exec("UPDATE account SET balance = $1", badValue{}) }},
		{"division by zero", "division by zero", func(e *driver.Statements) { e.Exec("SELECT 1 / $1::int", 0) }},
		{"commit", "transaction is semel's", func(e *driver.Statements) { e.Exec(" ; /* /* x */ */ -- y\n COMMIT") }},
		{"set", "SET LOCAL", func(e *driver.Statements) { e.Exec("SET search_path = public") }},
	} {
		for _, culprit := range []int{0, 2, 4} {
			t.Run(fmt.Sprintf("%s, item %d", x.name, culprit), func(t *testing.T) {
				ws := worksFor(t, s, fmt.Sprintf("%s-%d", x.name, culprit), 5)
				x.add(stmts(&ws[culprit]))
				refuses(t, s, ws, culprit, x.says)
			})
		}
		t.Run(x.name+", alone, without prepared statements", func(t *testing.T) {
			other := openURL(t, sameSchema(db)+"&default_query_exec_mode=exec", Options{NoListen: true})
			ws := worksFor(t, other.Store(), x.name+"-alone", 2)
			x.add(stmts(&ws[1]))
			_, err := other.Store().Commit(t.Context(), ws...)
			var item *driver.ItemError
			if !errors.As(err, &item) || item.Index != 1 {
				t.Errorf("commit returned %v", err)
			}
		})
	}
}

// sameSchema is a URL that leads to where db is.
func sameSchema(db *DB) string { return db.pool.Config().ConnString() }

// TestRefusedWhileOthersLost: the careful path names culprits too.
func TestRefusedWhileOthersLost(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ws := worksFor(t, s, "k", 4)
	ws[0].Finish.Hold.Token++ // somebody else's
	stmts(&ws[2]).ExecRows(2, "INSERT INTO ledger VALUES ('one')")
	_, err := s.Commit(t.Context(), ws...)
	var item *driver.ItemError
	if !errors.As(err, &item) || item.Index != 2 || countLedger(t, db) != 0 {
		t.Fatalf("commit returned %v, %d effects", err, countLedger(t, db))
	}
	stmts(&ws[2]).List = stmts(&ws[2]).List[:1]
	stmts(&ws[2]).ExecRows(1, "INSERT INTO ledger VALUES ('one')")
	out, err := s.Commit(t.Context(), ws...)
	if err != nil || out[0] != driver.Lost || out[1] != driver.Applied || out[2] != driver.Applied || countLedger(t, db) != 4 {
		t.Errorf("commit returned %v, %v, %d effects", out, err, countLedger(t, db))
	}
}

// TestStatementsThatNeedEachOther cannot be prepared before the first of them ran.
func TestStatementsThatNeedEachOther(t *testing.T) {
	db := openFor(t, Options{})
	ws := worksFor(t, db.Store(), "k", 2)
	stmts(&ws[1]).Exec("CREATE TABLE made (id int)")
	stmts(&ws[1]).ExecRows(1, "INSERT INTO made VALUES ($1)", 1)
	if out, err := db.Store().Commit(t.Context(), ws...); err != nil || out[1] != driver.Applied || countLedger(t, db) != 2 {
		t.Errorf("commit returned %v, %v", out, err)
	}
}

// TestFM46_NobodysFault: what another transaction or the server did to a statement need not be its item's failure. Where the
// item is known it is named: as a transient error, or as one that waits for a lock.
func TestFM46_NobodysFault(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	execSQL(t, db, "CREATE TABLE account (id int PRIMARY KEY, balance int)")
	execSQL(t, db, "INSERT INTO account VALUES (1, 10)")
	execSQL(t, db, `CREATE FUNCTION fail(c text) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = c; END'`)
	for _, sqlstate := range []string{"40001", "40P01", "55P03", "57014", "53100", "25006"} {
		ws := worksFor(t, s, "k"+sqlstate, 2)
		stmts(&ws[1]).Exec("SELECT fail($1)", sqlstate)
		_, err := s.Commit(t.Context(), ws...)
		item := &driver.ItemError{Index: -1}
		named, outage := errors.As(err, &item), errors.Is(err, driver.ErrOutage)
		switch sqlstate {
		case "53100", "25006":
			if !errors.Is(err, driver.ErrNotCommitted) || !outage || named {
				t.Errorf("%s: commit returned %v, wanted ErrOutage", sqlstate, err)
			}
		default:
			if item.Index != 1 || outage || (sqlstate == "55P03") != errors.Is(err, driver.ErrBlocked) || item.Transient == errors.Is(err, driver.ErrBlocked) {
				t.Errorf("%s: commit returned %#v, wanted a transient error of the second item, or blocked", sqlstate, err)
			}
		}
	}
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "UPDATE account SET balance = 0"); err != nil {
		t.Fatal(err)
	}
	ws := worksFor(t, s, "waits", 1)
	stmts(&ws[0]).Exec("SET LOCAL lock_timeout = 20")
	stmts(&ws[0]).Exec("UPDATE account SET balance = 1")
	if _, err := s.Commit(t.Context(), ws...); !errors.Is(err, driver.ErrBlocked) {
		t.Errorf("commit returned %v, wanted ErrBlocked", err)
	}
}

// TestFM33_KilledWhileCommitting: a backend that is terminated says nothing about the transaction. The same commit
// repeated finds out, and writes once.
func TestFM33_KilledWhileCommitting(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ws := worksFor(t, s, "k", 3)
	stmts(&ws[1]).Exec("SELECT pg_sleep(120)")
	done := make(chan error, 1)
	go func() { _, err := s.Commit(t.Context(), ws...); done <- err }()
	killSleeping(t, db)
	err := <-done
	if err == nil || errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("commit on a terminated backend returned %v, wanted an unknown outcome", err)
	}
	stmts(&ws[1]).List = stmts(&ws[1]).List[:1]
	for range 2 {
		if out, err := s.Commit(t.Context(), ws...); err != nil || out[0] != driver.Applied || out[1] != driver.Applied {
			t.Fatalf("commit repeated returned %v, %v", out, err)
		}
	}
	if n := countLedger(t, db); n != 3 {
		t.Errorf("%d effects, wanted 3", n)
	}
}

func killSleeping(t testing.TB, db *DB) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var n int
		if err := db.pool.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE wait_event = 'PgSleep' AND application_name = $1`, appOf(db)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	t.Fatal("nobody sleeps")
}

// TestFM65_RolledBackWithoutAnError: a COMMIT to which the server responds ROLLBACK is no commit.
func TestFM65_RolledBackWithoutAnError(t *testing.T) {
	if err := committed(pgconn.NewCommandTag("ROLLBACK")); !errors.Is(wrote(err), driver.ErrNotCommitted) {
		t.Errorf("the tag ROLLBACK is taken as %v", err)
	}
	if err := committed(pgconn.NewCommandTag("COMMIT")); err != nil {
		t.Error(err)
	}
}

// TestSeverity: only an error of the server itself is definite.
func TestSeverity(t *testing.T) {
	for severity, want := range map[string]bool{"ERROR": true, "FATAL": false, "PANIC": false} {
		err := wrote(fmt.Errorf("commit: %w", &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: severity, Code: "57P01"}))
		if errors.Is(err, driver.ErrNotCommitted) != want {
			t.Errorf("%s is taken as %v", severity, err)
		}
	}
	for _, err := range []error{context.DeadlineExceeded, errors.New("connection reset"), errClient} {
		if errors.Is(wrote(err), driver.ErrNotCommitted) {
			t.Errorf("%v is taken as certainly not committed", err)
		}
	}
}

func TestCheckStatement(t *testing.T) {
	for _, sql := range []string{
		"begin", "BEGIN WORK", "start transaction", "commit", "END", "rollback to x", "abort", "savepoint a", "release a",
		"prepare transaction 'x'", "deallocate all", "discard all", "reset all", "listen x", "unlisten *", "copy t from stdin",
		"set role x", "SET SESSION AUTHORIZATION x", "-- c\ncommit", "/* a /* b */ c */ commit", ";;commit", "(commit", "", " -- only",
	} {
		if checkStatement(sql) == nil {
			t.Errorf("%q is accepted", sql)
		}
	}
	for _, sql := range []string{
		"INSERT INTO begin VALUES (1)", "with x as (select 1) select 1", "set local lock_timeout = 1", "SET CONSTRAINTS ALL IMMEDIATE",
		"(select 1)", "committed()", "call f()", "/* commit */ update t set a = 1", "settle", "\tDELETE FROM t", "notify x",
	} {
		if err := checkStatement(sql); err != nil {
			t.Errorf("%q: %v", sql, err)
		}
	}
}

// TestFM58_ManyLargeResults: a value of PostgreSQL ends at 1 GiB, and so would a statement with all results of a flush.
func TestFM58_ManyLargeResults(t *testing.T) {
	db := openFor(t, Options{MaxConns: 2, NoListen: true})
	s := db.Store()
	execSQL(t, db, "ALTER TABLE semel_record ALTER COLUMN result SET STORAGE EXTERNAL") // compressing takes its time
	large := make([]byte, 12<<20)
	gs := mustClaim(t, s, claimsOf(testKeys("k%d", 18), long)...)
	fs, ws := make([]driver.Finish, 6), make([]driver.Work, 6)
	for i := range fs {
		fs[i], ws[i].Finish = completion(gs[i]), completion(gs[6+i])
		fs[i].Result, ws[i].Finish.Result = large, large
	}
	if out, err := s.Finish(t.Context(), fs...); err != nil || out[5] != driver.Applied {
		t.Fatal(out, err)
	}
	if out, err := s.Commit(t.Context(), ws...); err != nil || out[5] != driver.Applied {
		t.Fatal(out, err)
	}
	for i := range ws { // and decided one by one
		ws[i].Finish = completion(gs[12+i])
		ws[i].Finish.Result = large
	}
	park := completion(gs[17])
	park.Final = driver.Park
	if _, err := s.Finish(t.Context(), park); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Commit(t.Context(), ws...); err != nil || out[0] != driver.Applied || out[5] != driver.Recovered {
		t.Fatal(out, err)
	}
	if n := countRecords(t, db, fmt.Sprintf("state = 3 AND length(result) = %d", len(large))); n != 18 {
		t.Errorf("%d results are whole", n)
	}
	k := keyed{places: make(bytess, 18), index: make([]int, 18)}
	if parts := k.chunks(func(int) int { return len(large) }); len(parts) != 4 {
		t.Errorf("%d statements for 216 MiB", len(parts))
	}
}
