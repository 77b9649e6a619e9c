package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// beginAll opens a transaction that acquires every key.
func beginAll(t testing.TB, s *Store, ks ...driver.Key) (*transaction, []driver.Grant) {
	t.Helper()
	tx, gs, err := s.Begin(t.Context(), claimsOf(ks, long)...)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range gs {
		if g.Verdict != driver.Acquired {
			t.Fatalf("key %q returned %v", ks[i].Raw, g.Verdict)
		}
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx.(*transaction), gs
}

func completions(gs []driver.Grant) []driver.Work {
	ws := make([]driver.Work, len(gs))
	for i, g := range gs {
		ws[i] = driver.Work{Finish: completion(g)}
	}
	return ws
}

func lendPgx(t testing.TB, x *transaction) (tx pgx.Tx) {
	t.Helper()
	if !x.As(&tx) {
		t.Fatal("As(*pgx.Tx) returned false")
	}
	return tx
}

func lendSQL(t testing.TB, x *transaction) (tx *sql.Tx) {
	t.Helper()
	if !x.As(&tx) {
		t.Fatal("As(**sql.Tx) returned false")
	}
	return tx
}

// learnKeep lets the store know the retention, after which the records of a batch are written once.
func learnKeep(t testing.TB, s *Store) {
	t.Helper()
	x, gs := beginAll(t, s, driver.Key{Raw: "learn"})
	if err := x.Commit(t.Context(), completions(gs)...); err != nil {
		t.Fatal(err)
	}
	if s.db.keep.Load() == 0 {
		t.Fatal("the retention was not learnt")
	}
}

// TestBatchesOfTransactions commits a part of a batch, with results and retentions of their own: every record is as the
// table makes it, however it was written.
func TestBatchesOfTransactions(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	for _, known := range []bool{false, true} {
		if known {
			learnKeep(t, s)
		}
		ks := testKeys(map[bool]string{false: "plain-%d", true: "sealed-%d"}[known], 40)
		x, gs := beginAll(t, s, ks...)
		if (x.keep > 0) != known {
			t.Fatalf("known %v: records are written with keep %d", known, x.keep)
		}
		tx := lendPgx(t, x)
		var ws []driver.Work
		for i, g := range gs {
			if _, err := tx.Exec(t.Context(), addToLedger, ks[i].Raw); err != nil {
				t.Fatal(err)
			}
			w := driver.Work{Finish: completion(g)}
			switch i % 5 {
			case 1:
				w.Finish.Result = []byte("result")
			case 2:
				w.Finish.Keep = 2 * keep
			case 3:
				w.Finish.Final, w.Finish.Reason = driver.Fail, "gave up"
			case 4:
				continue // did not run
			}
			ws = append(ws, w)
		}
		if err := x.Commit(t.Context(), ws...); err != nil {
			t.Fatal(err)
		}
		for i, k := range ks {
			r, found, err := s.Record(t.Context(), k)
			if err != nil || found != (i%5 != 4) {
				t.Fatalf("key %d: found %v, %v", i, found, err)
			}
			if !found {
				continue
			}
			state, kept := driver.Completed, keep
			if i%5 == 3 {
				state = driver.FailedState
			}
			if i%5 == 2 {
				kept = 2 * keep
			}
			if r.State != state || r.Hold() != gs[i].Hold || r.Attempt != 1 || (string(r.Result) == "result") != (i%5 == 1) ||
				(r.RetainUntil.Sub(r.UpdatedAt)-kept).Abs() > time.Minute || (state == driver.Completed) == r.CompletedAt.IsZero() ||
				(r.Reason == "gave up") != (i%5 == 3) {
				t.Errorf("known %v, key %d: %+v", known, i, r)
			}
		}
	}
}

// TestHandlersCannotEndTheTransaction: whatever a handler calls, nothing commits without its record, and nothing that a
// handler wanted undone commits.
func TestHandlersCannotEndTheTransaction(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ctx := t.Context()
	end := map[string]func(x *transaction) error{
		"pgx commit":       func(x *transaction) error { return lendPgx(t, x).Commit(ctx) },
		"pgx rollback":     func(x *transaction) error { return lendPgx(t, x).Rollback(ctx) },
		"sql commit":       func(x *transaction) error { return lendSQL(t, x).Commit() },
		"sql rollback":     func(x *transaction) error { return lendSQL(t, x).Rollback() },
		"sql raw rollback": func(x *transaction) error { _, err := lendSQL(t, x).Exec("ROLLBACK"); return err },
		"raw rollback":     func(x *transaction) error { _, err := lendPgx(t, x).Exec(ctx, "ROLLBACK"); return err },
		"raw commit":       func(x *transaction) error { _, err := lendPgx(t, x).Exec(ctx, "COMMIT"); return err },
		"raw new transaction": func(x *transaction) error {
			_, err := lendPgx(t, x).Exec(ctx, "ROLLBACK; BEGIN")
			return err
		},
	}
	for _, n := range []int{1, 20} {
		for name, f := range end {
			learnKeep(t, s)
			ks := testKeys(name+"-%d", n)
			x, gs := beginAll(t, s, ks...)
			if _, err := lendPgx(t, x).Exec(ctx, addToLedger, name); err != nil {
				t.Fatal(err)
			}
			ended := f(x)
			err := x.Commit(ctx, completions(gs)...)
			if err == nil {
				t.Errorf("%s of %d: the commit went through", name, n)
			}
			var item *driver.ItemError
			if strings.HasPrefix(name, "pgx") || name == "sql commit" || name == "sql rollback" {
				if ended == nil || !errors.As(err, &item) {
					t.Errorf("%s of %d returned %v; the commit %v, wanted the item refused", name, n, ended, err)
				}
			}
			var effects, records int
			if err := db.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM ledger), (SELECT count(*) FROM semel_records WHERE state = 'COMPLETED' AND key <> 'learn')").
				Scan(&effects, &records); err != nil {
				t.Fatal(err)
			}
			if records > 0 || (effects > 0 && (n > 1 || name != "raw commit")) {
				t.Errorf("%s of %d: %d effects, %d completed records of messages", name, n, effects, records)
			}
			execSQL(t, db, "TRUNCATE ledger, semel_record")
		}
	}
}

