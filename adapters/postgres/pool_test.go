package postgres

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// poolFor makes a pool as a program has one, with a schema of its own.
func poolFor(t testing.TB, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 8
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func openPool(t testing.TB, pool *pgxpool.Pool, o Options) *DB {
	t.Helper()
	o.Create = true
	db, err := OpenPool(t.Context(), pool, o)
	return opened(t, db, err)
}

// TestPairSuiteOnPool runs on a pool that semel did not make and that does not prepare statements, so that nothing but
// semel's own preparation of a connection says the types of arrays.
func TestPairSuiteOnPool(t *testing.T) {
	t.Parallel()
	semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
		visible := semeltest.Longer(t, 2*time.Second)
		db := openPool(t, poolFor(t, schemaURL(t)+"&default_query_exec_mode=exec", nil), Options{Visibility: visible})
		execSQL(t, db, "CREATE TABLE IF NOT EXISTS ledger (id TEXT)")
		return semeltest.PairSetup{
			Queue: db.Queue("orders"), Store: db.Store(), Visibility: visible, Ledger: ledger(db),
			Tx: func(fn addFunc) semel.Handler {
				return semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
					return fn(ctx, func(id string) error { _, err := tx.Exec(ctx, addToLedger, id); return err }, a)
				})
			},
		}
	}, semeltest.JoinedCases()...)
}

// TestFM44_HistoryOnPool: connections of the program's pool reveal another server at their first use by semel, of each DB
// that uses them.
func TestFM44_HistoryOnPool(t *testing.T) {
	pool := poolFor(t, schemaURL(t), nil)
	dbs := []*DB{openPool(t, pool, Options{}), openPool(t, pool, Options{})}
	for i, db := range dbs {
		send(t, db.Queue("q"), driver.Message{ID: "m"})
		before := db.Store().History()
		pool.Reset()
		send(t, db.Queue("q"), driver.Message{ID: "n"})
		if now := db.Store().History(); now != before || before == 0 {
			t.Errorf("DB %d: the history was %d and is %d, and the server is the same", i, before, now)
		}
		db.history.heard(time.Time{}) // as from another server
		before = db.Store().History()
		pool.Reset()
		send(t, db.Queue("q"), driver.Message{ID: "o"})
		if now := db.Store().History(); now == before {
			t.Errorf("DB %d: the history is %d as before on a new connection to another server", i, now)
		}
	}
}

// TestCredentialsAreAskedForEachConnection: those of the pool, the one that listens, and the one that makes a queue while a
// handler's transaction is open.
func TestCredentialsAreAskedForEachConnection(t *testing.T) {
	var asked, made atomic.Int32
	hooks := func(cfg *pgxpool.Config) {
		user, password := cfg.ConnConfig.User, cfg.ConnConfig.Password
		cfg.ConnConfig.User, cfg.ConnConfig.Password = "nobody-"+user, "expired"
		cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			asked.Add(1)
			c.User, c.Password = user, password
			return nil
		}
		cfg.AfterConnect = func(context.Context, *pgx.Conn) error {
			made.Add(1)
			return nil
		}
	}
	for name, db := range map[string]*DB{
		"Open":     openURL(t, schemaURL(t), Options{Configure: hooks}),
		"OpenPool": openPool(t, poolFor(t, schemaURL(t), hooks), Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			if err := db.queueApart(t.Context(), "apart"); err != nil || asked.Load() < 1 { // the pools may connect meanwhile, too
				t.Errorf("the queue is made with %d new credentials, %v", asked.Load(), err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { _, err := db.Queue("q").Receive(ctx, 1); done <- err }()
			eventually(t, "listen", db.wake.listening.Load)
			stop()
			<-done
		})
	}
	if made.Load() < 4 {
		t.Errorf("AfterConnect saw %d connections", made.Load())
	}
}

// TestOpenPoolLeavesThePoolOpen and refuses what it could not keep.
func TestOpenPoolLeavesThePoolOpen(t *testing.T) {
	url := schemaURL(t)
	pool := poolFor(t, url, nil)
	db := openPool(t, pool, Options{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the program's pool after Close: %v", err)
	}
	if from, to, err := MigratePool(t.Context(), pool); err != nil || from != schemaVersion || to != schemaVersion {
		t.Errorf("migrated from %d to %d, %v", from, to, err)
	}
	simple := poolFor(t, url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	for want, open := range map[string]func() (*DB, error){
		"simple_protocol": func() (*DB, error) { return OpenPool(t.Context(), simple, Options{}) },
		"pool is nil":     func() (*DB, error) { return OpenPool(t.Context(), nil, Options{}) },
		"Options.MaxConns": func() (*DB, error) {
			return OpenPool(t.Context(), pool, Options{MaxConns: 3})
		},
		"lets one statement carry several": func() (*DB, error) {
			return Open(t.Context(), url, Options{Configure: func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			}})
		},
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wanted an error about %q, got %v", want, err)
		}
	}
}
