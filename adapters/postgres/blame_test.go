package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// TestFM65_SwallowedError: a handler that returns nil after a failed statement left a transaction that cannot be
// committed. That is its own failure: repeated as nobody's it would run forever, and the handler after it would be blamed.
func TestFM65_SwallowedError(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ctx := t.Context()
	for _, x := range []struct {
		name             string
		members, culprit int
		handlers         int
	}{
		{"alone", 1, 0, 1},
		{"the last of two", 2, 1, 2},
		{"a batch handler", 3, -1, 1},
	} {
		tx, gs := beginAll(t, s, testKeys(x.name+"-%d", x.members)...)
		var err error
		for i := range x.handlers {
			sql := "SELECT 1"
			if i == x.handlers-1 {
				sql = "SELECT 1/0"
			}
			_, err = lendPgx(t, tx).Exec(ctx, sql)
		}
		if err == nil || tx.Transient(err) != nil {
			t.Errorf("%s: the failure of a handler, %v, is taken for nobody's", x.name, err)
		}
		err = tx.Commit(ctx, completions(gs)...)
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != x.culprit || !errors.Is(err, errAborted) {
			t.Errorf("%s: commit returned %v, wanted an ItemError that names %d", x.name, err, x.culprit)
		}
	}
	tx, _ := beginAll(t, s, testKeys("first-%d", 3)...)
	_, _ = lendSQL(t, tx).ExecContext(ctx, "SELECT 1/0")
	if _, err := lendSQL(t, tx).ExecContext(ctx, "SELECT 1"); tx.Transient(err) == nil {
		t.Errorf("the next handler is blamed for %v", err)
	}
}

// TestRowsLeftOpen are the failure of who left them, not of the handler that comes next.
func TestRowsLeftOpen(t *testing.T) {
	db := openFor(t, Options{})
	ctx := t.Context()
	for n, culprit := range map[int]int{1: 0, 2: 0, 3: -1} {
		x, gs := beginAll(t, db.Store(), testKeys(fmt.Sprint(n)+"-%d", n)...)
		//nolint:sqlclosecheck // this is what it is about
		if _, err := lendPgx(t, x).Query(ctx, "SELECT generate_series(1, 100000)"); err != nil {
			t.Fatal(err)
		}
		if n == 2 {
			if _, err := lendPgx(t, x).Exec(ctx, "SELECT 1"); x.Transient(err) == nil {
				t.Errorf("the next handler is blamed for %v", err)
			}
		}
		var item *driver.ItemError
		if err := x.Commit(ctx, completions(gs)...); !errors.As(err, &item) || item.Index != culprit || !errors.Is(err, errOpen) {
			t.Errorf("%d messages: commit returned %v, wanted an ItemError that names %d", n, err, culprit)
		}
	}
}

// TestRefusedBeforeTheyRun are statements that can never work in a transaction, in classes of errors that are mostly
// nobody's fault.
func TestRefusedBeforeTheyRun(t *testing.T) {
	db := openFor(t, Options{})
	execSQL(t, db, "CREATE VIEW totals AS SELECT id, count(*) FROM ledger GROUP BY id")
	execSQL(t, db, "CREATE SEQUENCE numbers")
	for sql, says := range map[string]string{
		"VACUUM ledger": "25001",
		"SET LOCAL transaction_isolation = 'serializable'": "25001",
		"INSERT INTO totals VALUES ('x')":                  "55000",
		"SELECT currval('numbers')":                        "55000",
		"SET LOCAL shared_buffers = '1MB'":                 "55P02",
	} {
		ws := worksFor(t, db.Store(), sql, 3)
		stmts(&ws[1]).Exec(sql)
		refuses(t, db.Store(), ws, 1, says)
	}
}

