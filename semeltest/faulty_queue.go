package semeltest

import (
	"context"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// FaultyQueue is a queue whose calls go wrong as f says. It has those optional interfaces that inner has. Deliveries
// whose answer is lost come back when their visibility ends.
func FaultyQueue(inner driver.Queue, f *Faults) driver.Queue {
	var (
		s driver.Sender
		i driver.QueueInspector
		b driver.LetterBox
	)
	if x, ok := inner.(driver.Sender); ok {
		s = &faultySender{x, f}
	}
	if x, ok := inner.(driver.QueueInspector); ok {
		i = &faultyStats{x, f}
	}
	if x, ok := inner.(driver.LetterBox); ok {
		b = &faultyBox{x, f}
	}
	return compose(&faultyQueue{inner, f}, s, i, b)
}

type faultyQueue struct {
	inner driver.Queue
	f     *Faults
}

// Unwrap is the queue without faults.
func (q *faultyQueue) Unwrap() driver.Queue           { return q.inner }
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

// cloneSettlements copies settlements with their letters.
func cloneSettlements(s []driver.Settlement) []driver.Settlement {
	s = slices.Clone(s)
	for i := range s {
		if l := s[i].Letter; l != nil {
			s[i].Letter = new(*l)
		}
	}
	return s
}

type faultySender struct {
	inner driver.Sender
	f     *Faults
}

func (q *faultySender) Send(ctx context.Context, m ...driver.Message) error {
	m = slices.Clone(m)
	_, err := call(ctx, q.f, "send", false, func(ctx context.Context, _ fate) (struct{}, error) {
		return struct{}{}, q.inner.Send(ctx, m...)
	})
	return err
}

type faultyStats struct {
	inner driver.QueueInspector
	f     *Faults
}

func (q *faultyStats) Stats(ctx context.Context) (driver.QueueStats, error) {
	return call(ctx, q.f, "stats", true, func(ctx context.Context, _ fate) (driver.QueueStats, error) {
		return q.inner.Stats(ctx)
	})
}

func (q *faultyStats) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	return call(ctx, q.f, "peek", true, func(ctx context.Context, _ fate) ([]driver.Delivery, error) {
		return q.inner.Peek(ctx, limit)
	})
}

func (q *faultyStats) Purge(ctx context.Context) (int64, error) {
	return call(ctx, q.f, "purge", false, func(ctx context.Context, _ fate) (int64, error) {
		return q.inner.Purge(ctx)
	})
}

type faultyBox struct {
	inner driver.LetterBox
	f     *Faults
}

func (q *faultyBox) Letters(ctx context.Context, limit int) ([]driver.Letter, error) {
	return call(ctx, q.f, "letters", true, func(ctx context.Context, _ fate) ([]driver.Letter, error) {
		return q.inner.Letters(ctx, limit)
	})
}

type foundLetter struct {
	l  driver.Letter
	ok bool
}

func (q *faultyBox) Letter(ctx context.Context, id string) (driver.Letter, bool, error) {
	l, err := call(ctx, q.f, "letter", true, func(ctx context.Context, _ fate) (foundLetter, error) {
		l, ok, err := q.inner.Letter(ctx, id)
		return foundLetter{l, ok}, err
	})
	return l.l, l.ok, err
}

func (q *faultyBox) PutLetter(ctx context.Context, l driver.Letter) error {
	_, err := call(ctx, q.f, "put letter", false, func(ctx context.Context, _ fate) (struct{}, error) {
		return struct{}{}, q.inner.PutLetter(ctx, l)
	})
	return err
}

func (q *faultyBox) DeleteLetter(ctx context.Context, id string) error {
	_, err := call(ctx, q.f, "delete letter", false, func(ctx context.Context, _ fate) (struct{}, error) {
		return struct{}{}, q.inner.DeleteLetter(ctx, id)
	})
	return err
}
