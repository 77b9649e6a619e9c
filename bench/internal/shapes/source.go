package shapes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/driver"
)

// source is a queue that costs next to nothing: a slice of deliveries in this process. What is measured with it is the
// engine and the store.
type source struct {
	mu    sync.Mutex
	fresh []driver.Delivery
	again []driver.Delivery // returned
	left  int
	wake  chan struct{} // one token: something was returned
	done  context.CancelCauseFunc
}

var errDone = errors.New("all deliveries are settled")

// newSource returns a context that ends when the last delivery is settled, or one fails.
func newSource(ctx context.Context, w load.Work) (context.Context, *source) {
	list := make([]driver.Message, len(w.Deliveries))
	for i, m := range w.Deliveries {
		list[i] = driver.Message{ID: m.ID, Body: m.Body}
	}
	return newSourceOf(ctx, list)
}

// newSourceOf is newSource with messages of any kind.
func newSourceOf(ctx context.Context, list []driver.Message) (context.Context, *source) {
	s := &source{fresh: make([]driver.Delivery, len(list)), left: len(list), wake: make(chan struct{}, 1)}
	counts := make(map[string]int, len(list))
	for i := range list {
		counts[list[i].ID]++
		s.fresh[i] = driver.Delivery{Message: list[i], Count: counts[list[i].ID]}
		s.fresh[i].Receipt = &s.fresh[i]
	}
	ctx, s.done = context.WithCancelCause(ctx)
	return ctx, s
}

// Features describes the queue.
func (s *source) Features() driver.QueueFeatures {
	return driver.QueueFeatures{Name: "orders", Kind: "slice", Durable: true, Extends: true, Delays: true, Counts: true, DeadLetters: true}
}

// Receive hands out what is next; with nothing left it waits for something to be returned.
func (s *source) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	for {
		if d := s.take(limit); len(d) > 0 {
			return d, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *source) take(limit int) (d []driver.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := &s.fresh
	if len(s.again) > 0 {
		from = &s.again
	}
	n := min(limit, len(*from))
	d, *from = (*from)[:n:n], (*from)[n:]
	return d
}

// Settle counts the settled ones. A dead letter fails the run: nothing of this work may become one.
func (s *source) Settle(_ context.Context, list ...driver.Settlement) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(list))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		out[i] = driver.Applied
		switch d := list[i].Receipt.(*driver.Delivery); list[i].Action {
		case driver.Ack:
			if s.left--; s.left == 0 {
				s.done(errDone)
			}
		case driver.Dead:
			s.done(fmt.Errorf("message %s became a dead letter: %s", d.ID, list[i].DeadLetter.Reason))
		default:
			time.AfterFunc(list[i].After, func() { s.redeliver(*d) })
		}
	}
	return out, nil
}

func (s *source) redeliver(d driver.Delivery) {
	s.mu.Lock()
	s.again = append(s.again, d)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Extend keeps deliveries: they are nobody else's.
func (s *source) Extend(_ context.Context, _ time.Duration, receipts ...any) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(receipts))
	for i := range out {
		out[i] = driver.Applied
	}
	return out, nil
}

// consume runs a consumer until done ends; nil = because every delivery is settled.
func consume(ctx, done context.Context, cfg semel.Config) error {
	c, err := semel.New(cfg)
	if err != nil {
		return err
	}
	if err := c.Run(done); err != nil {
		return err
	}
	if err := context.Cause(done); !errors.Is(err, errDone) {
		return fmt.Errorf("the consumer ended early: %w (%+v)", err, c.Summary())
	}
	return ctx.Err()
}
