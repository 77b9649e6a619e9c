package semel_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// paid is a store whose every call costs a unit of writing.
type paid struct {
	driver.Store
	calls atomic.Int64
}

func (p *paid) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	p.calls.Add(int64(len(c)))
	return p.Store.Claim(ctx, c...)
}

func (p *paid) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	p.calls.Add(int64(len(f)))
	return p.Store.Finish(ctx, f...)
}

func (p *paid) Consumed() driver.Units {
	n := p.calls.Load()
	return driver.Units{Calls: n, Writes: float64(n)}
}

// TestConsumedUnits: what the store consumed before the run is not counted, and the events add up to the summary.
func TestConsumedUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		q, s := db.Queue("orders"), &paid{Store: memory.NewStore()}
		s.calls.Store(1000)
		for _, id := range []string{"a", "b", "a"} {
			if err := q.Send(t.Context(), driver.Message{ID: id, Body: []byte(id)}); err != nil {
				t.Fatal(err)
			}
		}
		var events driver.Units
		c, err := semel.New(semel.Config{
			Queue: q, Store: s, Limit: 3, Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			Events: semel.Events{Cost: func(e semel.Event) {
				if e.Kind != semel.EventConsumed {
					t.Errorf("Cost saw %q", e.Kind)
				}
				events.Calls += e.Units.Calls
				events.Writes += e.Units.Writes
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		sum := c.Summary()
		want := s.calls.Load() - 1000
		if want < 4 || sum.StoreCalls != want || sum.WriteUnits != float64(want) || events.Calls != want || events.Writes != sum.WriteUnits {
			t.Errorf("%d calls: the summary has %d and %v units, the events %+v", want, sum.StoreCalls, sum.WriteUnits, events)
		}
	})
}

// noDeadLetters is a queue that has no place for dead letters.
type noDeadLetters struct{ driver.Queue }

func (q noDeadLetters) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.DeadLetters = false
	return f
}

// TestNewRefusesNoDeadLetters: a queue without dead letters could only lose what fails for good, or hand it out forever.
func TestNewRefusesNoDeadLetters(t *testing.T) {
	db := memory.Open()
	_, err := semel.New(semel.Config{
		Queue: noDeadLetters{db.Queue("orders")}, Store: db.Store(),
		Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
	})
	if e := (*semel.ConfigError)(nil); !errors.As(err, &e) || e.Field != "Queue" {
		t.Errorf("a queue without dead letters: %v, wanted a ConfigError of Queue", err)
	}
}
