package semel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// TestEventsHaveTimes: events have what metrics need: how long a delivery was in flight and in its handler, when its message
// was sent, and the calls of the store.
func TestEventsHaveTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewQueue("orders")
		sent := time.Now()
		if err := q.Send(t.Context(), semel.Message{ID: "1", Body: []byte("a"), SentAt: sent}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		var received, started, settled semel.Event
		ops := map[string]int{}
		c, err := semel.New(semel.Config{
			Queue: q, Store: memory.NewStore(), Limit: 1,
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
				time.Sleep(2 * time.Second)
				return nil
			}),
			Events: semel.Events{
				Delivery: func(e semel.Event) {
					switch e.Kind {
					case semel.EventReceived:
						received = e
					case semel.EventSettled:
						settled = e
					}
				},
				Attempt: func(e semel.Event) {
					if e.Kind == semel.EventStarted {
						started = e
					}
				},
				Calls: func(e semel.Event) {
					if e.Kind != semel.EventCalled || e.Err != nil {
						t.Errorf("unexpected %+v", e)
					}
					ops[e.Op] += e.Items
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, e := range map[string]semel.Event{"received": received, "started": started} {
			if wait := e.At.Sub(e.SentAt); wait != 3*time.Second {
				t.Errorf("%s: %v after it was sent, want 3 s", name, wait)
			}
		}
		if settled.Elapsed != 2*time.Second || settled.Handled != 2*time.Second {
			t.Errorf("settled after %v, of that %v in the handler, want 2 s of 2 s", settled.Elapsed, settled.Handled)
		}
		if ops["claim"] != 1 || ops["finish"] != 1 {
			t.Errorf("calls of the store: %v, want one claim and one finish", ops)
		}
	})
}
