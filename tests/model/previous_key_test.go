package model

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/keymigration/keymigrationtest"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// previousLedger is a ledger in SQL, for a store with a second record behind every key.
func previousLedger(addTx func(ctx context.Context, tx driver.Tx, id string) error, count func(ctx context.Context, id string) (int, error)) *semeltest.Ledger {
	return &semeltest.Ledger{
		Buffer: func(c driver.Committer) any {
			var e *driver.Statements
			c.Offers(&e)
			return e
		},
		Add:    func(e any, id string) { e.(*driver.Statements).Exec("INSERT INTO ledger (id) VALUES ($1)", id) },
		Refuse: func(e any) { e.(*driver.Statements).ExecRows(1, "UPDATE ledger SET id = id WHERE 1 = 0") },
		AddTx:  addTx, Count: count,
	}
}

// TestPreviousSQLite runs the conformance suite with two records behind every key: they behave as one.
func TestPreviousSQLite(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("TestPreviousPostgres is the same; make nightly runs both")
	}
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "semel.db"), sqlite.Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if _, err := db.SQL().ExecContext(t.Context(), "CREATE TABLE ledger (id TEXT)"); err != nil {
			t.Fatal(err)
		}
		l := previousLedger(func(ctx context.Context, tx driver.Tx, id string) error {
			var x *sql.Tx
			tx.As(&x)
			_, err := x.ExecContext(ctx, "INSERT INTO ledger (id) VALUES ($1)", id)
			return err
		}, func(ctx context.Context, id string) (n int, err error) {
			err = db.SQL().QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE id = $1", id).Scan(&n)
			return n, err
		})
		return semeltest.StoreSetup{Store: keymigrationtest.Migrating(db.Store()), Queue: db.Queue("orders"), Ledger: l, Sample: semeltest.Sampled(23)}
	})
}

// TestPreviousPostgres is the same on PostgreSQL.
func TestPreviousPostgres(t *testing.T) {
	address, cases := server.Database(t), atomic.Int32{}
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		schema := fmt.Sprint("case_", cases.Add(1))
		if _, err := server.SQL(t.Context(), address, "CREATE SCHEMA "+schema); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("search_path", schema)
		u.RawQuery = q.Encode()
		db, err := postgres.Open(t.Context(), u.String(), postgres.Options{Create: true, MaxConns: 4, NoListen: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if _, err := db.Pool().Exec(t.Context(), "CREATE TABLE ledger (id text)"); err != nil {
			t.Fatal(err)
		}
		l := previousLedger(func(ctx context.Context, tx driver.Tx, id string) error {
			var x pgx.Tx
			tx.As(&x)
			_, err := x.Exec(ctx, "INSERT INTO ledger (id) VALUES ($1)", id)
			return err
		}, func(ctx context.Context, id string) (n int, err error) {
			err = db.Pool().QueryRow(ctx, "SELECT count(*) FROM ledger WHERE id = $1", id).Scan(&n)
			return n, err
		})
		return semeltest.StoreSetup{Store: keymigrationtest.Migrating(db.Store()), Queue: db.Queue("orders"), Ledger: l, Sample: semeltest.Sampled(23)}
	})
}
