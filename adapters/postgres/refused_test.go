package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

const refusedLease = 4 * time.Second

// others is how long the messages that nothing is wrong with may take: two leases, and five times as much on a slow machine.
const others = 10 * refusedLease

// consuming is a consumer on a database of its own, and what it did.
type consuming struct {
	*DB
	t *testing.T
	q *Queue
}

// consume runs a consumer of bodies, which are its keys, until the test has ended.
func consume(t *testing.T, db *DB, h semel.Handler, change func(*semel.Config)) *consuming {
	t.Helper()
	c := &consuming{DB: db, t: t, q: db.Queue("jobs")}
	cfg := semel.Config{
		Queue: c.q, Store: db.Store(), Handler: h, Visibility: refusedLease, MaxAttempts: 2, Consumer: "default",
		Key:     func(m *semel.Message) (string, error) { return string(m.Body), nil },
		Backoff: semel.Backoff{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond},
	}
	if change != nil {
		change(&cfg)
	}
	cons, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cons.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return c
}

func (c *consuming) send(keys ...string) {
	c.t.Helper()
	ms := make([]driver.Message, len(keys))
	for i, k := range keys {
		ms[i].Body = []byte(k)
	}
	if err := c.q.Send(c.t.Context(), ms...); err != nil {
		c.t.Fatal(err)
	}
}

// until waits for a condition, and returns how long that took.
func (c *consuming) until(what string, yes func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for !yes() {
		if time.Since(began) > 3*time.Minute {
			c.t.Fatalf("after %v: %s is not so", time.Since(began).Round(time.Second), what)
		}
		time.Sleep(20 * time.Millisecond) // the pause between two looks
	}
	return time.Since(began)
}

func (c *consuming) count(sql string) (n int) {
	if err := c.pool.QueryRow(context.WithoutCancel(c.t.Context()), sql).Scan(&n); err != nil {
		c.t.Errorf("%s: %v", sql, err)
	}
	return n
}

// deadLetter waits for the only dead letter and returns its reason.
func (c *consuming) deadLetter() string {
	c.t.Helper()
	var ls []driver.DeadLetter
	c.until("there is a dead letter", func() (yes bool) {
		var err error
		if ls, err = c.q.DeadLetters(c.t.Context(), 0); err != nil {
			c.t.Fatal(err)
		}
		return len(ls) > 0
	})
	if len(ls) != 1 || string(ls[0].Message.Body) != "bad" {
		c.t.Fatalf("dead letters %+v", ls)
	}
	return ls[0].Reason
}

func healthyKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("ok", i))
	}
	return keys
}

// TestFM46_RefusedEffect: a statement that the server refuses each time, with a code that is often its own trouble, is its
// message's failure. The others commit.
func TestFM46_RefusedEffect(t *testing.T) {
	raise := "DO $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '%s'; END $$"
	statements := semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
		if a.Key.Raw == "bad" {
			e.Exec("SELECT poison()")
		} else {
			e.ExecRows(1, "INSERT INTO ledger VALUES ($1)", a.Key.Raw)
		}
		return nil
	})
	batch := semel.InTxBatch(func(_ context.Context, e *semel.Statements, as []*semel.Attempt) error {
		for _, a := range as {
			if a.Key.Raw == "bad" {
				e.Exec("SELECT poison()")
			} else {
				e.Exec("INSERT INTO ledger VALUES ($1)", a.Key.Raw)
			}
		}
		return nil
	})
	open := semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
		sql := "INSERT INTO ledger VALUES ($1)"
		if a.Key.Raw == "bad" {
			sql = "INSERT INTO guarded VALUES ($1)" // COMMIT finds it refused
		}
		_, err := tx.Exec(ctx, sql, a.Key.Raw)
		return err
	})
	inside := semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
		sql := "INSERT INTO ledger VALUES ($1)"
		if a.Key.Raw == "bad" {
			sql = "SELECT poison() FROM (SELECT $1::text) x"
		}
		_, err := tx.Exec(ctx, sql, a.Key.Raw)
		return err
	})
	for name, x := range map[string]struct {
		h      semel.Handler
		poison string
	}{
		"statements/XX000":   {statements, fmt.Sprintf(raise, "XX000")},
		"statements/40001":   {statements, fmt.Sprintf(raise, "40001")},
		"statements/timeout": {statements, "DO $$ BEGIN PERFORM pg_sleep(3600); END $$"},
		"batch/XX000":        {batch, fmt.Sprintf(raise, "XX000")},
		"open/at commit":     {open, fmt.Sprintf(raise, "40001")},
		"open/40001":         {inside, fmt.Sprintf(raise, "40001")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openFor(t, Options{Visibility: refusedLease})
			execSQL(t, db, "CREATE TABLE guarded (id text)")
			execSQL(t, db, "CREATE FUNCTION poison() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN EXECUTE $x$"+x.poison+"$x$; END $f$")
			execSQL(t, db, `CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM poison(); RETURN NULL; END'`)
			execSQL(t, db, "CREATE CONSTRAINT TRIGGER guard AFTER INSERT ON guarded DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard()")
			c := consume(t, db, x.h, nil)
			c.send(append(append(healthyKeys(20), "bad"), "more1", "more2")...)
			took := c.until("all effects of the others are committed", func() bool { return c.count("SELECT count(*) FROM ledger") == 22 })
			if took > others {
				t.Errorf("the others took %v, wanted %v at most", took, others)
			}
			t.Logf("others after %v, dead letter: %.200s", took, c.deadLetter())
		})
	}
}

