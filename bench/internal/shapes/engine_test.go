package shapes

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// granter is a store that keeps nothing: every claim acquires its key, every write is applied.
type granter struct{ token atomic.Uint64 }

func (s *granter) Features() driver.StoreFeatures {
	return driver.StoreFeatures{Name: "nothing", Kind: "nothing", Durable: true, ServerClock: true}
}

func (s *granter) Claim(_ context.Context, list ...driver.Claim) ([]driver.Grant, error) {
	return s.grant(make([]driver.Grant, 0, len(list)), list), nil
}

func (s *granter) grant(to []driver.Grant, list []driver.Claim) []driver.Grant {
	for i := range list {

		to = append(to, driver.Grant{Verdict: driver.Acquired, Attempt: 1, Hold: driver.Hold{
			Key: list[i].Key, Generation: 1, Token: s.token.Add(1), Nonce: list[i].Nonce,
		}})
	}
	return to
}

func (s *granter) Extend(_ context.Context, _ time.Duration, list ...driver.Hold) ([]driver.Outcome, error) {
	return applied(nil, len(list)), nil
}

func (s *granter) Finish(_ context.Context, list ...driver.Finish) ([]driver.Outcome, error) {
	return applied(nil, len(list)), nil
}

func applied(to []driver.Outcome, n int) []driver.Outcome {
	for range n {
		to = append(to, driver.Applied)
	}
	return to
}

func smallMessages(n int) []driver.Message {
	list, body := make([]driver.Message, n), []byte(`{"order":1}`)
	for i := range list {
		list[i] = driver.Message{ID: fmt.Sprintf("message-%d", i), Body: body}
	}
	return list
}

// BenchmarkMachine is the engine alone, without goroutines and adapters: what a message costs from fetch to settle.
func BenchmarkMachine(b *testing.B) {
	var s granter
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
	left := make([]machine.Arrival, b.N)
	for i, msg := range smallMessages(b.N) {
		left[i] = machine.Arrival{Delivery: driver.Delivery{Message: msg, Count: 1}, Key: driver.Key{Consumer: "orders", Raw: msg.ID}}
	}
	var events, next []machine.Event
	var actions []machine.Action
	var grants []driver.Grant
	var outcomes []driver.Outcome
	began := time.Now()
	b.ReportAllocs()
	b.ResetTimer()
	for m.Counts().Effects < int64(b.N) {
		actions = m.Steps(time.Since(began), events, actions[:0])
		next, grants, outcomes = next[:0], grants[:0], outcomes[:0]
		for i := range actions {
			a := &actions[i]
			switch a.Kind {
			case machine.ActionReceive:
				n := min(a.Max, len(left))
				next = append(next, machine.Event{Kind: machine.Received, Arrivals: left[:n], Sent: time.Since(began)})
				left = left[n:]
			case machine.ActionClaim:
				from := len(grants)
				grants = s.grant(grants, a.Claims)
				next = append(next, machine.Event{Kind: machine.Claimed, Items: a.Items, Claims: a.Claims, Grants: grants[from:], Sent: time.Since(began)})
			case machine.ActionRun:
				next = append(next, machine.Event{Kind: machine.Ran, Item: a.Item})
			case machine.ActionFinish:
				from := len(outcomes)
				outcomes = applied(outcomes, len(a.Works))
				next = append(next, machine.Event{Kind: machine.Finished, Items: a.Items, Works: a.Works, Outcomes: outcomes[from:]})
			}
		}
		if len(next) == 0 && len(events) == 0 {
			b.Fatal("nothing left to do")
		}
		events, next = next, events
	}
}

// BenchmarkConsumer is a whole consumer, with its goroutines, on a slice of deliveries and a store that keeps nothing.
func BenchmarkConsumer(b *testing.B) {
	for _, concurrency := range []int{16, 256} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			done, src := newSourceOf(b.Context(), smallMessages(b.N))
			cfg := semel.Config{
				Queue: src, Store: &granter{}, Concurrency: concurrency, Logger: slog.New(slog.DiscardHandler),
				Key:     func(m *semel.Message) (string, error) { return m.ID, nil },
				Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := consume(b.Context(), done, cfg); err != nil {
				b.Fatal(err)
			}
		})
	}
}
