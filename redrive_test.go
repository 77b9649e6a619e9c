package semel_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/key"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// slowSettle is a queue whose settlements take a while.
type slowSettle struct {
	*memory.Queue
	takes time.Duration
}

func (q slowSettle) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	time.Sleep(q.takes)
	return q.Queue.Settle(ctx, s...)
}

// TestRedriveOfACompletedKeyRuns: a person runs a completed key again while the ack of its message is still on its way, and
// the same worker gets the message of the redrive.
func TestRedriveOfACompletedKeyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		var raw atomic.Value
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			runs.Add(1)
			raw.Store(a.Key.Raw)
			return nil
		}), func(c *semel.Config) {
			c.Key = key.FromBody()
		})
		r.cfg.Queue = slowSettle{r.queue, 2 * time.Second}
		r.send(msg("k"))
		r.start()
		time.Sleep(time.Second) // it ran, and its record is COMPLETED
		rec := r.record(raw.Load().(string))
		if _, o, err := r.store.Operate(context.Background(), driver.Operation{
			Kind: driver.Redrive, Key: rec.Key, Token: rec.Token, Generation: rec.Generation, NewGeneration: true, Keep: time.Hour,
		}); err != nil || o != driver.Applied {
			t.Fatal(o, err)
		}
		r.send(semel.Message{ID: driver.RedriveID("x"), Body: []byte("k")})
		r.after(time.Minute)
		if rec := r.record(raw.Load().(string)); runs.Load() != 2 || rec.State != driver.Completed || rec.Generation != 2 {
			t.Errorf("%d runs, record %s of generation %d", runs.Load(), rec.State, rec.Generation)
		}
	})
}
