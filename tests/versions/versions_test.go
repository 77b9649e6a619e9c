// Package versions runs versions of one entity through real worker processes that are killed, on SQLite and on PostgreSQL.
package versions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/server"
)

// The test binary runs itself again as a worker: place and strategy come by the environment.
const (
	envPlace    = "SEMEL_VERSIONS_PLACE"
	envStrategy = "SEMEL_VERSIONS_STRATEGY"
)

func TestMain(m *testing.M) {
	if os.Getenv(envPlace) == "" {
		os.Exit(m.Run())
	}
	if err := work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type queue interface {
	driver.Queue
	driver.Sender
	driver.QueueInspector
}

type store interface {
	driver.Store
	driver.RecordInspector
}

// place is a queue and records in one database.
type place struct {
	queue  queue
	store  store
	ledger func(ctx context.Context) ([]string, error)
	close  func() error
}

func open(ctx context.Context, at string) (*place, error) {
	const read = "SELECT v FROM ledger ORDER BY n"
	if !strings.HasPrefix(at, "postgres") {
		db, err := sqlite.Open(ctx, at, sqlite.Options{Create: true, Visibility: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		return &place{db.Queue("q"), db.Store(), func(ctx context.Context) (out []string, err error) {
			rows, err := db.SQL().QueryContext(ctx, read)
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var v string
				if err := rows.Scan(&v); err != nil {
					return nil, err
				}
				out = append(out, v)
			}
			return out, rows.Err()
		}, db.Close}, nil
	}
	db, err := postgres.Open(ctx, at, postgres.Options{Visibility: 2 * time.Second, MaxConns: 6, Create: true})
	if err != nil {
		return nil, err
	}
	return &place{db.Queue("q"), db.Store(), func(ctx context.Context) (out []string, err error) {
		rows, err := db.Pool().Query(ctx, read)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var v string
			if err := rows.Scan(&v); err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, rows.Err()
	}, db.Close}, nil
}

// work is a worker until it is killed.
func work(ctx context.Context) error {
	p, err := open(ctx, os.Getenv(envPlace))
	if err != nil {
		return err
	}
	v, err := key.ParseVersions(os.Getenv(envStrategy))
	if err != nil {
		return err
	}
	c, err := semel.New(semel.Config{
		Queue: p.queue, Store: p.store, Consumer: "q", Key: key.FromJSON("/id"), Versions: v, Concurrency: 2, Batch: 4,
		Visibility: 2 * time.Second,
		Handler: semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
			tx.Exec("INSERT INTO ledger (v) VALUES ($1)", a.Version().String())
			return nil
		}),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

type fixture struct {
	*testing.T
	*place
	at, strategy string
	workers      []*process.Process
}

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, strategy string, fn func(r *fixture)) {
	if testing.Short() {
		t.Skip("-short starts no worker processes")
	}
	t.Run("sqlite", func(t *testing.T) {
		r := &fixture{T: t, at: filepath.Join(t.TempDir(), "semel.db"), strategy: strategy}
		db, err := sqlite.Open(t.Context(), r.at, sqlite.Options{Create: true})
		if err == nil {
			_, err = db.SQL().ExecContext(t.Context(), "CREATE TABLE ledger (n INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT)")
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		r.test(fn)
	})
	t.Run("postgres", func(t *testing.T) {
		u, drop, err := server.CreateDatabase(t.Context(), server.Shared(t, "postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = drop(context.WithoutCancel(t.Context())) })
		if _, err := server.SQL(t.Context(), u, "CREATE TABLE ledger (n BIGSERIAL PRIMARY KEY, v TEXT)"); err != nil {
			t.Fatal(err)
		}
		r := &fixture{T: t, at: u, strategy: strategy}
		r.test(fn)
	})
}

func (r *fixture) test(fn func(r *fixture)) {
	p, err := open(r.Context(), r.at)
	if err != nil {
		r.Fatal(err)
	}
	r.place = p
	defer func() { _ = p.close() }()
	defer r.killAll()
	fn(r)
}

func (r *fixture) start(n int) {
	r.Helper()
	for range n {
		cmd := process.Self(envPlace+"="+r.at, envStrategy+"="+r.strategy)
		cmd.Stderr = os.Stderr
		r.workers = append(r.workers, process.StartTest(r, cmd))
	}
}

// killAll kills every worker with SIGKILL.
func (r *fixture) killAll() {
	for _, w := range r.workers {
		w.Kill()
	}
	r.workers = nil
}

func (r *fixture) send(versions ...int) {
	r.Helper()
	var out []driver.Message
	for _, v := range versions {
		out = append(out, driver.Message{ID: fmt.Sprintf("m-%d", v), Body: fmt.Appendf(nil, `{"id":"order-1","v":%d}`, v)})
	}
	if err := r.queue.Send(r.Context(), out...); err != nil {
		r.Fatal(err)
	}
}

func (r *fixture) applied() []string {
	r.Helper()
	out, err := r.ledger(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return out
}

func (r *fixture) until(what string, ok func() bool) {
	r.Helper()
	for deadline := time.Now().Add(15 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("waited for %s; applied %v", what, r.applied())
		}
	}
}

func shuffled(from, to int) (out []int) {
	for v := from; v <= to; v++ {
		out = append(out, v)
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// TestParkedVersionsSurviveKilledProcesses: versions wait for the first while all processes are killed again and again; in
// the end each is applied once, in order.
func TestParkedVersionsSurviveKilledProcesses(t *testing.T) {
	onBoth(t, "sequence:/v,gap=park:30m", func(r *fixture) {
		const n = 40
		r.send(shuffled(2, n)...)
		for round := range 3 {
			r.start(3)
			time.Sleep(time.Duration(300+200*round) * time.Millisecond) // whenever: nothing hangs on it
			r.killAll()
		}
		if got := r.applied(); len(got) > 0 {
			r.Fatalf("applied %v before the first version came", got)
		}
		r.send(1)
		for range 4 {
			r.start(3)
			some := len(r.applied()) + 3
			r.until("some versions", func() bool { return len(r.applied()) >= min(some, n) })
			r.killAll()
		}
		r.start(3)
		r.until("an empty queue", func() bool { st, err := r.queue.Stats(r.Context()); return err == nil && st.Empty() })
		var want []string
		for v := 1; v <= n; v++ {
			want = append(want, fmt.Sprint(v))
		}
		if got := r.applied(); !slices.Equal(got, want) {
			r.Errorf("applied %v", got)
		}
		if st, err := r.queue.Stats(r.Context()); err != nil || st.DeadLetters > 0 {
			r.Errorf("%+v, %v", st, err)
		}
	})
}
