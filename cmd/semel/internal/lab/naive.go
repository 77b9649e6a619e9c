package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// naive is the consumer that everybody writes first: receive a batch, for each message do the work in its own
// transaction, then ack. It loses nothing, since it acks last; it doubles whatever comes twice:
//
//  1. the producer sends an order again, because the first answer was lost;
//  2. the process dies after the effect, before the ack: the queue hands the message out again;
//  3. the work takes longer than the visibility: another worker has the message by then. What waits in the buffer
//     behind the slow one overruns too.
//
// When ctx ends it finishes what it has in hand, as the polite ones do.
func (w *worker) naive(ctx context.Context) error {
	for ctx.Err() == nil {
		ds, err := w.queue.Receive(ctx, w.spec.Prefetch)
		for i := range ds {
			if err := w.naiveOne(context.WithoutCancel(ctx), &ds[i]); err != nil {
				return err
			}
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
	return nil
}

func (w *worker) naiveOne(ctx context.Context, d *driver.Delivery) error {
	key := d.Header(orderHeader)
	note := func(kind string) { w.log.add(Entry{Kind: kind, Key: key, Message: d.ID, Count: d.Count}) }
	o, err := decodeOrder(d.Body)
	if err != nil {
		return err
	}
	note("started")
	if err := work(ctx, o, d.Count > 1); err != nil {
		return err
	}
	if _, err := w.rig.sql.ExecContext(ctx, insertEffect, w.effectArgs(o, d.ID, d.Count)...); err != nil {
		return fmt.Errorf("apply order %s: %w", o.Order, err)
	}
	note("ended")
	note(noteEffect)
	w.gate.pass(AfterEffect, key, d.ID)
	_, err = w.queue.Settle(ctx, driver.Settlement{Receipt: d.Receipt, Action: driver.Ack})
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("ack %s: %w", d.ID, err)
	}
	return nil
}
