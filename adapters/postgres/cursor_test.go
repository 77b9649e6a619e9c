package postgres

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestFM43SlowResponseIsNoStep: a slow response (bodies over a slow line) is not a clock that stepped back, for
// which all messages would be looked at; a step is still noticed.
func TestFM43SlowResponseIsNoStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		f := &cursor{sound: true}
		look := func(response time.Duration) {
			began := time.Now()
			time.Sleep(response)
			f.look(&taking{began: began, clock: server})
			server = server.Add(response)
		}
		look(0)
		look(10 * time.Second)
		look(0)
		if !f.sound {
			t.Error("a slow response was taken for a step")
		}
		server = server.Add(-2 * clockStep)
		look(0)
		if f.sound {
			t.Error("a step was not noticed")
		}
	})
}

// TestFM45ExtendAndSettleMeet: the heartbeat names messages in another order than those who settle them. Without an order
// of their own the two wait for each other in a ring.
func TestFM45ExtendAndSettleMeet(t *testing.T) {
	q := queueDB(t, Options{}).Queue("q")
	const n = 400
	for round := range 12 {
		ms := make([]driver.Message, n)
		for i := range ms {
			ms[i].ID = fmt.Sprint(round, "-", i)
		}
		send(t, q, ms...)
		ds := receive(t, q, n)
		receipts, ss := make([]any, n), make([]driver.Settlement, n)
		for i := range ds {
			receipts[i], ss[i].Receipt = ds[i].Receipt, ds[i].Receipt
		}
		slices.Reverse(receipts)
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := q.Extend(t.Context(), time.Minute, receipts...); err != nil {
				t.Errorf("extend: %v", err)
			}
		})
		both.Go(func() {
			time.Sleep(time.Duration(round) * time.Millisecond) // it begins while the other one runs, in some round
			if _, err := q.Settle(t.Context(), ss...); err != nil {
				t.Errorf("settle: %v", err)
			}
		})
		both.Wait()
	}
}
