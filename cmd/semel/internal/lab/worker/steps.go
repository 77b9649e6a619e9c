package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/driver"
)

// stepQueue passes AfterReceive, logs what was delivered and what was settled, and loses what is to be lost.
type stepQueue struct {
	place.Queue
	gate   *gate
	log    *eventlog.Log
	keys   *keyring
	faults *faults
	// visible is the queue's visibility.
	visible time.Duration
}

// Unwrap is the queue itself.
func (q *stepQueue) Unwrap() any { return q.Queue }

// Passes lets the store take over acks: stepStore writes them to the log.
func (q *stepQueue) Passes() []driver.Interface {
	return []driver.Interface{driver.InterfaceOf[driver.Settler]()}
}

func (q *stepQueue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if err := q.faults.down(); err != nil {
		return nil, err
	}
	ds, err := q.Queue.Receive(ctx, limit)
	if len(ds) > 0 && ds[0].Visible > 0 {
		q.log.Delay(q.visible - ds[0].Visible) // the time that the delivery took to arrive
	}
	for _, d := range ds {
		key := d.Header(place.KeyHeader)
		q.keys.put(d.Receipt, key, d.ID)
		q.log.Add(eventlog.Entry{
			Kind: "received", Key: key, Message: d.ID, Count: d.Count, VisibleMS: d.Visible.Milliseconds(),
		})
	}
	for _, d := range ds {
		q.gate.pass(plan.AfterReceive, d.Header(place.KeyHeader), d.ID)
	}
	return ds, err
}

func (q *stepQueue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	if err := q.faults.down(); err != nil {
		return nil, err
	}
	lost := losses{faults: q.faults, drop: q.faults.wire.ForgetAck, outcome: driver.Applied, lose: q.faults.wire.LoseAck}
	first := slices.IndexFunc(s, func(one driver.Settlement) bool { return one.Action == driver.Ack })
	if first >= 0 && q.faults.dropAck() {
		lost.nth = first + 1
	}
	outcomes, err := through(lost, s, func(s []driver.Settlement) ([]driver.Outcome, error) {
		defer q.log.Call()()
		return q.Queue.Settle(ctx, s...)
	})
	for i, one := range s {
		outcome := driver.Unknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		key, id := q.keys.get(one.Receipt)
		e := eventlog.Entry{
			Kind: "settled", Key: key, Message: id,
			Action: one.Action.String(), Outcome: outcome.String(), AfterMS: one.After.Milliseconds(),
		}
		if i+1 == lost.nth {
			e.Reason = "dropped on its way"
		}
		q.log.Add(e)
		if one.Action != driver.Defer && one.Action != driver.Retry {
			q.keys.drop(one.Receipt)
		}
	}
	return outcomes, err
}

func (q *stepQueue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	if err := q.faults.down(); err != nil {
		return nil, err
	}
	outcomes, err := through(losses{faults: q.faults, drop: q.faults.deaf()}, receipts, func(r []any) ([]driver.Outcome, error) {
		defer q.log.Call()()
		return q.Queue.Extend(ctx, visible, r...)
	})
	for i, r := range receipts {
		if i < len(outcomes) {
			key, id := q.keys.get(r)
			q.log.Add(eventlog.Entry{
				Kind: "extended", Key: key, Message: id,
				VisibleMS: visible.Milliseconds(), Outcome: outcomes[i].String(),
			})
		}
	}
	return outcomes, err
}

// losses are the shares of the items of a call that never arrive, and of those whose responses get lost.
type losses struct {
	faults *faults
	drop   float64
	// outcome is what the caller gets for a dropped item.
	outcome driver.Outcome
	lose    float64
	// nth item is dropped as well, from 1; 0 = none.
	nth int
}

// through carries the items of a call to the other side, as far as they arrive. The outcome of a lost response is Unknown.
func through[T any](l losses, items []T, call func([]T) ([]driver.Outcome, error)) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(items))
	var pass []T
	var at []int
	for i, item := range items {
		if i+1 == l.nth || l.faults.strikes(l.drop) {
			out[i] = l.outcome
			continue
		}
		pass, at = append(pass, item), append(at, i)
	}
	if len(pass) == 0 {
		return out, nil
	}
	outcomes, err := call(pass)
	for n, o := range outcomes {
		if !l.faults.strikes(l.lose) {
			out[at[n]] = o
		}
	}
	return out, err
}

