package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/mysql/mysqltest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	address := mysqltest.Database(t, server.Shared(t, "mysql"))
	for url, want := range map[string]string{
		"mysql://127.0.0.1:1/x":  "connection refused",
		address + "_absent":      "Try: create the database",
		address:                  "has no semel tables; Try: mysql.Migrate(ctx, url), semel migrate --store 'mysql://127.0.0.1",
		address + "?charset=gbk": `parameter "charset" is unknown`,
		"postgres://h/x":         `scheme "postgres"`,
	} {
		db, err := Open(t.Context(), url, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", url, db, err, want)
		}
	}
	if _, err := Open(t.Context(), address, Options{LockWait: -1}); err == nil || !strings.Contains(err.Error(), "Options.LockWait") {
		t.Errorf("a negative option: %v", err)
	}
}

func TestCheckVersion(t *testing.T) {
	for version, ok := range map[string]bool{
		"10.6.0-MariaDB": true, "10.5.29-MariaDB-log": false, "11.4.2-MariaDB": true, "8.0.1": true, "8.4.0-cluster": true, "8.0.0-dmr": false,
		"5.7.44-log": false, "PolarDB": false,
	} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// TestMigrate: several processes migrate at once, an interrupted migration is repeated, and a newer schema is refused.
func TestMigrate(t *testing.T) {
	t.Parallel()
	address := mysqltest.Database(t, server.Shared(t, "mysql"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, to, err := Migrate(t.Context(), address); err != nil || to != schemaVersion {
				t.Errorf("migrate: %d, %v", to, err)
			}
		})
	}
	wg.Wait()
	db := openURL(t, address, Options{})
	if done := try(t, db.Store(), 1); !done {
		t.Fatal("the key was not completed")
	}
	execSQL(t, db, "DELETE FROM semel_schema") // as if the last statement had not run
	if from, to, err := Migrate(t.Context(), address); err != nil || from != 0 || to != schemaVersion || try(t, db.Store(), 1) {
		t.Errorf("the repeated migration: %d to %d, %v", from, to, err)
	}
	execSQL(t, db, "UPDATE semel_schema SET version = version + 1")
	var schema *SchemaError
	if _, err := Open(t.Context(), address, Options{}); !errors.As(err, &schema) || !strings.Contains(err.Error(), "a newer semel") {
		t.Errorf("a newer schema: %v", err)
	}
	if _, _, err := Migrate(t.Context(), address); !errors.As(err, &schema) {
		t.Errorf("migrate a newer schema: %v", err)
	}
}

// try completes a key, and reports whether it was new.
func try(t testing.TB, s *Store, n int) bool {
	t.Helper()
	g, err := s.Claim(t.Context(), driver.Claim{Key: keyOf(n), Nonce: nonce(), Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if g[0].Verdict != driver.Acquired {
		return false
	}
	if o, err := s.Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour}); err != nil || o[0] != driver.Applied {
		t.Fatalf("finish: %v, %v", o, err)
	}
	return true
}

