// Package deadletter keeps the dead letters of a queue in another place, for logs and classic brokers, whose messages
// cannot be looked up and deleted one by one.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

// parallel is how many dead letters Keep writes at once.
const parallel = 8

// With returns q with its dead letters in box. Settlement.DeadLetter is written before the message is acked, so a crash in
// between leaves a dead letter and a redelivery, which writes the same dead letter. Settlement.Close also deletes before the
// message is acked. If box fails, the item is Unknown and its message is not acked. When the caller repeats the item, a
// dead letter that was already written for the delivery is not written again.
//
// The returned queue is a driver.DeadLetterKeeper. driver.As finds driver.Sender, driver.QueueInspector and driver.Purger if
// q has them. The queue joins no store: acks do not commit with records. Its dead letters are only those of box, even if q
// keeps some itself.
func With(q driver.Queue, box driver.DeadLetterQueue) driver.Queue { return &queue{q, box} }

type queue struct {
	driver.Queue
	box driver.DeadLetterQueue
}

// Unwrap implements driver.Wrapper.
func (q *queue) Unwrap() any { return q.Queue }

// Passes lists what is used behind the wrapper: neither meets a receipt.
func (q *queue) Passes() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Sender](), driver.InterfaceOf[driver.Purger]()}
}

// Adds lists what the wrapper has and the queue need not have.
func (q *queue) Adds() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.DeadLetterKeeper]()}
}

// receipt is the queue's receipt with the id of the dead letter that was written for it. Of the embedded one nothing else is
// used.
type receipt struct {
	redeliver.Receipt
	of    *queue
	inner any
}

// DeadLetterQueue implements driver.DeadLetterKeeper.
func (q *queue) DeadLetterQueue() driver.DeadLetterQueue { return q.box }

// Features are those of the queue, with dead letters.
func (q *queue) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.DeadLetters = true
	return f
}

// Receive returns deliveries of the queue.
func (q *queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	ds, err := q.Queue.Receive(ctx, limit)
	for i := range ds {
		ds[i].Receipt = &receipt{of: q, inner: ds[i].Receipt}
	}
	return ds, err
}

func (q *queue) receiptOf(r any) (*receipt, error) {
	rc, ok := r.(*receipt)
	if !ok || rc.of != q {
		return nil, fmt.Errorf("receipt %T is not of this queue", r)
	}
	return rc, nil
}

// Settle writes and deletes dead letters, then settles in the queue those items for which that succeeded.
func (q *queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	name := q.Queue.Features().Name
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("settle in queue %q: item %d: %w", name, i, err)
		}
	}
	errs := Keep(ctx, q.box, s)
	out := make([]driver.Outcome, len(s))
	var pass []driver.Settlement
	var at []int
	for i := range s {
		if errs[i] != nil {
			continue
		}
		x := s[i]
		x.Receipt, x.DeadLetter, x.Close = x.Receipt.(*receipt).inner, nil, ""
		if x.Action == driver.Dead {
			x.Action = driver.Ack
		}
		pass, at = append(pass, x), append(at, i)
	}
	var err error
	if len(pass) > 0 {
		var got []driver.Outcome
		got, err = q.Queue.Settle(ctx, pass...)
		for i := range got {
			out[at[i]] = got[i]
		}
	}
	if put := errors.Join(errs...); put != nil {
		err = errors.Join(fmt.Errorf("settle in queue %q: %w", name, put), err)
	}
	return out, err
}

// check refuses settlements that no queue could carry out.
func (q *queue) check(s *driver.Settlement) error {
	if _, err := q.receiptOf(s.Receipt); err != nil {
		return err
	}
	return s.Check()
}

// Receipt is the interface of receipts for [Keep]: they remember the ID of the dead letter that was written for the delivery.
// An embedded redeliver.Receipt implements it.
type Receipt interface {
	DeadLetter() string
	SetDeadLetter(id string)
}

// Keep writes and deletes the dead letters of settlements in box, a few at once, before their messages are acked. It writes
// the dead letter of a Dead, unless that was already written for this delivery, and deletes the dead letter that a settlement
// closes. It returns an error for each item. The receipts must be of type Receipt.
func Keep(ctx context.Context, box driver.DeadLetterQueue, s []driver.Settlement) []error {
	errs := make([]error, len(s))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i := range s {
		if s[i].Action != driver.Dead && s[i].Close == "" {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = keep(ctx, box, &s[i])
		})
	}
	wg.Wait()
	return errs
}

func keep(ctx context.Context, box driver.DeadLetterQueue, s *driver.Settlement) error {
	if s.Close != "" {
		if err := box.DeleteDeadLetter(ctx, s.Close); err != nil {
			return fmt.Errorf("delete dead letter %s: %w", s.Close, err)
		}
	}
	rc := s.Receipt.(Receipt)
	if s.Action != driver.Dead || rc.DeadLetter() == s.DeadLetter.ID {
		return nil
	}
	if err := box.PutDeadLetter(ctx, *s.DeadLetter); err != nil {
		return fmt.Errorf("write dead letter %s: %w", s.DeadLetter.ID, err)
	}
	rc.SetDeadLetter(s.DeadLetter.ID)
	return nil
}

// Extend extends deliveries of the queue.
func (q *queue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	inner := make([]any, len(receipts))
	for i, r := range receipts {
		rc, err := q.receiptOf(r)
		if err != nil {
			return nil, fmt.Errorf("extend in queue %q: item %d: %w", q.Queue.Features().Name, i, err)
		}
		inner[i] = rc.inner
	}
	return q.Queue.Extend(ctx, visible, inner...)
}

// Stats counts what the queue holds, and the dead letters of the box, where that can count them.
func (q *queue) Stats(ctx context.Context) (driver.QueueStats, error) {
	i, ok := driver.As[driver.QueueInspector](q.Queue)
	if !ok {
		return driver.QueueStats{}, driver.ErrUnsupported
	}
	s, err := i.Stats(ctx)
	if err != nil {
		return s, err
	}
	s.DeadLetters = 0
	if c, ok := driver.As[driver.QueueInspector](q.box); ok {
		l, err := c.Stats(ctx)
		s.DeadLetters = l.DeadLetters
		return s, err
	}
	return s, nil
}

// Peek shows messages of the queue.
func (q *queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	i, ok := driver.As[driver.QueueInspector](q.Queue)
	if !ok {
		return nil, driver.ErrUnsupported
	}
	return i.Peek(ctx, limit)
}
