package mysql

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/mysql/mysqltest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// openURL opens a database with semel's tables.
func openURL(t testing.TB, address string, o Options) *DB {
	t.Helper()
	o.Create = true
	if o.MaxConns == 0 {
		o.MaxConns = 4
	}
	db, err := Open(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// openFor opens a database of its own, with a ledger, on the server that tests share.
func openFor(t testing.TB, o Options) *DB {
	t.Helper()
	db := openURL(t, mysqltest.Database(t, server.Shared(t, "mysql")), o)
	makeLedger(t, db)
	return db
}

func makeLedger(t testing.TB, db *DB) {
	t.Helper()
	execSQL(t, db, "CREATE TABLE ledger (id VARBINARY(255))")
	execSQL(t, db, "CREATE TABLE ledger_parent (id VARBINARY(255) PRIMARY KEY)")
	execSQL(t, db, "CREATE TABLE ledger_child (id VARBINARY(255), parent VARBINARY(255), FOREIGN KEY (parent) REFERENCES ledger_parent (id) ON UPDATE CASCADE)")
	execSQL(t, db, "CREATE TABLE ledger_lock (id INT PRIMARY KEY, n INT)")
	execSQL(t, db, "INSERT INTO ledger_lock VALUES (1, 0)")
}

func execSQL(t testing.TB, db *DB, query string, args ...any) {
	t.Helper()
	if _, err := db.SQL().ExecContext(context.WithoutCancel(t.Context()), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// testClock reads the time from a table of the test.
const testClock = "(SELECT at FROM test_clock)"

// openClock opens a database whose clock the test moves.
func openClock(t testing.TB, o Options) (*DB, func(time.Duration)) {
	t.Helper()
	address := mysqltest.Database(t, server.Shared(t, "mysql"))
	admin, err := mysqltest.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	if _, err := admin.ExecContext(t.Context(), "CREATE TABLE test_clock (at BIGINT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ExecContext(t.Context(), "INSERT INTO test_clock VALUES (?)", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro()); err != nil {
		t.Fatal(err)
	}
	o.clock = testClock
	db := openURL(t, address, o)
	makeLedger(t, db)
	return db, func(d time.Duration) { execSQL(t, db, "UPDATE test_clock SET at = at + ?", d.Microseconds()) }
}

// damage makes the record of a key one of a newer program.
func damage(db *DB) func(t testing.TB, k driver.Key) {
	return func(t testing.TB, k driver.Key) {
		t.Helper()
		execSQL(t, db, "UPDATE semel_record SET watermark = x'0300' WHERE place = ?", []byte(rowstore.PlaceOf(&k)))
	}
}

func ledger(db *DB) *semeltest.Ledger {
	return &semeltest.Ledger{
		Buffer: func(c driver.Committer) any {
			var e *driver.Statements
			c.Offers(&e)
			return e
		},
		Add:    func(e any, id string) { e.(*driver.Statements).Exec("INSERT INTO ledger (id) VALUES ($1)", id) },
		Refuse: func(e any) { e.(*driver.Statements).ExecRows(1, "UPDATE ledger SET id = id WHERE 1 = 0") },
		Lock: func(t testing.TB) (func(any), func()) {
			tx, err := db.SQL().BeginTx(t.Context(), nil)
			if err == nil {
				_, err = tx.ExecContext(t.Context(), "SELECT * FROM ledger_lock FOR UPDATE")
			}
			if err != nil {
				t.Fatal(err)
			}
			use := func(e any) { e.(*driver.Statements).Exec("UPDATE ledger_lock SET n = n + 1") }
			return use, func() {
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
			}
		},
		AddTx: func(ctx context.Context, tx driver.Tx, id string) error {
			var x *sql.Tx
			tx.As(&x)
			_, err := x.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
			return err
		},
		Rows: &semeltest.LedgerRows{
			Add:    func(e any, id string) { e.(*driver.Statements).Insert("ledger", []string{"id"}, id) },
			Parent: func(e any, id string) { e.(*driver.Statements).Insert("ledger_parent", []string{"id"}, id) },
			Child: func(e any, id, parent string) {
				e.(*driver.Statements).Insert("ledger_child", []string{"id", "parent"}, id, parent)
			},
			Rename: func(e any, from, to string) {
				e.(*driver.Statements).ExecRows(1, "UPDATE ledger_parent SET id = $1 WHERE id = $2", to, from)
			},
		},
		Count: func(ctx context.Context, id string) (n int, err error) {
			err = db.SQL().QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE id = ?", []byte(id)).Scan(&n)
			return n, err
		},
	}
}
