package lab

import (
	"context"
	"time"

	"github.com/semel-dev/semel/driver"
)

// labQueue is what the lab needs of a queue: to consume, send, watch and read letters.
type labQueue interface {
	driver.Queue
	driver.Sender
	driver.QueueInspector
	driver.LetterBox
}

// labStore is what the lab needs of a store: claim mode, mode A2, and a look at the records.
type labStore interface {
	driver.Committer
	driver.RecordInspector
}

// orderHeader carries the key: the business identity that a producer's retry shares with its first copy.
const orderHeader = "idempotency-key"

// stepQueue passes AfterReceive, and notes what was handed out and what was settled.
type stepQueue struct {
	labQueue
	gate *gate
	log  *journal
	keys *keyring
}

func (q *stepQueue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	ds, err := q.labQueue.Receive(ctx, limit)
	for _, d := range ds {
		key := d.Header(orderHeader)
		q.keys.put(d.Receipt, key, d.ID)
		q.log.add(Entry{
			Kind: "received", Key: key, Message: d.ID, Count: d.Count, VisibleMS: d.Visible.Milliseconds(),
		})
	}
	for _, d := range ds {
		q.gate.pass(AfterReceive, d.Header(orderHeader), d.ID)
	}
	return ds, err
}

func (q *stepQueue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	outcomes, err := q.labQueue.Settle(ctx, s...)
	for i, one := range s {
		outcome := driver.Unknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		key, id := q.keys.get(one.Receipt)
		q.log.add(Entry{
			Kind: "settled", Key: key, Message: id,
			Action: one.Action.String(), Outcome: outcome.String(), AfterMS: one.After.Milliseconds(),
		})
		if one.Action != driver.Defer && one.Action != driver.Retry {
			q.keys.drop(one.Receipt)
		}
	}
	return outcomes, err
}

func (q *stepQueue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	outcomes, err := q.labQueue.Extend(ctx, visible, receipts...)
	for i, r := range receipts {
		if i < len(outcomes) {
			key, id := q.keys.get(r)
			q.log.add(Entry{
				Kind: "extended", Key: key, Message: id,
				VisibleMS: visible.Milliseconds(), Outcome: outcomes[i].String(),
			})
		}
	}
	return outcomes, err
}

// stepStore passes AfterClaim, AfterEffect and AfterCommit.
type stepStore struct {
	labStore
	gate *gate
	log  *journal
	keys *keyring
}

func (s *stepStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	grants, err := s.labStore.Claim(ctx, c...)
	for i, g := range grants {
		if g.Err == nil && g.Verdict == driver.Acquired {
			s.gate.pass(AfterClaim, c[i].Key.Raw, c[i].DeliveryID)
		}
	}
	return grants, err
}

func (s *stepStore) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	for _, one := range f {
		if one.Final == driver.Complete {
			s.gate.pass(AfterEffect, one.Hold.Key.Raw, "")
		}
	}
	outcomes, err := s.labStore.Finish(ctx, f...)
	for i, o := range outcomes {
		if o == driver.Applied && f[i].Final == driver.Complete {
			s.gate.pass(AfterCommit, f[i].Hold.Key.Raw, "")
		}
	}
	return outcomes, err
}

func (s *stepStore) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	for _, one := range w {
		if one.Finish.Final == driver.Complete {
			key, id := s.names(one)
			s.gate.pass(AfterEffect, key, id)
		}
	}
	outcomes, err := s.labStore.Commit(ctx, w...)
	for i, o := range outcomes {
		if o != driver.Applied || w[i].Finish.Final != driver.Complete {
			continue
		}
		key, id := s.names(w[i])
		s.log.add(Entry{Kind: noteEffect, Key: key, Message: id, Token: w[i].Finish.Hold.Token})
		if w[i].Ack != nil {
			s.keys.drop(w[i].Ack.Receipt)
			s.log.add(Entry{Kind: "settled", Key: key, Message: id, Action: "ack", Outcome: "applied"})
		}
	}
	for i, o := range outcomes {
		if o == driver.Applied && w[i].Finish.Final == driver.Complete {
			key, id := s.names(w[i])
			s.gate.pass(AfterCommit, key, id)
		}
	}
	return outcomes, err
}

// names tells key and message of a work; the message is known when its ack commits with it.
func (s *stepStore) names(w driver.Work) (key, message string) {
	key = w.Finish.Hold.Key.Raw
	if w.Ack != nil {
		_, message = s.keys.get(w.Ack.Receipt)
	}
	return key, message
}

// Joins unwraps the queue: the store knows its own.
func (s *stepStore) Joins(q driver.Queue) bool {
	if w, ok := q.(*stepQueue); ok {
		q = w.labQueue
	}
	return s.labStore.Joins(q)
}
