package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// Offers is the inner store's; *semel.Statements are taken whether it has SQL or not, because a handler can be judged
// by what it queued.
func (s *shell) Offers(effects any) bool {
	if s.committer.Offers(effects) {
		return true
	}
	b, ok := effects.(**semel.Statements)
	if ok {
		*b = &semel.Statements{}
	}
	return ok
}

// sql reports whether the inner store carries queued statements out.
func (s *shell) sql() bool { return s.committer.Offers(new(*semel.Statements)) }

// Joins is false: see shell.
func (s *shell) Joins(driver.Queue) bool { return false }

// Commit writes works in the inner store.
func (s *shell) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	return s.finish(w, func(w []driver.Work) ([]driver.Outcome, error) {
		return s.committer.Commit(ctx, s.carried(w)...)
	})
}

// carried takes out the statements that the inner store cannot carry out.
func (s *shell) carried(w []driver.Work) []driver.Work {
	if s.sql() {
		return w
	}
	w = slices.Clone(w)
	for i := range w {
		if _, ok := w[i].Effects.(*semel.Statements); ok {
			w[i].Effects = nil
		}
	}
	return w
}

// OffersTx is the inner store's.
func (s *shell) OffersTx(handle any) bool { return s.transactor.OffersTx(handle) }

// Begin opens a transaction in the inner store.
func (s *shell) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	if s.dead() {
		return nil, s.busy(c), nil
	}
	s.note(c)
	tx, gs, err := s.transactor.Begin(ctx, c...)
	if err != nil || tx == nil {
		return tx, gs, err
	}
	x := &shellTx{Tx: tx, s: s, claims: c}
	s.mu.Lock()
	s.open[x] = true
	s.mu.Unlock()
	s.count(1)
	if s.acquired(gs) && s.p.strikes(CrashAtStart) {
		s.p.kill()
		return nil, s.busy(c), nil
	}
	return x, gs, nil
}

// shellTx is an open transaction of a process (modes B and C).
type shellTx struct {
	driver.Tx
	s      *shell
	claims []driver.Claim
}

// As is the inner transaction's; *semel.Statements are a buffer, as in Offers.
func (x *shellTx) As(handle any) bool { return x.Tx.As(handle) }

// Unwrap is the inner transaction.
func (x *shellTx) Unwrap() any { return x.Tx }

// Commit commits, with the faults that strike around a completion.
func (x *shellTx) Commit(ctx context.Context, w ...driver.Work) error {
	defer x.end()
	_, err := x.s.finish(w, func(w []driver.Work) ([]driver.Outcome, error) {
		if err := x.Tx.Commit(ctx, x.s.carried(w)...); err != nil {
			return nil, err
		}
		out := make([]driver.Outcome, len(w))
		for i := range out {
			out[i] = driver.Applied
		}
		return out, nil
	})
	if err == nil && x.s.dead() {
		return fmt.Errorf("commit: %w", errNoReply)
	}
	return err
}

// Rollback rolls back.
func (x *shellTx) Rollback(ctx context.Context) error {
	x.end()
	return x.Tx.Rollback(ctx)
}

func (x *shellTx) end() {
	x.s.mu.Lock()
	was := x.s.open[x]
	delete(x.s.open, x)
	x.s.mu.Unlock()
	if was {
		x.s.count(-1)
	}
}

// commit records what became durable together with a record, once for each attempt: a repeated write is no second effect.
func (w *execution) commit(p *Process, work *driver.Work) {
	w.update(func() {
		f := &work.Finish
		if f.Final == driver.Release || w.committed[f.Hold] {
			return
		}
		w.committed[f.Hold] = true
		switch f.Final {
		case driver.Complete:
			w.completed = true
		case driver.Park:
			w.parked = true
		case driver.Fail:
			w.failed = true
		}
		if b, ok := work.Effects.(*semel.Statements); ok && b != nil {
			w.queued(p, b)
		}
		for i := range work.Emit {
			w.effects = append(w.effects, Effect{
				Name: "emit to " + work.Emit[i].Queue, Key: work.Emit[i].ID, Process: p.number, Run: p.runs, Queued: true, kind: emitted,
			})
		}
	})
}
