package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/driver"
)

// job is one delivery of an unguarded consumer.
type job struct {
	*worker
	d     *driver.Delivery
	order order
	key   string
}

// errLeft: the message is left in the queue, to come again.
var errLeft = errors.New("the message is left in the queue")

// unguarded is the loop that everybody writes first: receive a batch, do one message after the other, ack each. one
// returns nil to have the message acked, an error to leave it where it is.
//
// When ctx ends it finishes what it has in flight, as a well-written one does.
func unguarded(one func(context.Context, *job) error) func(context.Context, *worker) error {
	return func(ctx context.Context, w *worker) error {
		for ctx.Err() == nil {
			ds, err := w.queue.Receive(ctx, w.spec.Workers.Prefetch)
			for i := range ds {
				if err := w.handle(context.WithoutCancel(ctx), &ds[i], one); err != nil {
					return err
				}
			}
			switch {
			case errors.Is(err, errDown):
				time.Sleep(50 * time.Millisecond)
			case err != nil && ctx.Err() == nil:
				return fmt.Errorf("receive: %w", err)
			}
		}
		return nil
	}
}

func (w *worker) handle(ctx context.Context, d *driver.Delivery, one func(context.Context, *job) error) error {
	o, err := decode(d.Body)
	if err != nil {
		return err
	}
	j := &job{worker: w, d: d, order: o, key: d.Header(place.KeyHeader)}
	began := time.Now()
	err = one(ctx, j)
	w.log.Delay(time.Since(began) - o.takes(d.Count > 1)) // the calls, and whatever else held the work up
	switch {
	case err == nil:
	case errors.Is(err, errPoison) && w.spec.Workers.MaxAttempts > 0 && d.Count >= w.spec.Workers.MaxAttempts:
		j.note("gave up", err) // so that the queue goes on: the message is gone
	case errors.Is(err, errPoison), errors.Is(err, errBadItem), errors.Is(err, errLeft), errors.Is(err, errDown),
		errors.Is(err, errLostResponse), errors.Is(err, errFirstTry):
		return nil
	default:
		return err
	}
	_, err = w.queue.Settle(ctx, driver.Settlement{Receipt: d.Receipt, Action: driver.Ack})
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errDown) {
		return fmt.Errorf("ack %s: %w", d.ID, err)
	}
	return nil
}

func (j *job) note(kind string, err error) {
	e := eventlog.Entry{Kind: kind, Key: j.key, Message: j.d.ID, Count: j.d.Count}
	if err != nil {
		e.Err = err.Error()
	}
	j.log.Add(e)
}

// skipped notes why a delivery is acked without work.
func (j *job) skipped(why string) {
	j.log.Add(eventlog.Entry{
		Kind: "decided", Key: j.key, Message: j.d.ID, Count: j.d.Count, Decision: "replayed", Cause: "redelivery", Reason: why,
	})
}

// work does the order, with heartbeats where the scenario wants them.
func (j *job) work(ctx context.Context) error {
	j.note("started", nil)
	if j.spec.Workers.Heartbeat {
		defer j.beat(ctx)()
	}
	err := j.order.do(ctx, j.d.Count > 1)
	if err != nil {
		j.note("ended", err)
	}
	return err
}

// beat extends the visibility every third of it. It ignores the result.
func (j *job) beat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(j.spec.Workers.Visibility / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, _ = j.queue.Extend(ctx, 2*j.spec.Workers.Visibility, j.d.Receipt)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// charge makes the effect.
func (j *job) charge(ctx context.Context, key string) error {
	if err := j.faults.down(); err != nil {
		j.note("ended", err)
		return err
	}
	if err := j.place.AddEffect(ctx, j.effect(key, j.order, j.d.ID, j.d.Count), ""); err != nil {
		return err
	}
	if j.faults.strikes(j.spec.Wire.LoseEffect) {
		j.note("ended", errLostResponse)
		return errLostResponse
	}
	j.note("ended", nil)
	j.note(eventlog.Effect, nil)
	if len(j.order.Items) > 0 {
		j.gate.pass(plan.BetweenEffects, j.key, j.d.ID)
		return nil
	}
	j.gate.pass(plan.AfterEffect, j.key, j.d.ID)
	return nil
}

// undo takes an effect back.
func (j *job) undo(ctx context.Context, key string) error {
	if err := j.faults.down(); err != nil {
		return err
	}
	return j.place.AddEffect(ctx, j.effect(key, j.order, j.d.ID, j.d.Count).Reversed(), "")
}
