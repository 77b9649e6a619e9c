// Package faults injects one fault at a time under real worker processes on the test's own PostgreSQL: workers die and
// freeze, sessions are terminated, responses are lost, the server goes down, locks and timeouts interfere, the disk is
// full. Every case runs in two of the four modes, in nightly runs in all of them. A ledger gives the verdict: see package
// crew.
package faults

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
)

func TestMain(m *testing.M) {
	crew.MainIfWorker()
	os.Exit(m.Run())
}

// visibility is how long a worker owns what it received. Its leases are nine tenths of it.
const visibility = 3 * time.Second

// timeout bounds every wait.
const timeout = 10 * time.Minute

// fixture is one case in one mode: a database of its own, messages, workers.
type fixture struct {
	*testing.T
	server  *server.Server
	url     string
	db      *postgres.DB
	mode    crew.Mode
	keys    *crew.Messages
	workers []*crew.Worker
	seed    uint64
}

// modes are those in which a case runs: one of them, drawn by its name; all in nightly runs.
func modes(t *testing.T) []crew.Mode {
	if semeltest.Nightly() {
		return crew.Modes
	}
	n := crc32.ChecksumIEEE([]byte(t.Name())) / 16 % uint32(len(crew.Modes))
	return crew.Modes[n : n+1]
}

// inModes runs a case in its modes, two at a time, each in a database of its own on a PostgreSQL with these settings.
func inModes(t *testing.T, settings map[string]string, fn func(r *fixture)) {
	t.Helper()
	s := start(t, settings)
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			run(t, s, mode, fn)
		})
	}
}

// inModesAlone gives each mode a PostgreSQL of its own: for cases that take the server down, or read its log.
func inModesAlone(t *testing.T, fn func(r *fixture)) {
	t.Helper()
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			run(t, start(t, nil), mode, fn)
		})
	}
}

// start starts a PostgreSQL that ends with the test and the tests in it.
func start(t *testing.T, settings map[string]string) *server.Server {
	t.Helper()
	server.Need(t, "postgres")
	if testing.Short() {
		t.Skip("starts a PostgreSQL and worker processes")
	}
	s, err := server.PostgreSQL(t.Context(), server.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log ends:\n%s", end(s.Log()))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func run(t *testing.T, s *server.Server, mode crew.Mode, fn func(r *fixture)) {
	t.Helper()
	r := &fixture{T: t, server: s, mode: mode, seed: rand.Uint64()}
	t.Logf("seed %d", r.seed)
	r.prepare()
	fn(r)
}

func end(s string) string { return s[max(0, len(s)-3000):] }

// prepare makes the database. It stays until the server goes.
func (r *fixture) prepare() {
	r.Helper()
	var err error
	if r.url, _, err = server.CreateDatabase(r.Context(), r.server.URL()); err != nil {
		r.Fatal(err)
	}
	if err := crew.Prepare(r.Context(), r.url); err != nil {
		r.Fatal(err)
	}
	if r.db, err = postgres.Open(r.Context(), r.url, postgres.Options{MaxConns: 4}); err != nil {
		r.Fatal(err)
	}
	r.keys = crew.NewMessages(r.seed, 0.2)
	r.Cleanup(func() {
		for _, w := range r.workers {
			w.Kill()
		}
		if err := r.db.Close(); err != nil {
			r.Error(err)
		}
	})
}

// send sends messages, a fifth of them duplicates.
func (r *fixture) send(n int) {
	r.Helper()
	if _, err := crew.Send(r.Context(), r.db.Queue(crew.Queue), r.keys.Next(n)); err != nil {
		r.Fatal(err)
	}
}

// task is a small worker: few messages at a time, so that there are many commits to break.
func (r *fixture) task() crew.Task {
	return crew.Task{URL: r.url, Queue: crew.Queue, Mode: r.mode, Visibility: visibility, MaxTx: visibility,
		LockWait: 200 * time.Millisecond, Concurrency: 8, Committers: 2, Batch: 8, Work: time.Millisecond}
}

func (r *fixture) spawn(t crew.Task) *crew.Worker {
	r.Helper()
	w, err := crew.Spawn(t)
	if err != nil {
		r.Fatal(err)
	}
	r.workers = append(r.workers, w)
	return w
}

// until waits for something to become true.
func (r *fixture) until(what string, ok func() bool) {
	r.Helper()
	for deadline := time.Now().Add(timeout); !ok(); {
		if time.Now().After(deadline) {
			r.Fatalf("waited %v for %s; workers say %s", timeout, what, r.reports())
		}
		if r.same(); r.Failed() {
			r.FailNow()
		}
		time.Sleep(5 * time.Millisecond) // the pause between two looks
	}
}

// sqlState reads the state of the database for the message of a failed test.
const sqlState = `SET statement_timeout = 0; SET lock_timeout = '1s';
SELECT 'now', clock_timestamp();
SELECT 'message', pos, convert_from(body, 'UTF8'), due_at, until, count, nonce, waits FROM semel_message ORDER BY pos LIMIT 5;
SELECT 'record', key, state, token, lease_until, retry_at, attempt, failures, takeovers, unknown, reason FROM semel_records
  WHERE state <> 'COMPLETED' LIMIT 5;
SELECT 'dead letter', kind, convert_from(reason, 'UTF8') FROM semel_dead_letter LIMIT 5;
SELECT 'session', pid, state, wait_event, clock_timestamp() - state_change, left(query, 100), (SELECT count(*) FROM pg_locks l WHERE l.pid = a.pid) FROM pg_stat_activity a
  WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid();`

// reports is what workers and database say: for the eyes of whoever looks into a failure.
func (r *fixture) reports() (text string) {
	for _, w := range r.workers {
		text += fmt.Sprintf("\n%d: %+v", w.Pid(), w.Report())
		if err := w.Err(); err != nil {
			text += " " + err.Error()
		}
	}
	state, err := server.SQL(r.Context(), r.url, sqlState)
	if err != nil {
		state += err.Error()
	}
	return text + "\n" + state
}

// count runs a query of one number on the fixture's database, or returns -1 while the server is away.
func (r *fixture) count(sql string, args ...any) (n int) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	if err := r.db.Pool().QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}

