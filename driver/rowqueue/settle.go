package rowqueue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Own is what an adapter's queue does itself. Its errors need not name the queue.
type Own interface {
	// Send accepts all messages or none. They name the queue.
	Send(ctx context.Context, m []driver.Message) error
	// Settle ends deliveries of the queue in one transaction. Close and the dead letter of Dead are written even when the
	// receipt is lost or was settled before ([Receipt.Settled]); the outcome of the latter is ignored.
	Settle(ctx context.Context, s []*driver.Settlement) ([]driver.Outcome, error)
	// Extend hides deliveries, which were not settled, for visible from now.
	Extend(ctx context.Context, visible time.Duration, receipts []any) ([]driver.Outcome, error)
	// Put makes the queue, if it does not exist, and writes a dead letter, unless that is nil.
	Put(ctx context.Context, l *driver.DeadLetter) error
}

// Receipt is a delivery's handle, which the receipts of an adapter embed. It stays valid until the message is delivered
// again, even after its visibility has expired.
type Receipt struct {
	Of    *Queue
	Pos   int64
	Group string
	// settled is the action (from 1) that spent this receipt, so that a repetition returns Applied.
	settled atomic.Uint32
}

type receipt interface{ base() *Receipt }

func (r *Receipt) base() *Receipt { return r }

// Queue returns the name of the queue.
func (r *Receipt) Queue() string { return r.Of.name }

// Settled reports that the receipt was spent.
func (r *Receipt) Settled() bool { return r.settled.Load() != 0 }

// settle returns the outcome of an action that had outcome o, and marks a receipt that it spent.
func (r *Receipt) settle(a driver.Action, o driver.Outcome) driver.Outcome {
	switch before := r.settled.Load(); {
	case before == uint32(a)+1:
		return driver.Applied
	case before != 0:
		return driver.Lost
	case o == driver.Applied:
		r.settled.Store(uint32(a) + 1)
	}
	return o
}

// Returns reports that an action returns the message to the queue.
func Returns(a driver.Action) bool { return a == driver.Retry || a == driver.Defer }

// mine checks that a receipt is of this queue.
func (q *Queue) mine(r any) (*Receipt, error) {
	rc, ok := r.(receipt)
	if !ok || rc.base().Of.db != q.db || rc.base().Of.name != q.name {
		return nil, fmt.Errorf("receipt %T is not of queue %q", r, q.name)
	}
	return rc.base(), nil
}

func (q *Queue) check(s *driver.Settlement) error {
	if _, err := q.mine(s.Receipt); err != nil {
		return err
	}
	return s.Check()
}

// CheckAck refuses the acknowledgement of a work whose receipt is not of a queue in db, or that no queue could carry out.
func CheckAck(db rowstore.DB, a *driver.Settlement) error {
	rc, ok := a.Receipt.(receipt)
	if !ok || rc.base().Of.db != db {
		return fmt.Errorf("receipt %T is of another queue: %w", a.Receipt, driver.ErrUnsupported)
	}
	return rc.base().Of.check(a)
}

// Settled marks the receipts of acknowledgements that were committed with their works.
func Settled(w []driver.Work, out []driver.Outcome) {
	for i, o := range out {
		if a := w[i].Ack; a != nil && (o == driver.Applied || o == driver.Recovered) {
			a.Receipt.(receipt).base().settle(a.Action, driver.Applied)
		}
	}
}

// Send accepts all messages or none. It sets a missing ID, and SentAt to now.
func (q *Queue) Send(ctx context.Context, m ...driver.Message) error {
	if len(m) == 0 {
		return nil
	}
	return Wrap(q.own.Send(ctx, Named(q.name, m)), "send to", q.name)
}

// Create makes the queue before its first message, so that the database lists it. It leaves an existing queue alone.
func (q *Queue) Create(ctx context.Context) error { return Wrap(q.own.Put(ctx, nil), "create", q.name) }

// PutDeadLetter writes a dead letter without a delivery. Each id is written once.
func (q *Queue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("put dead letter: it has no ID")
	}
	return rowstore.Wrap(q.own.Put(ctx, &l), "put dead letter %s", l.ID)
}

// Settlements checks settlements of a queue.
func Settlements(q *Queue, s []driver.Settlement) ([]*driver.Settlement, error) {
	list := make([]*driver.Settlement, len(s))
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("settle in queue %q: item %d: %w", q.name, i, err)
		}
		list[i] = &s[i]
	}
	return list, nil
}

// Settle ends deliveries in one transaction. A receipt stays valid until its message is delivered again, even after its
// visibility has expired. Repeating the action that spent a receipt returns Applied, another action Lost. Settlement.Close
// and the dead letter of Dead are written even when the receipt is lost: both follow from the record, and a dead letter is
// written once per id.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	list, err := Settlements(q, s)
	if err != nil || len(s) == 0 {
		return nil, err
	}
	out, err := q.own.Settle(ctx, list)
	if err != nil {
		return nil, Wrap(err, "settle in", q.name)
	}
	for i := range s {
		out[i] = s[i].Receipt.(receipt).base().settle(s[i].Action, out[i])
	}
	return out, nil
}

// Extend hides deliveries from others for visible from now, even after their visibility has expired, unless they were
// delivered again.
func (q *Queue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	var open []any
	var at []int
	out := make([]driver.Outcome, len(receipts))
	for i, r := range receipts {
		rc, err := q.mine(r)
		if err != nil {
			return nil, fmt.Errorf("extend in queue %q: item %d: %w", q.name, i, err)
		}
		if out[i] = driver.Lost; !rc.Settled() {
			open, at = append(open, r), append(at, i)
		}
	}
	if len(open) == 0 {
		return out, nil
	}
	done, err := q.own.Extend(ctx, visible, open)
	for i, o := range done {
		out[at[i]] = o
	}
	if err != nil {
		return nil, Wrap(err, "extend in", q.name)
	}
	return out, nil
}
