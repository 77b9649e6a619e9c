package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
)

// failoverVisibility is long enough for deliveries of the old primary to be in flight when the new one is there.
const failoverVisibility = 8 * time.Second

// pair is a primary with a standby that replicates asynchronously, and an address that leads to the primary.
type pair struct {
	*testing.T
	primary, standby *server.Server
	address          *server.Proxy
	// url leads through the address.
	url string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{T: t, primary: start(t, nil)}
	var err error
	if p.standby, err = p.primary.Standby(t.Context(), server.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.standby.Close() })
	if p.address, err = server.NewProxy(p.primary.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.address.Close() })
	p.url = "postgres://postgres@" + p.address.Addr() + "/postgres?sslmode=disable"
	if err := crew.Prepare(t.Context(), p.primary.URL()); err != nil {
		t.Fatal(err)
	}
	p.sql(p.primary, "CREATE TABLE taken (key text)")
	return p
}

func (p *pair) sql(s *server.Server, statements string) string {
	p.Helper()
	out, err := server.SQL(p.Context(), s.URL(), statements)
	if err != nil {
		p.Fatal(err)
	}
	return out
}

// lag waits until the standby has everything, and stops it: what is committed from now on it will never have.
func (p *pair) lag() {
	p.Helper()
	p.until("the standby to have everything", func() bool {
		return p.sql(p.primary, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()") == "1"
	})
	if err := p.standby.Stop(server.Fast); err != nil {
		p.Fatal(err)
	}
}

// failOver kills the primary and promotes the standby. The address leads nowhere until arrive.
func (p *pair) failOver() {
	p.Helper()
	p.address.Refuse(true)
	if err := p.primary.Kill(); err != nil {
		p.Fatal(err)
	}
	if err := p.standby.Start(p.Context()); err != nil {
		p.Fatal(err)
	}
	if err := p.standby.Promote(p.Context()); err != nil {
		p.Fatal(err)
	}
}

func (p *pair) arrive() {
	p.address.Forward(p.standby.Addr())
	p.address.Refuse(false)
}

func (p *pair) until(what string, ok func() bool) {
	p.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("waited %v for %s", timeout, what)
		}
	}
}

func (p *pair) open(url string) *postgres.DB {
	p.Helper()
	db, err := postgres.Open(p.Context(), url, postgres.Options{Visibility: failoverVisibility})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = db.Close() })
	return db
}

// works runs a consumer whose effect is a row for each key. failing fails the first run of each key that it says.
func (p *pair) works(db *postgres.DB, queue string, cached, concurrency int, failing func(key string) bool) (runs *atomic.Int64) {
	p.Helper()
	runs = &atomic.Int64{}
	var failed sync.Map
	c, err := semel.New(semel.Config{
		Queue: db.Queue(queue), Store: cache.New(db.Store(), cache.Options{Size: cached, Strangers: true}),
		Key:        func(m *semel.Message) (string, error) { return string(m.Body), nil },
		Visibility: failoverVisibility, Concurrency: concurrency,
		Backoff: semel.Backoff{Min: 100 * time.Millisecond, Max: time.Second},
		Handler: semel.InTx(func(_ context.Context, e *semel.Statements, a *semel.Attempt) error {
			runs.Add(1)
			if _, again := failed.LoadOrStore(a.Key.Raw, true); !again && failing(a.Key.Raw) {
				time.Sleep(4 * time.Second) // the old deliveries are settled meanwhile
				return errors.New("busy")
			}
			e.ExecRows(1, "INSERT INTO taken (key) VALUES ($1)", a.Key.Raw)
			return nil
		}),
	})
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	p.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			p.Error(err)
		}
	})
	return runs
}

func never(string) bool  { return false }
func always(string) bool { return true }

func (p *pair) send(db *postgres.DB, queue, name string, n int, delay time.Duration) {
	p.Helper()
	ms := make([]driver.Message, n)
	for i := range ms {
		ms[i] = driver.Message{Body: fmt.Appendf(nil, "%s-%d", name, i), Delay: delay}
	}
	if err := db.Queue(queue).Send(p.Context(), ms...); err != nil {
		p.Fatal(err)
	}
}

