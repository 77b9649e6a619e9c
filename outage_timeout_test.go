package semel_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// TestBreakerOpensForADownstreamThatHangs: in an outage without responses every run times out, and a rule classes timeouts as
// outages. Without the breaker no attempt would be spent, and every slot would hang forever.
func TestBreakerOpensForADownstreamThatHangs(t *testing.T) {
	for name, tx := range map[string]bool{"plain": false, "in transactions": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, runs := time.Now(), atomic.Int64{}
				work := func(ctx context.Context) error {
					runs.Add(1)
					if time.Since(began) >= 10*time.Minute {
						return nil
					}
					<-ctx.Done()
					return fmt.Errorf("charge: %w", ctx.Err())
				}
				h := semel.Handler(semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error { return work(ctx) }))
				if tx {
					h = semel.InTx(func(ctx context.Context, _ *memory.Tx, _ *semel.Attempt) error { return work(ctx) })
				}
				r := newFixture(t, h, func(c *semel.Config) {
					c.Concurrency, c.MaxAttempts, c.Timeout = 1, 2, 2*time.Second
					c.Retry = []semel.RetryRule{{Match: semel.ErrorIs(semel.ErrTimeout), Unavailable: true}}
				})
				for i := range 20 {
					r.send(msg(fmt.Sprint("m", i)))
				}
				r.start()
				time.Sleep(9 * time.Minute)
				synctest.Wait()
				if l := r.c.Load(); runs.Load() > 40 || l.Breaker == "closed" {
					t.Errorf("%d runs in nine minutes of outage, load %+v", runs.Load(), l)
				}
				if s := r.after(6 * time.Minute); s.Effects != 20 || s.Dead+s.Uncertain != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}
