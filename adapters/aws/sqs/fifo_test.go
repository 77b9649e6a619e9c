package sqs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// TestFM60_FM73_FIFOGroups (law 13, I22): with real consumers, and handlers that fail sometimes, the runs of a group never
// overlap, and first effects are in the order of sending. The time is virtual.
func TestFM60_FM73_FIFOGroups(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const groups, each, workers = 6, 15, 3
		b := newBench(t, setup{name: "orders.fifo", create: CreateOptions{MaxReceive: 1000}})
		store := memory.NewStore()
		for i := range each {
			for g := range groups {
				b.send(driver.Message{ID: fmt.Sprintf("%d/%d", g, i), Group: fmt.Sprint("group ", g), Body: []byte(fmt.Sprint(i))})
			}
		}
		var (
			mu      sync.Mutex
			r       = rand.New(rand.NewPCG(seed, 0))
			running = map[string]int{}
			effects = map[string][]string{}
			failed  int
		)
		ctx, stop := context.WithCancel(t.Context())
		handler := semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			mu.Lock()
			running[a.Group]++
			if running[a.Group] > 1 {
				t.Errorf("two runs of %s at once", a.Group)
			}
			took, fails := time.Duration(r.IntN(3000))*time.Millisecond, r.IntN(5) == 0
			mu.Unlock()
			time.Sleep(took)
			mu.Lock()
			defer mu.Unlock()
			running[a.Group]--
			if fails {
				failed++
				return errors.New("now and then")
			}
			if effects[a.Group] = append(effects[a.Group], string(a.Body)); len(effects[a.Group]) == each {
				done := 0
				for _, e := range effects {
					done += len(e)
				}
				if done == groups*each {
					stop()
				}
			}
			return nil
		})
		var wg sync.WaitGroup
		for range workers {
			q, err := Open(ctx, b.client, "orders.fifo", Options{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := semel.New(semel.Config{
				Queue: q, Store: store, Handler: handler, MaxAttempts: 50, Backoff: semel.Backoff{Min: time.Second, Max: 3 * time.Second},
			})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				if err := c.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for g := range groups {
			name := fmt.Sprint("group ", g)
			for i := range each {
				if i >= len(effects[name]) || effects[name][i] != fmt.Sprint(i) {
					t.Fatalf("%s took effect in the order %v (seed %d)", name, effects[name], seed)
				}
			}
		}
		if failed == 0 {
			t.Error("no run failed: the test shows nothing")
		}
		if visible, flying, _ := b.server.Count("orders.fifo"); visible+flying != 0 {
			t.Errorf("%d messages are left", visible+flying)
		}
	})
}

// TestFM17_DeferralsAndTheRedrivePolicy: duplicates of a key with a long run are deferred for longer and longer, so that the
// redrive policy does not move them.
func TestFM17_DeferralsAndTheRedrivePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{create: CreateOptions{MaxReceive: 25}})
		store := memory.NewStore()
		key := func(*semel.Message) (string, error) { return "same", nil }
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
		defer stop()
		var runs atomic.Int32
		handler := semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			runs.Add(1)
			time.Sleep(10 * time.Minute)
			return nil
		})
		var wg sync.WaitGroup
		for range 2 {
			q, err := Open(ctx, b.client, "orders", Options{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := semel.New(semel.Config{
				Queue: q, Store: store, Handler: handler, Key: key, MaxRuntime: 15 * time.Minute, Concurrency: 1, Batch: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { _ = c.Run(ctx) })
			time.Sleep(time.Second)
			b.send(driver.Message{ID: fmt.Sprint("copy ", runs.Load())})
		}
		wg.Wait()
		dead, _, _ := b.server.Count("orders-dead")
		if visible, flying, _ := b.server.Count("orders"); runs.Load() != 1 || visible+flying+dead != 0 {
			t.Errorf("%d runs; %d messages are left, %d were moved away", runs.Load(), visible+flying, dead)
		}
	})
}
