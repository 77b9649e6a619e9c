// Package deadletter gives a queue dead letters that are kept somewhere else: a log or a classic broker has no messages
// that can be looked up and deleted one by one.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// parallel is how many dead letters one Settle writes at once.
const parallel = 8

// With returns q with its dead letters in dlq. Settlement.DeadLetter is written before the message is acked, so a crash in
// between leaves a dead letter and a redelivery, which writes the same dead letter. Settlement.Close also deletes before the
// message is acked. If dlq fails, the item is Unknown and its message is not acked. When the caller repeats the item, a
// dead letter that was already written for the delivery is not written again.
//
// The returned queue is a driver.DeadLetterKeeper. driver.As finds driver.Sender, driver.QueueInspector and driver.Purger if q
// has them. The queue joins no store: acks do not commit with records. Its dead letters are only those of dlq, even if q keeps
// some itself.
func With(q driver.Queue, dlq driver.DeadLetterQueue) driver.Queue { return &queue{q, dlq} }

type queue struct {
	driver.Queue
	dlq driver.DeadLetterQueue
}

// Unwrap implements driver.Wrapper.
func (q *queue) Unwrap() any { return q.Queue }

// Passes lists the interfaces that bypass the wrapper: neither uses a receipt.
func (q *queue) Passes() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Sender](), driver.InterfaceOf[driver.Purger]()}
}

// Adds lists the interface that the wrapper has and the queue may lack.
func (q *queue) Adds() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.DeadLetterKeeper]()}
}

// receipt is the queue's receipt with the id of the dead letter that was written for it.
type receipt struct {
	of    *queue
	inner any

	mu      sync.Mutex
	written string
}

// DeadLetterQueue implements driver.DeadLetterKeeper.
func (q *queue) DeadLetterQueue() driver.DeadLetterQueue { return q.dlq }

// Features returns the features of the queue, with dead letters.
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

// Settle writes and deletes dead letters, then settles those items in the queue for which that succeeded.
func (q *queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	name := q.Queue.Features().Name
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("settle in queue %q: item %d: %w", name, i, err)
		}
	}
	errs := q.deadLetters(ctx, s)
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
	if s.Action > driver.Dead {
		return fmt.Errorf("action %d is unknown", s.Action)
	}
	if s.Action == driver.Dead && (s.DeadLetter == nil || s.DeadLetter.ID == "") {
		return errors.New("action dead needs a dead letter with an ID")
	}
	return nil
}

// deadLetters writes and deletes the dead letters of settlements, a few at once, and returns an error for each item.
func (q *queue) deadLetters(ctx context.Context, s []driver.Settlement) []error {
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
			errs[i] = q.keep(ctx, &s[i])
		})
	}
	wg.Wait()
	return errs
}

// keep writes the dead letter of one settlement unless it was written for this delivery before, and deletes the one that the
// settlement closes.
func (q *queue) keep(ctx context.Context, s *driver.Settlement) error {
	if s.Close != "" {
		if err := q.dlq.DeleteDeadLetter(ctx, s.Close); err != nil {
			return fmt.Errorf("delete dead letter %s: %w", s.Close, err)
		}
	}
	if s.Action != driver.Dead {
		return nil
	}
	rc := s.Receipt.(*receipt)
	rc.mu.Lock()
	defer rc.mu.Unlock() // a second Settle of one receipt waits for the first
	if rc.written == s.DeadLetter.ID {
		return nil
	}
	if err := q.dlq.PutDeadLetter(ctx, *s.DeadLetter); err != nil {
		return fmt.Errorf("write dead letter %s: %w", s.DeadLetter.ID, err)
	}
	rc.written = s.DeadLetter.ID
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

// Stats counts what the queue holds, and the dead letters if their place can count them.
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
	if c, ok := driver.As[driver.QueueInspector](q.dlq); ok {
		l, err := c.Stats(ctx)
		s.DeadLetters = l.DeadLetters
		return s, err
	}
	return s, nil
}

// Peek returns messages of the queue without receiving them.
func (q *queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	i, ok := driver.As[driver.QueueInspector](q.Queue)
	if !ok {
		return nil, driver.ErrUnsupported
	}
	return i.Peek(ctx, limit)
}