// done waits until some effects are there.
func (r *fixture) done(n int) {
	r.Helper()
	r.until(fmt.Sprintf("%d effects", n), func() bool { return r.count(`SELECT count(*) FROM ledger`) >= n })
}

// judge lets the workers finish, has them drain, and asks the ledger.
func (r *fixture) judge() crew.Verdict {
	r.Helper()
	r.until("an empty queue", func() bool { return r.count(`SELECT count(*) FROM semel_message`) == 0 })
	for _, w := range r.workers {
		if err := w.Stop(); err != nil {
			r.Error(err)
		}
	}
	v, err := crew.Judge(r.Context(), r.url, r.keys.Keys)
	if err != nil {
		r.Fatal(err)
	}
	r.Log(v)
	return v
}

// held is the verdict that every case wants.
func (r *fixture) held() {
	r.Helper()
	if v := r.judge(); !v.Held() {
		r.Errorf("not held: %v; workers said %s", v, r.reports())
	}
}

// replace kills a worker and starts another like it.
func (r *fixture) replace(w *crew.Worker) *crew.Worker {
	r.Helper()
	w.Kill()
	r.workers = without(r.workers, w)
	return r.spawn(w.Task)
}

func without(all []*crew.Worker, w *crew.Worker) (left []*crew.Worker) {
	for _, x := range all {
		if x != w {
			left = append(left, x)
		}
	}
	return left
}

// same checks that the workers are the ones that were started: nothing that was done to them may have ended one.
func (r *fixture) same() {
	r.Helper()
	for _, w := range r.workers {
		select {
		case <-w.Done():
			r.Errorf("worker %d ended by itself: %v", w.Pid(), w.Err())
		default:
		}
	}
}

// through is the fixture's URL by way of a proxy.
func (r *fixture) through(p *server.Proxy) string {
	r.Helper()
	u := r.parsed()
	u.Host = p.Addr()
	return u.String()
}

func (r *fixture) parsed() *url.URL {
	r.Helper()
	u, err := url.Parse(r.url)
	if err != nil {
		r.Fatal(err)
	}
	return u
}

// name is the name of the database.
func (r *fixture) name() string { return strings.TrimPrefix(r.parsed().Path, "/") }

func (r *fixture) proxy() *server.Proxy {
	r.Helper()
	p, err := server.NewProxy(r.server.Addr())
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { p.Close() })
	return p
}

func (r *fixture) sql(statements string) string {
	r.Helper()
	out, err := server.SQL(r.Context(), r.url, statements)
	if err != nil {
		r.Fatal(err)
	}
	return out
}
