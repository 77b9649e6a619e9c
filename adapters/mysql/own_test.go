package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/mysql/mysqltest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// own starts a server of one's own, and returns the URL of a database on it.
func own(t testing.TB, settings map[string]string) (*server.Server, string) {
	t.Helper()
	s := server.Own(t, "mysql", settings)
	return s, mysqltest.Database(t, s.URL())
}

func nonce() (n driver.Nonce) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

func keyOf(n int) driver.Key { return driver.Key{Consumer: "test", Raw: fmt.Sprint("key-", n)} }

func scan(t testing.TB, db *DB, query string, dest ...any) {
	t.Helper()
	if err := db.SQL().QueryRowContext(t.Context(), query).Scan(dest...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// count is a number of nightly runs, or a smaller one.
func count(nightly, otherwise int) int {
	if semeltest.Nightly() {
		return nightly
	}
	return otherwise
}

// TestFM37_KilledInCommits kills the server again and again while consumers commit effects, records and acks, some in open
// transactions. Each effect is there once.
func TestFM37_KilledInCommits(t *testing.T) {
	t.Parallel()
	srv, address := own(t, nil)
	db := openURL(t, address, Options{MaxConns: 8, Visibility: 3 * time.Second})
	makeLedger(t, db)
	n, kills := count(10_000, 600), count(12, 2)
	var ms []driver.Message
	for i := range n {
		ms = append(ms, driver.Message{Body: []byte(fmt.Sprint(i))})
		if i%3 == 0 {
			ms = append(ms, driver.Message{Body: []byte(fmt.Sprint(i))})
		}
	}
	if err := db.Queue("orders").Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	byBody := func(m *semel.Message) (string, error) { return string(m.Body), nil }
	for _, h := range []semel.Handler{
		semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
			e.Insert("ledger", []string{"id"}, a.Key.Raw)
			return nil
		}),
		semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
			_, err := tx.ExecContext(ctx, addToLedger, a.Key.Raw)
			return err
		}),
	} {
		c, err := semel.New(semel.Config{
			Queue: db.Queue("orders"), Store: db.Store(), Key: byBody, Handler: h, Batch: 20, Concurrency: 20, MaxAttempts: 1000,
			Visibility: 3 * time.Second, MaxRuntime: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = c.Run(ctx) }) // the ledger decides
	}
	done := func() (done int) {
		_ = db.SQL().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM ledger").Scan(&done) // the server may be gone
		return done
	}
	for i := range kills {
		await(t, func() bool { return done() > n*i/(2*kills) })
		server.Restart(t, srv)
	}
	await(t, func() bool {
		st, err := db.Queue("orders").Stats(t.Context())
		return err == nil && st.Empty()
	})
	stop()
	wg.Wait()
	var effects, keys int
	scan(t, db, "SELECT COUNT(*), COUNT(DISTINCT id) FROM ledger", &effects, &keys)
	if effects != n || keys != n {
		t.Errorf("%d effects of %d keys, want %d of each", effects, keys, n)
	}
}

// await looks every few milliseconds until it is so.
func await(t testing.TB, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-t.Context().Done():
			t.Fatal("the test has ended")
		case <-tick.C:
		}
	}
}

// TestFM45_DeadlockStorm has 8 workers claim, extend and complete batches of the same keys. No deadlock is visible, and there are
// few: all lock in one order. Only an INSERT of new keys that meets another one can deadlock.
func TestFM45_DeadlockStorm(t *testing.T) {
	t.Parallel()
	_, address := own(t, map[string]string{"innodb_flush_log_at_trx_commit": "2"})
	db := openURL(t, address, Options{MaxConns: 8})
	s := db.Store()
	var wg sync.WaitGroup
	rounds := count(200, 12)
	for range 8 {
		wg.Go(func() {
			for range rounds {
				var c []driver.Claim
				for _, i := range mathrand.Perm(500)[:100] {
					c = append(c, driver.Claim{Key: keyOf(i), Nonce: nonce(), Lease: time.Minute})
				}
				g, err := s.Claim(t.Context(), c...)
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				var holds []driver.Hold
				var ends []driver.Finish
				for i := range g {
					if g[i].Verdict == driver.Acquired {
						holds = append(holds, g[i].Hold)
						ends = append(ends, driver.Finish{Hold: g[i].Hold, Final: driver.Release, Ran: driver.NotApplied, Keep: time.Hour})
					}
				}
				if _, err := s.Extend(t.Context(), time.Minute, holds...); err != nil {
					t.Errorf("extend: %v", err)
				}
				if _, err := s.Finish(t.Context(), ends...); err != nil {
					t.Errorf("finish: %v", err)
				}
			}
		})
	}
	wg.Wait()
	var name string
	var deadlocks int
	scan(t, db, "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'", &name, &deadlocks)
	if most := 8 * rounds / 4; deadlocks > most {
		t.Errorf("the server counts %d deadlocks of %d batches, want %d at most", deadlocks, 8*rounds, most)
	}
}