// keys lists what a query finds, sorted.
func (p *pair) keys(pool *pgxpool.Pool, sql string, args ...any) map[string]int {
	p.Helper()
	rows, err := pool.Query(p.Context(), sql, args...)
	if err != nil {
		p.Fatal(err)
	}
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var k string
		if err := rows.Scan(&k); err != nil {
			p.Fatal(err)
		}
		out[k]++
	}
	if err := rows.Err(); err != nil {
		p.Fatal(err)
	}
	return out
}

// TestFM44_AsynchronousFailover: the primary dies, and a standby that lags behind takes its place. A worker has deliveries
// in flight through all of it. Of what the new primary has, every message takes effect exactly once: those whose effects it
// lost run again, also where a cache remembers them as done, and no acknowledgement of an old delivery removes a message
// that was sent since and has its position. A queue that the standby never had gets nothing into another one.
func TestFM44_AsynchronousFailover(t *testing.T) {
	t.Parallel()
	for _, cache := range []int{0, 1000} {
		t.Run(fmt.Sprintf("cache=%d", cache), func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			const fresh = 300
			old := p.open(p.url)
			p.send(old, "jobs", "undone", 100, 3*time.Second) // the standby has these, and never their effects
			p.send(old, "jobs", "done", 60, 0)
			runs := p.works(old, "jobs", cache, 16, never)
			p.until("the first effects", func() bool { return runs.Load() >= 60 })
			p.until("their commits", func() bool { return p.sql(p.primary, "SELECT count(*) >= 60 FROM taken") == "t" })
			p.lag()
			p.until("effects that the standby does not have", func() bool { return p.sql(p.primary, "SELECT count(*) >= 160 FROM taken") == "t" })
			p.send(old, "payments", "payment", 1, 0) // it has not the queue either
			for i := range 8 {
				p.send(old, "jobs", fmt.Sprint("lost", i), 100, 0)
			}
			p.until("deliveries in flight", func() bool { return runs.Load() > 160+50 })
			p.failOver()

			// Others go on at once, and their messages have the positions of those that are lost.
			next := p.open(p.standby.URL())
			known := p.keys(next.Pool(), "SELECT convert_from(body, 'UTF8') FROM semel_message UNION SELECT key FROM taken")
			p.send(next, "audit", "audit", 1, 0)
			p.send(next, "jobs", "fresh", fresh, 0)
			others := p.works(next, "jobs", 0, 2000, always)
			p.until("the new messages in flight", func() bool { return others.Load() >= fresh })
			p.arrive()
			var err error
			p.until("the old process to send", func() bool {
				err = old.Queue("payments").Send(t.Context(), driver.Message{Body: []byte("payment")})
				return err == nil
			})
			p.until("an empty queue", func() bool {
				return p.sql(p.standby, "SELECT count(*) FROM semel_messages WHERE queue = 'jobs'") == "0"
			})
			for i := range fresh {
				known[fmt.Sprint("fresh-", i)] = 1
			}
			taken := p.keys(next.Pool(), "SELECT key FROM taken")
			missing := 0
			for k := range known {
				if taken[k] == 0 {
					missing++
				}
			}
			for k, n := range taken {
				if n > 1 {
					t.Errorf("%s took effect %d times", k, n)
				}
			}
			t.Logf("the promoted standby knew %d keys; %d took effect", len(known)-fresh, len(taken))
			if missing > 0 {
				t.Errorf("%d of %d messages that the new primary had never took effect", missing, len(known))
			}
			queues := p.sql(p.standby, "SELECT queue, body FROM semel_messages ORDER BY queue")
			if queues != "audit|audit-0\npayments|payment" {
				t.Errorf("the other queues have\n%s", queues)
			}
			if deadLetters := p.sql(p.standby, "SELECT count(*) FROM semel_dead_letter"); deadLetters != "0" {
				t.Errorf("%s dead letters", deadLetters)
			}
		})
	}
}
