package machine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/memory"
)

// BenchmarkMachine is the engine alone on the memory adapters, without goroutines: what a message costs from fetch to
// settle (received, claimed, run, finished with its ack).
func BenchmarkMachine(b *testing.B) {
	ctx := context.Background()
	db := memory.Open()
	q, s := db.Queue("orders"), db.Store()
	var nonce uint64
	m := machine.New(machine.Config{
		Concurrency: 256, Batch: 100, Lanes: 1, InFlight: 512,
		Lease: 27 * time.Second, Visibility: 30 * time.Second, Guard: time.Second, MaxRuntime: time.Minute,
		Grace: time.Second, HardStop: time.Second, Limit: b.N, MaxAttempts: 5, BackoffMin: time.Second, BackoffMax: time.Minute,
		Keep: time.Hour, Extends: true, Counts: true, Mode: machine.Joined,
		Nonce: func() (d driver.Nonce) {
			nonce++
			for i := range 8 {
				d[i] = byte(nonce >> (8 * i))
			}
			return d
		},
	})
	ms := make([]driver.Message, b.N)
	for i := range ms {
		ms[i] = driver.Message{ID: fmt.Sprintf("message-%d", i), Body: []byte(`{"order":1}`)}
	}
	if err := q.Send(ctx, ms...); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	var events, next []machine.Event
	var actions []machine.Action
	var arrivals []machine.Arrival
	b.ReportAllocs()
	b.ResetTimer()
	for m.Counts().Effects < int64(b.N) {
		actions = m.Steps(time.Since(began), events, actions[:0])
		next = next[:0]
		for i := range actions {
			a := &actions[i]
			switch a.Kind {
			case machine.ActionReceive:
				ds, err := q.Receive(ctx, a.Max)
				if err != nil {
					b.Fatal(err)
				}
				arrivals = arrivals[:0]
				for i := range ds {
					arrivals = append(arrivals, machine.Arrival{Delivery: ds[i], Key: driver.Key{Consumer: "orders", Raw: ds[i].ID}})
				}
				next = append(next, machine.Event{Kind: machine.Received, Arrivals: arrivals, Sent: time.Since(began)})
			case machine.ActionClaim:
				g, err := s.Claim(ctx, a.Claims...)
				next = append(next, machine.Event{Kind: machine.Claimed, Items: a.Items, Claims: a.Claims, Grants: g, Sent: time.Since(began), Err: err})
			case machine.ActionRun:
				next = append(next, machine.Event{Kind: machine.Ran, Item: a.Item})
			case machine.ActionFinish:
				o, err := s.Commit(ctx, a.Works...)
				next = append(next, machine.Event{Kind: machine.Finished, Items: a.Items, Works: a.Works, Outcomes: o, Err: err})
			}
		}
		if len(next) == 0 && len(events) == 0 {
			b.Fatal("nothing left to do")
		}
		events, next = next, events
	}
}