// TestFM45_EffectsDeadlock: the effects of messages deadlock with each other, in collected statements and in open
// transactions. No attempt is spent, and each effect happens once.
func TestFM45_EffectsDeadlock(t *testing.T) {
	t.Parallel()
	db := openFor(t, Options{MaxConns: 12})
	execSQL(t, db, "CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL)")
	execSQL(t, db, "INSERT INTO accounts VALUES (0, 0), (1, 0), (2, 0), (3, 0)")
	const move = "UPDATE accounts SET n = n + 1 WHERE id = ?"
	pair := func(a *semel.Attempt) (int, int) {
		from := int(a.Body[0]) % 4
		return from, (from + 1 + int(a.Body[0]/4)%3) % 4
	}
	n := count(2000, 120)
	for name, h := range map[string]semel.Handler{
		"statements": semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
			from, to := pair(a)
			e.ExecRows(1, move, from)
			e.ExecRows(1, move, to)
			return nil
		}),
		"open": semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
			from, to := pair(a)
			if _, err := tx.ExecContext(ctx, move, from); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, move, to)
			return err
		}),
	} {
		execSQL(t, db, "UPDATE accounts SET n = 0")
		q := db.Queue(name)
		for i := range n {
			if err := q.Send(t.Context(), driver.Message{Body: []byte{byte(i)}, ID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var sum semel.Summary
		ctx, stop := context.WithCancel(t.Context())
		for range 3 {
			c, err := semel.New(semel.Config{Queue: q, Store: db.Store(), Handler: h, Batch: 2, Concurrency: 4})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				_ = c.Run(ctx)
				mu.Lock()
				defer mu.Unlock()
				sum.Effects, sum.Retried, sum.Dead = sum.Effects+c.Summary().Effects, sum.Retried+c.Summary().Retried, sum.Dead+c.Summary().Dead
			})
		}
		await(t, func() bool {
			st, err := q.Stats(t.Context())
			return err == nil && st.Empty()
		})
		stop()
		wg.Wait()
		var moved int
		scan(t, db, "SELECT SUM(n) FROM accounts", &moved)
		if moved != 2*n || sum.Retried+sum.Dead > 0 {
			t.Errorf("%s: %d rows moved, want %d; %d attempts failed, %d dead letters", name, moved, 2*n, sum.Retried, sum.Dead)
		}
	}
}

// TestFM32_LostResponses: a write arrives, and its response is lost. The outcome is unknown; the same write returns what the
// first one did.
func TestFM32_LostResponses(t *testing.T) {
	t.Parallel()
	direct := openFor(t, Options{})
	address := direct.name[len("mysql://"):]
	host, name, _ := strings.Cut(address, "/")
	p, err := server.NewProxy(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	db := openURL(t, "mysql://root@"+p.Addr()+"/"+name, Options{})
	s := db.Store()
	claim := driver.Claim{Key: keyOf(1), Nonce: nonce(), Lease: time.Hour}
	lose := func(request string) { p.LoseResponses(server.ToServer, request, 1) }
	lose("INSERT INTO semel_record")
	if g, err := s.Claim(t.Context(), claim); err == nil || errors.Is(err, driver.ErrNotCommitted) {
		t.Fatalf("a claim whose response is lost returns %v, %v", g, err)
	}
	g, err := s.Claim(t.Context(), claim)
	if err != nil || g[0].Verdict != driver.Acquired || g[0].Attempt != 1 {
		t.Fatalf("the same claim again is %+v, %v", g, err)
	}
	if err := db.Queue("orders").Send(t.Context(), driver.Message{ID: "m"}); err != nil {
		t.Fatal(err)
	}
	ds, err := db.Queue("orders").Receive(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	e := &driver.Statements{}
	e.Exec(addToLedger, "once")
	w := driver.Work{
		Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour}, Effects: e, Ack: &driver.Settlement{Receipt: ds[0].Receipt},
		Emit: []driver.Message{{Queue: "next", ID: "n"}},
	}
	lose("\x03COMMIT")
	if o, err := s.Commit(t.Context(), w); err == nil || errors.Is(err, driver.ErrNotCommitted) {
		t.Fatalf("a commit whose response is lost returns %v, %v", o, err)
	}
	for range 2 {
		if o, err := s.Commit(t.Context(), w); err != nil || o[0] != driver.Applied {
			t.Errorf("the same commit again is %v, %v", o, err)
		}
	}
	if p.Lost() != 2 {
		t.Errorf("%d responses were lost, not 2: the test shows nothing", p.Lost())
	}
	next, err := db.Queue("next").Stats(t.Context())
	if n, lerr := ledger(db).Count(t.Context(), "once"); n != 1 || lerr != nil || next.Visible != 1 || err != nil {
		t.Errorf("%d effects, %d emitted messages (%v, %v), want 1 of each", n, next.Visible, lerr, err)
	}
}

// TestFM35_CutConnections cuts all connections of a consumer again and again. Each effect is there once.
func TestFM35_CutConnections(t *testing.T) {
	t.Parallel()
	direct := openFor(t, Options{})
	host, name, _ := strings.Cut(direct.name[len("mysql://"):], "/")
	p, err := server.NewProxy(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	db := openURL(t, "mysql://root@"+p.Addr()+"/"+name, Options{Visibility: 2 * time.Second})
	n := count(5000, 200)
	for i := range n {
		if err := direct.Queue("orders").Send(t.Context(), driver.Message{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(), Batch: 10, Concurrency: 10, Visibility: 2 * time.Second,
		Handler: semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
			e.Exec(addToLedger, a.Key.Raw)
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(ctx) }()
	for i := range 5 {
		await(t, func() bool {
			var done int
			scan(t, direct, "SELECT COUNT(*) FROM ledger", &done)
			return done > n*i/8
		})
		p.Cut()
	}
	await(t, func() bool {
		st, err := direct.Queue("orders").Stats(t.Context())
		return err == nil && st.Empty()
	})
	stop()
	<-ended
	var effects, keys int
	scan(t, direct, "SELECT COUNT(*), COUNT(DISTINCT id) FROM ledger", &effects, &keys)
	if effects != n || keys != n {
		t.Errorf("%d effects of %d keys, want %d of each", effects, keys, n)
	}
}
