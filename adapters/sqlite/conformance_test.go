package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/semeltest"
)

// fakeClock is a clock that moves when the test advances it.
type fakeClock struct{ at atomic.Int64 }

func newClock() *fakeClock {
	c := &fakeClock{}
	c.at.Store(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *fakeClock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.at.Add(int64(d)) }

// ledgerTables are the tables of the ledger.
const ledgerTables = "CREATE TABLE ledger (id TEXT); CREATE TABLE ledger_parent (id TEXT PRIMARY KEY); " +
	"CREATE TABLE ledger_child (id TEXT, parent TEXT REFERENCES ledger_parent ON UPDATE CASCADE)"

// openFor opens a database with a ledger for a suite.
func openFor(t testing.TB, o Options) *DB {
	t.Helper()
	db := openAt(t, filepath.Join(t.TempDir(), "semel.db"), o)
	if _, err := db.SQL().ExecContext(t.Context(), ledgerTables); err != nil {
		t.Fatal(err)
	}
	return db
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
		AddTx: func(ctx context.Context, tx driver.Tx, id string) error {
			var x *sql.Tx
			tx.As(&x)
			_, err := x.ExecContext(ctx, "INSERT INTO ledger (id) VALUES ($1)", id)
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
			err = db.SQL().QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE id = ?", id).Scan(&n)
			return n, err
		},
	}
}

func TestStoreSuite(t *testing.T) {
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		c := newClock()
		db := openFor(t, Options{clock: c.now})
		return semeltest.StoreSetup{
			Store: db.Store(), Advance: c.advance, Queue: db.Queue("orders"), Ledger: ledger(db), Damage: damage(db),
			Sample: semeltest.Sampled(11), // memory compares all cells
		}
	})
}

// damage makes records those of a newer program.
func damage(db *DB) func(t testing.TB, k driver.Key) {
	return func(t testing.TB, k driver.Key) {
		t.Helper()
		if _, err := db.SQL().ExecContext(t.Context(), "UPDATE semel_record SET watermark = x'0300' WHERE place = ?", []byte(rowstore.PlaceOf(&k))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreSuiteRealClock uses short leases and real waits, on fewer cells than TestStoreSuite.
func TestStoreSuiteRealClock(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("TestStoreSuite runs it in virtual time; make nightly runs it in real time, too")
	}
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		db := openFor(t, Options{})
		return semeltest.StoreSetup{Store: db.Store(), Queue: db.Queue("orders"), Ledger: ledger(db), Damage: damage(db), Sample: semeltest.Sampled(47)}
	})
}

func TestQueueSuite(t *testing.T) {
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		c := newClock()
		o := Options{clock: c.now}
		db := openFor(t, o)
		return semeltest.QueueSetup{Queue: db.Queue("orders"), Advance: c.advance, MaxBody: 30 << 20, Restart: again(db, o)}
	})
}

func TestQueueSuiteRealClock(t *testing.T) {
	if testing.Short() {
		t.Skip("-short runs the suites once, in virtual time")
	}
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		o := Options{Visibility: semeltest.Longer(t, 500*time.Millisecond)}
		db := openFor(t, o)
		return semeltest.QueueSetup{Queue: db.Queue("orders"), Visibility: o.Visibility, Restart: again(db, o)}
	})
}

// again opens the file of db for a second process.
func again(db *DB, o Options) func(testing.TB) driver.Queue {
	return func(t testing.TB) driver.Queue { return openAt(t, db.path, o).Queue("orders") }
}

func TestPairSuite(t *testing.T) {
	semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
		visible := semeltest.Longer(t, 2*time.Second)
		db := openFor(t, Options{Visibility: visible})
		return semeltest.PairSetup{
			Queue: db.Queue("orders"), Store: db.Store(), Visibility: visible, Ledger: ledger(db),
			Tx: func(fn func(ctx context.Context, add func(string) error, a *semel.Attempt) error) semel.Handler {
				return semel.InTx(func(ctx context.Context, e *semel.Statements, a *semel.Attempt) error {
					return fn(ctx, func(id string) error { e.Exec("INSERT INTO ledger (id) VALUES (?)", id); return nil }, a)
				})
			},
			Batch: func(fn func(ctx context.Context, add func(string) error, batch []*semel.Attempt) error) semel.Handler {
				return semel.InTxBatch(func(ctx context.Context, e *semel.Statements, batch []*semel.Attempt) error {
					return fn(ctx, func(id string) error { e.Exec("INSERT INTO ledger (id) VALUES (?)", id); return nil }, batch)
				})
			},
		}
	})
}

// TestPairSuiteOpen runs the handlers in open transactions (modes B and C).
func TestPairSuiteOpen(t *testing.T) {
	semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
		visible := semeltest.Longer(t, 2*time.Second)
		db := openFor(t, Options{Visibility: visible})
		return semeltest.PairSetup{
			Queue: db.Queue("orders"), Store: db.Store(), Visibility: visible, Ledger: ledger(db),
			Tx: func(fn func(ctx context.Context, add func(string) error, a *semel.Attempt) error) semel.Handler {
				return semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
					return fn(ctx, func(id string) error {
						_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
						return err
					}, a)
				})
			},
			Batch: func(fn func(ctx context.Context, add func(string) error, batch []*semel.Attempt) error) semel.Handler {
				return semel.InTxBatch(func(ctx context.Context, tx *sql.Tx, batch []*semel.Attempt) error {
					return fn(ctx, func(id string) error {
						_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
						return err
					}, batch)
				})
			},
		}
	}, semeltest.JoinedCases()...)
}
