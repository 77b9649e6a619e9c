package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		db := openFor(t, Options{})
		return semeltest.StoreSetup{
			Store: db.Store(), Queue: db.Queue("orders"), Ledger: ledger(db), Damage: damage(db),
			Sample: semeltest.Sampled(11), // memory compares all cells, in virtual time
		}
	})
}

// damage makes records those of a newer program.
func damage(db *DB) func(t testing.TB, k driver.Key) {
	return func(t testing.TB, k driver.Key) {
		t.Helper()
		execSQL(t, db, `UPDATE semel_record SET watermark = '\x0300' WHERE place = $1`, placeOf(&k))
	}
}

// TestStoreSuiteBare does without prepared statements, as behind a pooler in transaction mode, and in a database whose
// transactions are serializable unless they say otherwise.
func TestStoreSuiteBare(t *testing.T) {
	t.Parallel()
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		url := schemaURL(t) + "&default_query_exec_mode=exec&default_transaction_isolation=serializable"
		db := openLedger(t, url, Options{NoListen: true})
		return semeltest.StoreSetup{
			Store: db.Store(), Queue: db.Queue("orders"), Ledger: ledger(db), Damage: damage(db),
			Sample: semeltest.Sampled(23),
		}
	})
}

type addFunc = func(ctx context.Context, add func(string) error, a *semel.Attempt) error

func pairWith(t *testing.T, handler func(addFunc) semel.Handler, only ...string) {
	semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
		visible := semeltest.Longer(t, 2*time.Second)
		db := openFor(t, Options{Visibility: visible, MaxConns: 8})
		return semeltest.PairSetup{Queue: db.Queue("orders"), Store: db.Store(), Visibility: visible, Ledger: ledger(db), Tx: handler}
	}, only...)
}

const addToLedger = "INSERT INTO ledger (id) SELECT $1::text" // not a row, which goes together with others

func TestPairSuite(t *testing.T) {
	t.Parallel()
	pairWith(t, func(fn addFunc) semel.Handler {
		return semel.InTx(func(ctx context.Context, e *semel.Statements, a *semel.Attempt) error {
			return fn(ctx, func(id string) error { e.Exec(addToLedger, id); return nil }, a)
		})
	})
}

// TestPairSuiteOpen runs the handlers in open transactions (modes B and C).
func TestPairSuiteOpen(t *testing.T) {
	t.Parallel()
	pairWith(t, func(fn addFunc) semel.Handler {
		return semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
			return fn(ctx, func(id string) error { _, err := tx.Exec(ctx, addToLedger, id); return err }, a)
		})
	}, semeltest.JoinedCases()...)
}

func TestPairSuiteOpenSQL(t *testing.T) {
	t.Parallel()
	pairWith(t, func(fn addFunc) semel.Handler {
		return semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
			return fn(ctx, func(id string) error { _, err := tx.ExecContext(ctx, addToLedger, id); return err }, a)
		})
	}, semeltest.JoinedCases()...)
}