// TestFM50_ReadOnly: a server that becomes read-only is an outage, and a DB that was opened read-only writes nothing.
func TestFM50_ReadOnly(t *testing.T) {
	t.Parallel()
	srv, address := own(t, nil)
	db := openURL(t, address, Options{})
	look := openURL(t, address, Options{ReadOnly: true})
	if _, err := look.Store().Claim(t.Context(), driver.Claim{Key: keyOf(1), Nonce: nonce(), Lease: time.Hour}); !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("a claim of a DB that was opened read-only: %v", err)
	}
	admin, err := mysqltest.Connect(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	// root is exempt from read_only
	for _, q := range []string{"CREATE USER app@'%'", "GRANT ALL ON `semel\\_test\\_%`.* TO app@'%'", "SET GLOBAL read_only = 1"} {
		if _, err := admin.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	_ = db.Close()
	app := openURL(t, strings.Replace(address, "root@", "app@", 1), Options{})
	_, err = app.Store().Claim(t.Context(), driver.Claim{Key: keyOf(1), Nonce: nonce(), Lease: time.Hour})
	if !errors.Is(err, driver.ErrOutage) || !app.Facts().ReadOnly {
		t.Errorf("a claim on a read-only server: %v", err)
	}
	if _, err := admin.ExecContext(t.Context(), "SET GLOBAL read_only = 0"); err != nil {
		t.Fatal(err)
	}
	if !try(t, app.Store(), 1) {
		t.Error("the key was completed although the server was read-only")
	}
}

// TestFM37_UnsafeSettings: the guarantee of a server that can lose commits reports it.
func TestFM37_UnsafeSettings(t *testing.T) {
	t.Parallel()
	_, address := own(t, map[string]string{"innodb_flush_log_at_trx_commit": "2", "log_bin": "bin", "server_id": "1"})
	db := openURL(t, address, Options{})
	f := db.Store().Features()
	if all := strings.Join(f.Caveats, "\n"); f.Durable || !strings.Contains(all, "innodb_flush_log_at_trx_commit is 2") ||
		!strings.Contains(all, "sync_binlog is 0") || !strings.Contains(all, "asynchronous") {
		t.Errorf("features: %+v", f)
	}
	if q := db.Queue("orders").Features(); q.Durable || len(q.Caveats) != len(f.Caveats) {
		t.Errorf("features of the queue: %+v", q)
	}
}

// begin opens a transaction for a handler.
func begin(t *testing.T, s *Store, n int) (driver.Tx, *sql.Tx, driver.Hold) {
	t.Helper()
	x, g, err := s.Begin(t.Context(), driver.Claim{Key: keyOf(n), Nonce: nonce(), Lease: time.Minute})
	if err != nil || g[0].Verdict != driver.Acquired {
		t.Fatalf("begin: %+v, %v", g, err)
	}
	var tx *sql.Tx
	if !x.As(&tx) {
		t.Fatal("the transaction has no *sql.Tx")
	}
	return x, tx, g[0].Hold
}

// TestTx_HandlerEndsIt: a handler ends the transaction, or has it ended. Its later writes are rolled back, Commit reports it, and
// the session is usable.
func TestTx_HandlerEndsIt(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{MaxConns: 2})
	s := db.Store()
	for n, end := range []string{"COMMIT", "ROLLBACK", "CREATE TABLE extra (id INT)", "BEGIN", "ALTER TABLE ledger_lock ADD COLUMN x INT", "tx.Commit"} {
		x, tx, hold := begin(t, s, n)
		if end == "tx.Commit" {
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		} else {
			for _, q := range []string{end, "SET SESSION sql_mode = '', innodb_lock_wait_timeout = 1000", "INSERT INTO ledger VALUES ('behind')"} {
				if _, err := tx.ExecContext(t.Context(), q); err != nil {
					t.Fatalf("%s: %v", q, err)
				}
			}
		}
		err := x.Commit(t.Context(), driver.Work{Finish: driver.Finish{Hold: hold, Final: driver.Complete, Keep: time.Hour}})
		if !errors.Is(err, errEnded) || errors.Is(err, driver.ErrNotCommitted) {
			t.Errorf("%s: Commit returns %v", end, err)
		}
	}
	for range 4 { // sessions that a handler changed
		var mode string
		var wait int
		scan(t, db, "SELECT @@sql_mode, @@innodb_lock_wait_timeout", &mode, &wait)
		if !strings.Contains(mode, "STRICT_ALL_TABLES") || wait != 1 {
			t.Errorf("the next session has sql_mode %q and waits %d s", mode, wait)
		}
	}
	if n, err := ledger(db).Count(t.Context(), "behind"); n != 0 || err != nil {
		t.Errorf("%d rows were written behind the end of the transaction, %v", n, err)
	}
}

