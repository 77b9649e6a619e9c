package mysql

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/mysql/mysqltest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestStoreSuite compares the store with the decision table, on a clock that the suite moves, also back.
func TestStoreSuite(t *testing.T) {
	t.Parallel()
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		db, advance := openClock(t, Options{})
		return semeltest.StoreSetup{
			Store: db.Store(), Advance: advance, Queue: db.Queue("orders"), Ledger: ledger(db), Damage: damage(db), Sample: semeltest.Sampled(11),
		}
	})
}

// TestStoreSuiteServerClock has the server's own clock.
func TestStoreSuiteServerClock(t *testing.T) {
	t.Parallel()
	if !semeltest.Nightly() {
		t.Skip("the suite of records runs on a clock of its own; make nightly runs it on the server's too")
	}
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		db := openFor(t, Options{})
		return semeltest.StoreSetup{Store: db.Store(), Queue: db.Queue("orders"), Ledger: ledger(db), Damage: damage(db)}
	})
}

func TestQueueSuite(t *testing.T) {
	t.Parallel()
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		o := Options{Visibility: semeltest.Longer(t, time.Second)}
		address := mysqltest.Database(t, server.Shared(t, "mysql"))
		return semeltest.QueueSetup{
			Queue: openURL(t, address, o).Queue("orders"), Visibility: o.Visibility, MaxBody: 4 << 20,
			Restart: func(t testing.TB) driver.Queue { return openURL(t, address, o).Queue("orders") },
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

const addToLedger = "INSERT INTO ledger (id) VALUES (?)"

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
		return semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
			return fn(ctx, func(id string) error { _, err := tx.ExecContext(ctx, addToLedger, id); return err }, a)
		})
	}, semeltest.JoinedCases()...)
}
