package semel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// parked waits an hour for the version before.
func parked(c *semel.Config) {
	v := key.BySequence("/v")
	v.Park = time.Hour
	versioned(v)(c)
}

// farStore is a store whose every claim and finish takes a round trip.
type farStore struct {
	*memory.Store
	trip time.Duration
}

func (s farStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	time.Sleep(s.trip)
	return s.Store.Claim(ctx, c...)
}

func (s farStore) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	time.Sleep(s.trip)
	return s.Store.Commit(ctx, w...)
}

func far(c *semel.Config) { c.Store = farStore{c.Store.(*memory.Store), 2 * time.Millisecond} }

// another is a message of an entity of its own.
func another(i int) semel.Message {
	return semel.Message{Body: fmt.Appendf(nil, `{"id":"other-%d","v":1}`, i)}
}

// others is how long a number of other entities' messages take beside what was sent before.
func others(t *testing.T, n int, before func(r *fixture), handle func(a *semel.Attempt), tweak ...func(*semel.Config)) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var last time.Time
		left := n
		h := semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if !strings.HasPrefix(a.Key.Raw, "other") {
				handle(a)
				return nil
			}
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				last = time.Now()
			}
			return nil
		})
		r := newFixture(t, h, append([]func(*semel.Config){parked, far}, tweak...)...)
		r.start()
		before(r)
		time.Sleep(5 * time.Second)
		began := time.Now()
		for i := range n {
			r.send(another(i))
		}
		r.after(20 * time.Minute)
		if left > 0 {
			t.Fatalf("%d of the others have not run in 20 minutes", left)
		}
		took = last.Sub(began)
	})
	return took
}

// TestParkedVersionsStarveNobody: hundreds of versions of one entity wait, for a predecessor that never comes or for one that
// runs for long; the messages of others take about as long as without them.
func TestParkedVersionsStarveNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: hundreds of versions")
	}
	const n = 200
	waiting := func(from int) func(r *fixture) {
		return func(r *fixture) {
			for v := range 1000 / semeltest.Sampled(4) {
				r.send(state(from + v))
			}
		}
	}
	slots := func(c *semel.Config) { c.Concurrency, c.Batch = 4, 10 }
	quiet := func(*semel.Attempt) {}
	alone := others(t, n, func(*fixture) {}, quiet, slots)
	for _, x := range []struct {
		name   string
		before func(r *fixture)
		handle func(a *semel.Attempt)
		share  int // of the four slots that are left
	}{
		{"a predecessor that never comes", waiting(2), quiet, 4},
		{"a predecessor that runs for long", waiting(1), func(a *semel.Attempt) {
			if a.Version() == driver.IntVersion(1) {
				time.Sleep(10 * time.Minute)
			}
		}, 3},
	} {
		took := others(t, n, x.before, x.handle, slots, func(c *semel.Config) { c.MaxRuntime = time.Hour })
		if want := alone*4/time.Duration(x.share)*5/4 + time.Second; took > want {
			t.Errorf("%s: the others took %v, alone %v", x.name, took, alone)
		}
		t.Logf("%s: the others took %v, alone %v", x.name, took, alone)
	}
}

// TestParkedVersionsRunInOrderWhenTheFirstComes: hundreds of versions, sent in random order, wait in several workers; when the missing one comes all
// of them are applied in their order, soon, and none becomes a dead letter.
func TestParkedVersionsRunInOrderWhenTheFirstComes(t *testing.T) {
	const n = 300
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, versionHandlers()["A2"], parked, far)
				stop := fleet(t, r, workers)
				r.send(updates(3, 2, n)...)
				time.Sleep(10 * time.Minute)
				if got := ledger(r); len(got) > 0 {
					t.Fatalf("applied %v before the first version came", got)
				}
				r.send(state(1))
				began := time.Now()
				for len(ledger(r)) < n && time.Since(began) < 45*time.Minute {
					time.Sleep(time.Second)
				}
				t.Logf("applied in %v", time.Since(began))
				stop()
				for i, v := range ledger(r) {
					if v != fmt.Sprint(i+1) {
						t.Fatalf("version %s is applied in place %d", v, i+1)
					}
				}
				if got := len(ledger(r)); got != n || len(r.deadLetters()) > 0 {
					t.Errorf("%d versions are applied, %d dead letters", got, len(r.deadLetters()))
				}
			})
		})
	}
}

// redriving is a queue whose broker moves a message away after n deliveries.
type redriving struct{ *memory.Queue }

func (q redriving) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.Redrives = true
	return f
}

// TestParkedVersionsSpareDeliveries: if the broker counts deliveries, a version waits in six of them at most, however long
// it waits, and however many wait with it.
func TestParkedVersionsSpareDeliveries(t *testing.T) {
	for _, park := range []time.Duration{time.Second, 30 * time.Second, 6 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			most := 0
			v := key.BySequence("/v")
			v.Park = park
			r := newFixture(t, versionHandlers()["A2"], versioned(v), func(c *semel.Config) {
				c.Queue = redriving{c.Queue.(*memory.Queue)}
				c.Concurrency, c.Batch = 2, 2
				c.Events = semel.Observe(func(e semel.Event) {
					mu.Lock()
					defer mu.Unlock()
					most = max(most, e.Count)
				})
			})
			r.start()
			r.send(updates(5, 2, 101)...)
			r.after(park + time.Hour)
			if got := len(ledger(r)) + len(r.deadLetters()); got != 100 || most > 8 || most < 3 {
				t.Errorf("park %v: %d of 100 came to an end, after %d deliveries", park, got, most)
			}
		})
	}
}

// fleet starts workers on one queue and store.
func fleet(t *testing.T, r *fixture, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, n)
	for range n {
		c, err := semel.New(r.cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.c = c
		go func() { done <- c.Run(ctx) }()
	}
	return func() {
		cancel()
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

// updates are messages of one entity in random order.
func updates(seed uint64, from, to int) []semel.Message {
	var out []semel.Message
	for v := from; v <= to; v++ {
		out = append(out, state(v))
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