// TestTx_Idle: the server ends the session of a transaction that is idle for MaxTx, and its key is free again.
func TestTx_Idle(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{MaxTx: time.Second, LockWait: time.Second})
	x, _, hold := begin(t, db.Store(), 1)
	await(t, func() bool { return try(t, db.Store(), 1) })
	err := x.Commit(t.Context(), driver.Work{Finish: driver.Finish{Hold: hold, Final: driver.Complete, Keep: time.Hour}})
	if err == nil {
		t.Error("the transaction was committed although the server had ended it")
	}
}

// TestEffects_Refused: statements that would end the transaction, or concern semel's tables, fail their own message.
func TestEffects_Refused(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{})
	s := db.Store()
	for n, c := range []struct{ sql, want string }{
		{"CREATE TABLE x (id INT)", "CREATE cannot be an effect"},
		{"  -- y\n/* z */ commit", "COMMIT cannot be an effect"},
		{"SET @x = 1", "SET cannot be an effect"},
		{"CALL p()", "CALL cannot be an effect"},
		{"TRUNCATE ledger", "TRUNCATE cannot be an effect"},
		{"/*!50000 COMMIT */", "comment that the server executes"},
		{"INSERT INTO ledger VALUES (1); COMMIT", "more than one statement"},
		{"DELETE FROM semel_record", "it names semel_record"},
		{"DELETE FROM `SEMEL_record`", "it names semel_record"},
		{"INSERT INTO ledger VALUES (?)", "0 arguments for 1 placeholders"},
		{`INSERT INTO ledger VALUES ('\'); COMMIT`, "quote is not closed"},
		{"INSERT INTO absent VALUES (1)", "1146"},
	} {
		g, err := s.Claim(t.Context(), driver.Claim{Key: keyOf(n), Nonce: nonce(), Lease: time.Hour}, driver.Claim{Key: keyOf(n + 1000), Nonce: nonce(), Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		good, bad := &driver.Statements{}, &driver.Statements{}
		good.Exec("INSERT INTO ledger VALUES ($1)", "good")
		bad.Exec(c.sql)
		_, err = s.Commit(t.Context(), work(g[0].Hold, good), work(g[1].Hold, bad))
		var item *driver.ItemError
		if !errors.As(err, &item) || item.Index != 1 || item.Transient || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.sql, err, c.want)
		}
	}
	if n, err := ledger(db).Count(t.Context(), "good"); n != 0 || err != nil {
		t.Errorf("%d rows of refused commits, %v", n, err)
	}
}

func work(h driver.Hold, e *driver.Statements) driver.Work {
	return driver.Work{Finish: driver.Finish{Hold: h, Final: driver.Complete, Keep: time.Hour}, Effects: e}
}

// TestEffects_Text: literals, comments and names are read as the server reads them.
func TestEffects_Text(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{})
	g, err := db.Store().Claim(t.Context(), driver.Claim{Key: keyOf(1), Nonce: nonce(), Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	e := &driver.Statements{}
	for _, q := range []string{
		`INSERT INTO ledger VALUES (CONCAT('it''s \' ? $2', ?)) # $3 ?`,
		"INSERT INTO `ledger` (id) SELECT /* ? */ $1 -- ?\n",
		`INSERT INTO ledger VALUES (CONCAT("a;b", ?1, @absent))`,
		"WITH w AS (SELECT 5--$1 AS n) SELECT * FROM w",
	} {
		e.Exec(q, "7")
	}
	e.Insert("ledger", []string{"id"}, "row")
	if o, err := db.Store().Commit(context.Background(), work(g[0].Hold, e)); err != nil || o[0] != driver.Applied {
		t.Fatalf("commit: %v, %v", o, err)
	}
	for _, id := range []string{"it's ' ? $27", "7", "row"} {
		if n, err := ledger(db).Count(t.Context(), id); n != 1 || err != nil {
			t.Errorf("%d rows of %q, %v", n, id, err)
		}
	}
}
