package semeltest

import (
	"context"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// FaultyQueue is a queue whose calls fail as f plans. [driver.As] finds the optional interfaces that inner has, and their
// calls fail too. If the response to a receive is lost, its messages are redelivered when their visibility ends. An ack
// that commits with a record fails as the store's commit does.
func FaultyQueue(inner driver.Queue, f *Faults) driver.Queue {
	q := &faultyQueue{inner: inner, f: f}
	q.sender, _ = driver.As[driver.Sender](inner)
	q.inspector, _ = driver.As[driver.QueueInspector](inner)
	q.purger, _ = driver.As[driver.Purger](inner)
	q.dlq, _ = driver.DeadLettersOf(inner)
	return q
}

// faultyQueue implements every interface whose calls can fail. Those that inner lacks are nil, and driver.As does not find
// them.
type faultyQueue struct {
	inner     driver.Queue
	sender    driver.Sender
	inspector driver.QueueInspector
	purger    driver.Purger
	dlq       driver.DeadLetterQueue
	f         *Faults
}

// Unwrap is the queue without faults.
func (q *faultyQueue) Unwrap() any { return q.inner }

// Passes lets stores take over acks: the faults of a commit are those of its acks.
func (q *faultyQueue) Passes() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Settler]()}
}

func (q *faultyQueue) Features() driver.QueueFeatures { return q.inner.Features() }

func (q *faultyQueue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	return call(ctx, q.f, "receive", true, func(ctx context.Context, _ fate) ([]driver.Delivery, error) {
		return q.inner.Receive(ctx, limit)
	})
}

func (q *faultyQueue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	s = cloneSettlements(s)
	return call(ctx, q.f, "settle", false, func(ctx context.Context, x fate) ([]driver.Outcome, error) {
		return items(q.f, x, s, unknown, same, func(s []driver.Settlement) ([]driver.Outcome, error) {
			return q.inner.Settle(ctx, s...)
		})
	})
}

func (q *faultyQueue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	receipts = slices.Clone(receipts)
	return call(ctx, q.f, "prolong", false, func(ctx context.Context, x fate) ([]driver.Outcome, error) {
		return items(q.f, x, receipts, unknown, same, func(r []any) ([]driver.Outcome, error) {
			return q.inner.Extend(ctx, visible, r...)
		})
	})
}

// cloneSettlements copies settlements with their dead letters.
func cloneSettlements(s []driver.Settlement) []driver.Settlement {
	s = slices.Clone(s)
	for i := range s {
		if l := s[i].DeadLetter; l != nil {
			s[i].DeadLetter = new(*l)
		}
	}
	return s
}

func (q *faultyQueue) Send(ctx context.Context, m ...driver.Message) error {
	m = slices.Clone(m)
	_, err := call(ctx, q.f, "send", false, func(ctx context.Context, _ fate) (struct{}, error) {
		return struct{}{}, q.sender.Send(ctx, m...)
	})
	return err
}

func (q *faultyQueue) Stats(ctx context.Context) (driver.QueueStats, error) {
	return call(ctx, q.f, "stats", true, func(ctx context.Context, _ fate) (driver.QueueStats, error) {
		return q.inspector.Stats(ctx)
	})
}

func (q *faultyQueue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	return call(ctx, q.f, "peek", true, func(ctx context.Context, _ fate) ([]driver.Delivery, error) {
		return q.inspector.Peek(ctx, limit)
	})
}

func (q *faultyQueue) Purge(ctx context.Context) (int64, error) {
	return call(ctx, q.f, "purge", false, func(ctx context.Context, _ fate) (int64, error) {
		return q.purger.Purge(ctx)
	})
}

func (q *faultyQueue) DeadLetters(ctx context.Context, limit int) ([]driver.DeadLetter, error) {
	return call(ctx, q.f, "dead letters", true, func(ctx context.Context, _ fate) ([]driver.DeadLetter, error) {
		return q.dlq.DeadLetters(ctx, limit)
	})
}

// DeadLetterQueue returns the queue itself: calls fail wherever inner keeps its dead letters.
func (q *faultyQueue) DeadLetterQueue() driver.DeadLetterQueue {
	if q.dlq == nil {
		return nil
	}
	return q
}

type foundDeadLetter struct {
	l  driver.DeadLetter
	ok bool
}

func (q *faultyQueue) DeadLetter(ctx context.Context, id string) (driver.DeadLetter, bool, error) {
	l, err := call(ctx, q.f, "dead letter", true, func(ctx context.Context, _ fate) (foundDeadLetter, error) {
		l, ok, err := q.dlq.DeadLetter(ctx, id)
		return foundDeadLetter{l, ok}, err
	})
	return l.l, l.ok, err
}

func (q *faultyQueue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	_, err := call(ctx, q.f, "put dead letter", false, func(ctx context.Context, _ fate) (struct{}, error) {
		return struct{}{}, q.dlq.PutDeadLetter(ctx, l)
	})
	return err
}

func (q *faultyQueue) DeleteDeadLetter(ctx context.Context, id string) error {
	_, err := call(ctx, q.f, "delete dead letter", false, func(ctx context.Context, _ fate) (struct{}, error) {
		return struct{}{}, q.dlq.DeleteDeadLetter(ctx, id)
	})
	return err
}
