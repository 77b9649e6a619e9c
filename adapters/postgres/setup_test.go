package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// openFor opens a database of its own with a ledger.
func openFor(t testing.TB, o Options) *DB {
	t.Helper()
	return openLedger(t, schemaURL(t)+fmt.Sprintf("&application_name=t%016x", rand.Uint64()), o)
}

// openLedger does the same in a schema that there is.
func openLedger(t testing.TB, url string, o Options) *DB {
	t.Helper()
	db := openURL(t, url, o)
	execSQL(t, db, "CREATE TABLE IF NOT EXISTS ledger (id TEXT)")
	return db
}

func execSQL(t testing.TB, db *DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.pool.Exec(context.WithoutCancel(t.Context()), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ledger(db *DB) *semeltest.Ledger {
	return &semeltest.Ledger{
		Buffer: func(c driver.Committer) any {
			var e *driver.Statements
			c.Offers(&e)
			return e
		},
		Add:    func(e any, id string) { e.(*driver.Statements).Exec(addToLedger, id) },
		Refuse: func(e any) { e.(*driver.Statements).ExecRows(1, "UPDATE ledger SET id = id WHERE 1 = 0") },
		Transient: func(e any) {
			e.(*driver.Statements).Exec("DO $$ BEGIN RAISE EXCEPTION 'internal error' USING ERRCODE = 'XX000'; END $$")
		},
		Lock: func(t testing.TB) (func(any), func()) {
			tx := beginOwn(t, db)
			if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(hashtext(current_schema()))"); err != nil {
				t.Fatal(err)
			}
			use := func(e any) { e.(*driver.Statements).Exec("SELECT pg_advisory_xact_lock(hashtext(current_schema()))") }
			return use, func() {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
		AddTx: func(ctx context.Context, tx driver.Tx, id string) error {
			var x pgx.Tx
			tx.As(&x)
			_, err := x.Exec(ctx, "INSERT INTO ledger (id) VALUES ($1)", id)
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
			err = db.pool.QueryRow(ctx, "SELECT count(*) FROM ledger WHERE id = $1", id).Scan(&n)
			return n, err
		},
	}
}