// TestTableChangesUnderPreparedStatements: after ALTER TABLE each connection refuses a statement once that it prepared
// before. Nobody's message has failed by that.
func TestTableChangesUnderPreparedStatements(t *testing.T) {
	db := openFor(t, Options{MaxConns: 3, NoListen: true})
	const sql = "INSERT INTO ledger (id) VALUES ($1) RETURNING *"
	var txs []pgx.Tx
	for range 3 {
		tx := beginOwn(t, db)
		rows, err := tx.Query(t.Context(), sql, "prepared")
		if err != nil {
			t.Fatal(err)
		}
		rows.Close()
		txs = append(txs, tx)
	}
	for _, tx := range txs {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	execSQL(t, db, "ALTER TABLE ledger ADD COLUMN more int")
	x, _ := beginAll(t, db.Store(), testKeys("open-%d", 1)...)
	rows, err := lendPgx(t, x).Query(t.Context(), sql, "x")
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err == nil || x.Transient(err) == nil {
		t.Errorf("in an open transaction: %v is blamed on the handler", err)
	}
	if err := x.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	works := worksFor(t, db.Store(), "k", 1)
	works[0].Effects = &driver.Statements{}
	stmts(&works[0]).Exec(sql, "x")
	out, err := db.Store().Commit(t.Context(), works...)
	refusals := 0
	for ; errors.Is(err, driver.ErrNotCommitted) && refusals < 3; refusals++ {
		out, err = db.Store().Commit(t.Context(), works...)
	}
	if err != nil || out[0] != driver.Applied || countLedger(t, db) != 1 {
		t.Errorf("after %d refusals commit returned %v, %v; %d effects", refusals, out, err, countLedger(t, db))
	}
}

// TestSeenTwiceInOneTransaction: what the transaction itself recorded is seen, and so is what it did not complete.
func TestSeenTwiceInOneTransaction(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	ctx := t.Context()
	ks := testKeys("k%d", 2)
	tx := beginOwn(t, db)
	for i := range 3 {
		if seen, err := s.SeenTx(ctx, tx, ks[0], keep); seen != (i > 0) || err != nil {
			t.Errorf("time %d: %v, %v", i+1, seen, err)
		}
	}
	if _, err := s.ClaimTx(ctx, tx, claimOf(ks[1], long)); err != nil {
		t.Fatal(err)
	}
	if seen, err := s.SeenTx(ctx, tx, ks[1], keep); seen || !errors.Is(err, ErrPending) {
		t.Errorf("what it holds: %v, %v", seen, err)
	}
}

// TestLongWaits: a number of milliseconds that the server cannot take is as good as forever.
func TestLongWaits(t *testing.T) {
	db := openFor(t, Options{LockWait: 30 * 24 * time.Hour, MaxTx: 30 * 24 * time.Hour})
	x, gs := beginAll(t, db.Store(), testKeys("k%d", 1)...)
	if err := x.Commit(t.Context(), completions(gs)...); err != nil {
		t.Error(err)
	}
	mustClaim(t, db.Store(), claimsOf(testKeys("c%d", 2), long)...)
}

// TestEmitsOfAllConnections: as many transactions as there are connections emit to a queue that is not known yet.
func TestEmitsOfAllConnections(t *testing.T) {
	db := openFor(t, Options{MaxConns: 2, NoListen: true})
	ks := testKeys("k%d", 2)
	x, gs := beginAll(t, db.Store(), ks[0])
	y, hs := beginAll(t, db.Store(), ks[1])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for tx, w := range map[*transaction][]driver.Work{x: completions(gs), y: completions(hs)} {
		wg.Go(func() {
			w[0].Emit = []driver.Message{{ID: w[0].Finish.Hold.Key.Raw, Queue: "new", Body: []byte("x")}}
			if err := tx.Commit(ctx, w...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	own, also := beginOwn(t, db), beginOwn(t, db)
	if err := db.Queue("newer").SendTx(ctx, own, driver.Message{ID: "m", Body: []byte("x")}); err != nil {
		t.Error(err)
	}
	for _, tx := range []pgx.Tx{own, also} {
		if err := tx.Commit(ctx); err != nil {
			t.Error(err)
		}
	}
	if ds, err := db.Queue("new").Receive(t.Context(), 10); err != nil || len(ds) != 2 {
		t.Errorf("%d messages, %v", len(ds), err)
	}
}

// TestSettingsOfOneMessage last until the end of its transaction, and so must not be in that of another message, nor
// before what semel writes.
func TestSettingsOfOneMessage(t *testing.T) {
	db := openFor(t, Options{})
	s := db.Store()
	other := fmt.Sprintf("semel_other_%016x", rand.Uint64())
	execSQL(t, db, "CREATE SCHEMA "+other)
	defer execSQL(t, db, "DROP SCHEMA "+other+" CASCADE")
	execSQL(t, db, "CREATE TABLE "+other+".ledger (id text)")
	count := func() (n int) {
		if err := db.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+other+".ledger").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	set := func(w *driver.Work, sql string, args ...any) {
		list := stmts(w).List
		w.Effects = &driver.Statements{}
		stmts(w).Exec(sql, args...)
		stmts(w).List = append(stmts(w).List, list...)
		w.Emit = []driver.Message{{ID: w.Finish.Hold.Key.Raw, Queue: "q", Body: []byte("x")}}
	}
	for name, rows := range map[string]int{"plain": -1, "counted": 1} {
		before, there := countLedger(t, db), count()
		ws := worksFor(t, s, name, 4)
		set(&ws[0], "/* tenant */ set local search_path = "+other)
		set(&ws[2], "SELECT Set_Config('search_path', $1, true)", other)
		stmts(&ws[0]).List[1].Rows = rows
		out, err := s.Commit(t.Context(), ws...)
		if err != nil || slices.Contains(out, driver.Lost) || slices.Contains(out, driver.Unknown) {
			t.Fatalf("%s: commit returned %v, %v", name, out, err)
		}
		if here, there := countLedger(t, db)-before, count()-there; here != 2 || there != 2 {
			t.Errorf("%s: %d effects here, %d there", name, here, there)
		}
	}
	if ds, err := db.Queue("q").Receive(t.Context(), 10); err != nil || len(ds) != 4 {
		t.Errorf("%d messages, %v", len(ds), err)
	}
	// What is refused has its index in the call; what was committed before it is reported as committed again.
	before := countLedger(t, db)
	ws := worksFor(t, s, "refused", 4)
	set(&ws[2], "SET LOCAL search_path = "+other)
	stmts(&ws[3]).Exec("SELECT 1/0")
	var item *driver.ItemError
	if _, err := s.Commit(t.Context(), ws...); !errors.As(err, &item) || item.Index != 3 {
		t.Errorf("commit returned %v", err)
	}
	if out, err := s.Commit(t.Context(), ws[:3]...); err != nil || out[2] != driver.Applied || countLedger(t, db) != before+2 {
		t.Errorf("without the culprit commit returned %v, %v, %d effects", out, err, countLedger(t, db)-before)
	}
	if n := count(); n != 5 {
		t.Errorf("%d effects there", n)
	}
}

// TestCulpritOfADeferredConstraint: the engine halves the batch until the message is alone whose effects COMMIT refuses. It
// becomes a dead letter, and the others take effect once.
func TestCulpritOfADeferredConstraint(t *testing.T) {
	db := openFor(t, Options{})
	execSQL(t, db, "CREATE TABLE parent (id text PRIMARY KEY)")
	execSQL(t, db, "CREATE TABLE child (parent text REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
	const n = 12
	for i := range n {
		if i != 5 {
			execSQL(t, db, "INSERT INTO parent VALUES ($1)", fmt.Sprint("m-", i))
		}
		send(t, db.Queue("orders"), driver.Message{ID: fmt.Sprint("m-", i)})
	}
	c, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(), MaxAttempts: 2, Backoff: semel.Backoff{Min: time.Millisecond, Max: time.Millisecond},
		Handler: semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
			_, err := tx.Exec(ctx, "INSERT INTO child VALUES ($1)", a.ID)
			return err
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	eventually(t, "the queue is empty", func() bool {
		s, err := db.Queue("orders").Stats(t.Context())
		return err == nil && s.Empty()
	})
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var rows, distinct int
	if err := db.pool.QueryRow(t.Context(), "SELECT count(*), count(DISTINCT parent) FROM child").Scan(&rows, &distinct); err != nil {
		t.Fatal(err)
	}
	ls, err := db.Queue("orders").DeadLetters(t.Context(), 0)
	if err != nil || rows != n-1 || distinct != n-1 || len(ls) != 1 || ls[0].Message.ID != "m-5" || ls[0].Attempts != 2 {
		t.Errorf("%d effects of %d messages, dead letters %+v, %v", rows, distinct, ls, err)
	}
}