// TestFM47_LockedRow: a row that somebody else's open transaction has locked stops the messages of that row alone. They wait
// for as long as it takes, and their records tell who holds it.
func TestFM47_LockedRow(t *testing.T) {
	for _, timeout := range []string{"", "2000", "100"} {
		t.Run("lock_timeout "+timeout, func(t *testing.T) {
			t.Parallel()
			url := schemaURL(t)
			if timeout != "" {
				url += "&lock_timeout=" + timeout
			}
			db := openLedger(t, url, Options{Visibility: refusedLease})
			execSQL(t, db, "CREATE TABLE stock (sku text PRIMARY KEY, n int)")
			execSQL(t, db, "INSERT INTO stock SELECT 's' || g, 0 FROM generate_series(0, 9) g")
			tx, err := db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := tx.Exec(t.Context(), "SET LOCAL application_name = 'someone'"); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "UPDATE stock SET n = n WHERE sku = 's0'"); err != nil {
				t.Fatal(err)
			}
			c := consume(t, db, semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
				e.ExecRows(1, "UPDATE stock SET n = n + 1 WHERE sku = $1", a.Key.Raw[:2])
				return nil
			}), func(c *semel.Config) { c.Concurrency = 4 })
			c.send("s0a", "s1a", "s2a", "s3a", "s4a", "s5a", "s6a", "s7a", "s8a", "s9a", "s1b", "s2b", "s3b", "s4b", "s5b", "s6b", "s7b", "s8b", "s9b")
			took := c.until("both updates of the other rows are committed", func() bool { return c.count("SELECT sum(n) FROM stock") == 18 })
			if took > others {
				t.Errorf("the others took %v, wanted %v at most", took, others)
			}
			key := driver.Key{Consumer: "default", Raw: "s0a"}
			var r driver.Record
			c.until("the record tells who blocks it", func() bool {
				rs, err := db.Store().Records(t.Context(), driver.RecordFilter{State: driver.Released})
				if err != nil {
					t.Fatal(err)
				}
				if len(rs) == 1 {
					r = rs[0]
				}
				return strings.Contains(r.Reason, fmt.Sprintf("session %d", tx.Conn().PgConn().PID()))
			})
			if r.Key.Raw != key.Raw || !strings.Contains(r.Reason, `application "someone"`) || !strings.Contains(r.Reason, "idle in transaction") || r.Failures > 0 {
				t.Errorf("the record of the blocked one: %d failures, %s", r.Failures, r.Reason)
			}
			if n := c.count("SELECT count(*) FROM semel_dead_letter"); n > 0 {
				t.Errorf("%d dead letters while the lock lasts", n)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.until("the update of the locked row is committed", func() bool { return c.count("SELECT sum(n) FROM stock") == 19 })
		})
	}
}

// TestFM47_LockedRowOfHandler is the same for handlers that run their own statements.
func TestFM47_LockedRowOfHandler(t *testing.T) {
	db := openFor(t, Options{Visibility: refusedLease, LockWait: 200 * time.Millisecond})
	execSQL(t, db, "CREATE TABLE stock (sku text PRIMARY KEY, n int)")
	execSQL(t, db, "INSERT INTO stock VALUES ('bad', 0)")
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "UPDATE stock SET n = n"); err != nil {
		t.Fatal(err)
	}
	c := consume(t, db, semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
		sql := "INSERT INTO stock VALUES ($1, 1)"
		if a.Key.Raw == "bad" {
			sql = "UPDATE stock SET n = n + 1 WHERE sku = $1"
		}
		_, err := tx.Exec(ctx, sql, a.Key.Raw)
		return err
	}), nil)
	c.send(append(healthyKeys(5), "bad", "more1", "more2")...)
	took := c.until("the others are committed", func() bool { return c.count("SELECT sum(n) FROM stock") == 7 })
	if took > others {
		t.Errorf("the others took %v, wanted %v at most", took, others)
	}
	c.until("the blocked one was returned twice", func() bool {
		return c.count("SELECT coalesce(max(count), 0) FROM semel_message") > 2
	})
	if n := c.count("SELECT count(*) FROM semel_dead_letter"); n > 0 {
		t.Errorf("%d dead letters while the lock lasts", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.until("the blocked one is committed", func() bool { return c.count("SELECT sum(n) FROM stock") == 8 })
}

// TestFM47_StopsWhileBlocked: a worker that stops does not wait for a lock, or for a statement that never ends.
func TestFM47_StopsWhileBlocked(t *testing.T) {
	db := openFor(t, Options{Visibility: 10 * time.Minute})
	started := make(chan struct{}, 1)
	cons, err := semel.New(semel.Config{
		Queue: db.Queue("jobs"), Store: db.Store(), Visibility: 10 * time.Minute, Grace: 100 * time.Millisecond,
		Key: func(m *semel.Message) (string, error) { return string(m.Body), nil },
		Handler: semel.InTx(func(_ context.Context, e *semel.Statements, _ *semel.Attempt) error {
			e.Exec("SELECT pg_sleep(3600)")
			started <- struct{}{}
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Queue("jobs").Send(t.Context(), driver.Message{Body: []byte("bad")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cons.Run(ctx) }()
	<-started
	cancel()
	began := time.Now()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > time.Minute { // a flush may take three
		t.Errorf("it stopped after %v", took)
	}
}
