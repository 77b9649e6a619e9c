package semel_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

const slowPrefix = "slow"

// killTwice leaves n keys in the store as two kills of a worker leave them that had all of them in flight.
func (r *fixture) killTwice(n int) {
	r.t.Helper()
	for i := range n {
		r.send(msg(fmt.Sprint(slowPrefix, i)))
	}
	for kill := range 2 {
		ds, err := r.queue.Receive(context.Background(), n)
		if err != nil || len(ds) != n {
			r.t.Fatalf("%d deliveries: %v", len(ds), err)
		}
		for i, d := range ds {
			g, err := r.store.Claim(context.Background(), driver.Claim{
				Key: semel.Key{Consumer: "orders", Raw: d.ID}, Nonce: driver.Nonce{byte(kill + 1), byte(i)}, Lease: 27 * time.Second, DeliveryID: d.ID,
			})
			if err != nil || g[0].Verdict != driver.Acquired {
				r.t.Fatalf("%+v: %v", g, err)
			}
		}
		time.Sleep(31 * time.Second)
	}
}

// TestFM83_TwoKillsDoNotMakeAWorkerSerial: fifty long runs that were in flight at two kills do not run one after the other
// for hours, and what comes meanwhile does not wait for them.
func TestFM83_TwoKillsDoNotMakeAWorkerSerial(t *testing.T) {
	for _, slow := range []int{10, 50} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var worst, last time.Duration
				start, quick := time.Time{}, 0
				r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
					if a.Key.Raw[:len(slowPrefix)] == slowPrefix {
						time.Sleep(10 * time.Minute)
						mu.Lock()
						defer mu.Unlock()
						last = time.Since(start)
						return nil
					}
					mu.Lock()
					defer mu.Unlock()
					worst = max(worst, time.Since(a.SentAt))
					quick++
					return nil
				}), func(c *semel.Config) { c.Concurrency = 60 })
				r.killTwice(slow)
				start = time.Now()
				r.start()
				for i := range 60 {
					time.Sleep(time.Minute)
					r.send(semel.Message{ID: fmt.Sprint("quick", i), SentAt: time.Now()})
				}
				s := r.after(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				t.Logf("%d slow: all done after %v, a quick message waited %v at most", slow, last, worst)
				if s.Effects != int64(slow+60) || last > time.Hour || quick != 60 {
					t.Errorf("%d quick ones, the last long one after %v; %+v", quick, last, s)
				}
				if worst > 30*time.Second {
					t.Errorf("a quick message waited %v for keys in quarantine", worst)
				}
			})
		})
	}
}