// TestNestedTransactions: savepoints are the handler's.
func TestNestedTransactions(t *testing.T) {
	db := openFor(t, Options{})
	x, gs := beginAll(t, db.Store(), testKeys("k%d", 1)...)
	tx := lendPgx(t, x)
	for _, keepIt := range []bool{true, false} {
		inner, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inner.Exec(t.Context(), addToLedger, "x"); err != nil {
			t.Fatal(err)
		}
		if keepIt {
			err = inner.Commit(t.Context())
		} else {
			err = inner.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Commit(t.Context(), completions(gs)...); err != nil {
		t.Fatal(err)
	}
	if n := countLedger(t, db); n != 1 {
		t.Errorf("%d effects, wanted that of the savepoint that was kept", n)
	}
}

// TestSQLTx: both handles are one transaction, and rows that a handler left open do not keep it from committing.
func TestSQLTx(t *testing.T) {
	db := openFor(t, Options{})
	x, gs := beginAll(t, db.Store(), testKeys("k%d", 2)...)
	a, b := lendSQL(t, x), lendSQL(t, x)
	if a != b {
		t.Error("two handlers got different transactions")
	}
	if _, err := a.ExecContext(t.Context(), addToLedger, "sql"); err != nil {
		t.Fatal(err)
	}
	if _, err := lendPgx(t, x).Exec(t.Context(), addToLedger, "pgx"); err != nil {
		t.Fatal(err)
	}
	rows, err := a.QueryContext(t.Context(), "SELECT id FROM ledger") //nolint:sqlclosecheck,rowserrcheck // that is the point
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	if err := x.Commit(t.Context(), completions(gs)...); err != nil {
		t.Fatal(err)
	}
	if n := countLedger(t, db); n != 2 {
		t.Errorf("%d effects", n)
	}
	if _, err := a.Exec("SELECT 1"); err == nil {
		t.Error("the handle outlives its transaction")
	}
	var tx pgx.Tx
	if x.As(&tx) {
		t.Error("As lends a transaction that has ended")
	}
}

// TestMaxTx: a frozen worker does not keep its keys.
func TestMaxTx(t *testing.T) {
	db := openFor(t, Options{MaxTx: 2 * time.Second})
	s := db.Store()
	ks := testKeys("k%d", 2)
	x, gs := beginAll(t, s, ks...)
	if _, err := lendPgx(t, x).Exec(t.Context(), addToLedger, "x"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		g, err := s.Claim(t.Context(), claimsOf(ks, long)...)
		if err == nil && g[0].Verdict == driver.Acquired && g[1].Verdict == driver.Acquired {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the keys got %+v, %v", g, err)
		}
	}
	if err := x.Commit(t.Context(), completions(gs)...); err == nil {
		t.Error("the transaction that was ended committed")
	}
	if n := countLedger(t, db); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// TestDeferredConstraintInABatch: COMMIT is refused, and the culprit is unknown until it is alone.
func TestDeferredConstraintInABatch(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	execSQL(t, db, "CREATE TABLE parent (id int PRIMARY KEY)")
	execSQL(t, db, "CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
	x, gs := beginAll(t, s, testKeys("k%d", 3)...)
	if _, err := lendPgx(t, x).Exec(t.Context(), "INSERT INTO child VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	var item *driver.ItemError
	if err := x.Commit(t.Context(), completions(gs)...); !errors.As(err, &item) || item.Index >= 0 {
		t.Fatalf("commit returned %v", err)
	}
	tx, gs := beginAll(t, s, testKeys("k%d", 1)...)
	if _, err := lendPgx(t, tx).Exec(t.Context(), "INSERT INTO child VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context(), completions(gs)...); !errors.As(err, &item) || item.Index != 0 {
		t.Errorf("commit returned %v", err)
	}
}

// TestTransient tells what is nobody's failure.
func TestTransient(t *testing.T) {
	db := openFor(t, Options{})
	execSQL(t, db, `CREATE FUNCTION fail(c text) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = c; END'`)
	for sqlstate, want := range map[string]bool{
		"40001": true, "40P01": true, "55P03": true, "23505": false, "42601": false, "57014": false, "22012": false,
	} {
		x, _ := beginAll(t, db.Store(), testKeys("k"+sqlstate+"%d", 1)...)
		_, err := lendPgx(t, x).Exec(t.Context(), "SELECT fail($1)", sqlstate)
		if (x.Transient(err) != nil) != want {
			t.Errorf("%s: transient is %v, wanted %v (%v)", sqlstate, !want, want, err)
		}
		if err := x.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	x, _ := beginAll(t, db.Store(), testKeys("k%d", 1)...)
	tx := lendPgx(t, x)
	failed := make(chan error, 1)
	go func() { _, err := tx.Exec(t.Context(), "SELECT pg_sleep(120)"); failed <- err }()
	killSleeping(t, db)
	if err := <-failed; x.Transient(err) == nil {
		t.Errorf("a terminated backend is taken for a failure of the handler: %v", err)
	}
}

// TestQueuedEffectsOfABatch: a batch handler's statements are sent with COMMIT.
func TestQueuedEffectsOfABatch(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	for _, rows := range []int{30, 29} {
		ks := testKeys("k%d", 30)
		x, gs := beginAll(t, s, ks...)
		ws := completions(gs)
		e := &driver.Statements{}
		e.ExecRows(rows, "INSERT INTO ledger SELECT g FROM generate_series(1, 30) g")
		ws[0].Effects = e
		err := x.Commit(t.Context(), ws...)
		var item *driver.ItemError
		if rows == 30 && err != nil || rows != 30 && (!errors.As(err, &item) || item.Index != 0) {
			t.Errorf("commit with %d rows returned %v", rows, err)
		}
		if n := countLedger(t, db); (n == 30) != (rows == 30) || n != 0 && n != 30 {
			t.Errorf("%d effects", n)
		}
		execSQL(t, db, "TRUNCATE ledger, semel_record")
	}
}

// TestConnectionsAreReturned: however transactions end, the pool has its connections afterwards.
func TestConnectionsAreReturned(t *testing.T) {
	db := openFor(t, Options{MaxConns: 2, NoListen: true})
	s := db.Store()
	for i := range 10 {
		x, gs := beginAll(t, s, testKeys("k%d", 2)...)
		switch i % 3 {
		case 0:
			_, _ = lendPgx(t, x).Exec(t.Context(), "SELECT 1/0")
		case 1:
			_, _ = lendSQL(t, x).Exec("SELECT 1/0")
		}
		if i%2 == 0 {
			_ = x.Commit(t.Context(), completions(gs[:1])...)
		}
		_ = x.Rollback(t.Context())
		execSQL(t, db, "DELETE FROM semel_record")
	}
	if st := db.pool.Stat(); st.AcquiredConns() != 0 {
		t.Errorf("%d connections are in use", st.AcquiredConns())
	}
}
