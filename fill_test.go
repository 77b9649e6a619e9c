package semel_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// slow is a database every call of which takes a round trip; it counts calls and items.
type slow struct {
	trip time.Duration
	mu   sync.Mutex
	n    map[string][2]int // calls, items
}

func (s *slow) call(name string, items int) {
	s.mu.Lock()
	c := s.n[name]
	s.n[name] = [2]int{c[0] + 1, c[1] + items}
	s.mu.Unlock()
	time.Sleep(s.trip)
}

// fill is how many items a call of that name carried on average.
func (s *slow) fill(name string) float64 {
	c := s.n[name]
	return float64(c[1]) / float64(max(c[0], 1))
}

type slowQueue struct {
	*memory.Queue
	s *slow
}

func (q slowQueue) Receive(ctx context.Context, n int) ([]driver.Delivery, error) {
	d, err := q.Queue.Receive(ctx, n)
	q.s.call("receive", len(d))
	return d, err
}

func (q slowQueue) Settle(ctx context.Context, x ...driver.Settlement) ([]driver.Outcome, error) {
	q.s.call("settle", len(x))
	return q.Queue.Settle(ctx, x...)
}

type slowStore struct {
	*memory.Store
	s     *slow
	joins bool
}

func (s slowStore) Joins(driver.Queue) bool { return s.joins }

func (s slowStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	s.s.call("claim", len(c))
	return s.Store.Claim(ctx, c...)
}

func (s slowStore) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	s.s.call("commit", len(w))
	return s.Store.Commit(ctx, w...)
}

func (s slowStore) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	s.s.call("begin", len(c))
	tx, g, err := s.Store.Begin(ctx, c...)
	if tx != nil {
		tx = slowTx{tx, s.s}
	}
	return tx, g, err
}

type slowTx struct {
	driver.Tx
	s *slow
}

func (t slowTx) Commit(ctx context.Context, w ...driver.Work) error {
	t.s.call("commit", len(w))
	return t.Tx.Commit(ctx, w...)
}

// TestBatchesFill: with a backlog and fast handlers every call carries nearly a full batch, the claims of the next batch
// are under way while the previous one commits, and an item per round trip is what is lost at the ends.
func TestBatchesFill(t *testing.T) {
	queued := semel.InTx(func(context.Context, *memory.Effects, *semel.Attempt) error { return nil })
	open := semel.InTx(func(context.Context, *memory.Tx, *semel.Attempt) error { return nil })
	for _, x := range []struct {
		name    string
		h       semel.Handler
		joins   bool
		lanes   int
		dup     int // of a hundred
		fill    float64
		perTrip float64 // batches
	}{
		{"queued effects, one database", queued, true, 1, 0, .9, .85},
		{"queued effects, one database, duplicates", queued, true, 1, 20, .85, .85},
		{"queued effects, one database, two committers", queued, true, 2, 0, .8, 1.4},
		{"queued effects, two databases", queued, false, 1, 0, .9, .8},
		{"queued effects, two databases, two committers", queued, false, 2, 0, .75, 1.25},
		{"open transaction, one database", open, true, 1, 0, .95, .45},
		{"open transaction, two committers", open, true, 2, 0, .95, .9},
		{"open transaction, two databases, two committers, duplicates", open, false, 2, 20, .85, .75},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const batch, n = 100, 40 * 100
				s := &slow{trip: 2 * time.Millisecond, n: map[string][2]int{}}
				r := newFixture(t, x.h, func(c *semel.Config) { c.Committers, c.Limit, c.Key = x.lanes, n, key.FromHeader("k") })
				r.cfg.Queue, r.cfg.Store = slowQueue{r.queue, s}, slowStore{r.store, s, x.joins}
				for i := range n {
					k := i
					if i%100 < x.dup {
						k = max(0, i-5*batch)
					}
					r.send(semel.Message{ID: strconv.Itoa(i), Headers: map[string]string{"k": strconv.Itoa(k)}})
				}
				began := time.Now()
				r.start()
				if err := <-r.done; err != nil {
					t.Fatal(err)
				}
				perTrip := float64(n) / batch / float64(time.Since(began)/s.trip)
				t.Logf("%.2f batches per round trip; items per call: receive %.0f, claim %.0f, begin %.0f, commit %.0f, settle %.0f",
					perTrip, s.fill("receive"), s.fill("claim"), s.fill("begin"), s.fill("commit"), s.fill("settle"))
				if perTrip < x.perTrip {
					t.Errorf("%.2f batches per round trip, wanted %.2f", perTrip, x.perTrip)
				}
				if got := max(s.fill("claim"), s.fill("begin")) / batch; got < x.fill {
					t.Errorf("claims are %.2f full, wanted %.2f", got, x.fill)
				}
				if got := s.fill("commit") / batch; got < x.fill*float64(100-x.dup)/100 {
					t.Errorf("commits are %.2f full, wanted %.2f", got, x.fill)
				}
			})
		})
	}
}