// stepStore passes AfterClaim, AfterEffect and AfterCommit. It is a committer where the store is one: see [driver.As].
type stepStore struct {
	place.Store
	committer driver.Committer // the store; nil when its effects do not commit with records
	gate      *gate
	log       *eventlog.Log
	keys      *keyring
	faults    *faults
}

// Unwrap implements [driver.Wrapper].
func (s *stepStore) Unwrap() any { return s.Store }

func (s *stepStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	s.faults.slow(ctx)
	if err := s.faults.down(); err != nil {
		return nil, err
	}
	done := s.log.Call()
	grants, err := s.Store.Claim(ctx, c...)
	done()
	for i, g := range grants {
		if g.Err == nil && g.Verdict == driver.Acquired {
			s.gate.pass(plan.AfterClaim, c[i].Key.Raw, c[i].DeliveryID)
		}
	}
	return grants, err
}

func (s *stepStore) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	if err := s.faults.down(); err != nil {
		return nil, err
	}
	return through(losses{faults: s.faults, drop: s.faults.deaf()}, h, func(h []driver.Hold) ([]driver.Outcome, error) {
		defer s.log.Call()()
		return s.Store.Extend(ctx, lease, h...)
	})
}

func (s *stepStore) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	s.faults.slow(ctx)
	if err := s.faults.down(); err != nil {
		return nil, err
	}
	for _, one := range f {
		if one.Final == driver.Complete {
			s.gate.pass(plan.AfterEffect, one.Hold.Key.Raw, "")
		}
	}
	outcomes, err := through(losses{faults: s.faults, lose: s.faults.wire.LoseCommit}, f, func(f []driver.Finish) ([]driver.Outcome, error) {
		defer s.log.Call()()
		return s.Store.Finish(ctx, f...)
	})
	for i, o := range outcomes {
		if o == driver.Applied && f[i].Final == driver.Complete {
			s.gate.pass(plan.AfterCommit, f[i].Hold.Key.Raw, "")
		}
	}
	return outcomes, err
}

// Offers is the store's.
func (s *stepStore) Offers(effects any) bool { return s.committer.Offers(effects) }

func (s *stepStore) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	s.faults.slow(ctx)
	if err := s.faults.down(); err != nil {
		return nil, err
	}
	for _, one := range w {
		if one.Finish.Final == driver.Complete {
			key, id := s.names(one)
			s.gate.pass(plan.AfterEffect, key, id)
		}
	}
	outcomes, err := through(losses{faults: s.faults, lose: s.faults.wire.LoseCommit}, w, func(w []driver.Work) ([]driver.Outcome, error) {
		defer s.log.Call()()
		return s.committer.Commit(ctx, w...)
	})
	for i, o := range outcomes {
		if o != driver.Applied || w[i].Finish.Final != driver.Complete {
			continue
		}
		key, id := s.names(w[i])
		s.log.Add(eventlog.Entry{Kind: eventlog.Effect, Key: key, Message: id, Token: w[i].Finish.Hold.Token})
		if w[i].Ack != nil {
			s.keys.drop(w[i].Ack.Receipt)
			s.log.Add(eventlog.Entry{Kind: "settled", Key: key, Message: id, Action: "ack", Outcome: "applied"})
		}
	}
	for i, o := range outcomes {
		if o == driver.Applied && w[i].Finish.Final == driver.Complete {
			key, id := s.names(w[i])
			s.gate.pass(plan.AfterCommit, key, id)
		}
	}
	return outcomes, err
}

// names returns key and message of a work; the message is known when its ack commits with it.
func (s *stepStore) names(w driver.Work) (key, message string) {
	key = w.Finish.Hold.Key.Raw
	if w.Ack != nil {
		_, message = s.keys.get(w.Ack.Receipt)
	}
	return key, message
}

// Joins is the store's. Where acks get lost on their way, they travel by themselves, as to a queue that is elsewhere.
func (s *stepStore) Joins(q driver.Queue) bool {
	if s.faults.watched || s.faults.wire.ForgetAck+s.faults.wire.LoseAck > 0 {
		return false
	}
	return s.committer.Joins(q)
}

// keyring remembers which message a receipt is for: settlements and extensions carry receipts only.
type keyring struct {
	mu sync.Mutex
	m  map[any][2]string
}

func newKeyring() *keyring { return &keyring{m: map[any][2]string{}} }

func (k *keyring) put(receipt any, key, message string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.m[receipt] = [2]string{key, message}
}

func (k *keyring) get(receipt any) (key, message string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.m[receipt]
	return v[0], v[1]
}

func (k *keyring) drop(receipt any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.m, receipt)
}
