package semeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// FaultyStore is a store whose calls fail as f plans. [driver.As] finds the optional interfaces that inner has, and their
// calls fail too. It finds no driver.DuplicateLog and no driver.LongTerm.
func FaultyStore(inner driver.Store, f *Faults) driver.Store {
	s := &faultyStore{inner: inner, f: f}
	s.committer, _ = driver.As[driver.Committer](inner)
	s.transactor, _ = driver.As[driver.Transactor](inner)
	s.steps, _ = driver.As[driver.StepStore](inner)
	s.inspector, _ = driver.As[driver.RecordInspector](inner)
	s.operator, _ = driver.As[driver.Operator](inner)
	s.sweeper, _ = driver.As[driver.Sweeper](inner)
	return s
}

// faultyStore implements every interface whose calls can fail. Those that inner lacks are nil, and driver.As does not find
// them.
type faultyStore struct {
	inner      driver.Store
	committer  driver.Committer
	transactor driver.Transactor
	steps      driver.StepStore
	inspector  driver.RecordInspector
	operator   driver.Operator
	sweeper    driver.Sweeper
	f          *Faults
}

// Unwrap is the store without faults.
func (s *faultyStore) Unwrap() any { return s.inner }

func (s *faultyStore) Features() driver.StoreFeatures { return s.inner.Features() }

func unknown(o *driver.Outcome) { *o = driver.Unknown }

func same(err error, _ []int) error { return err }

func (s *faultyStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	c = slices.Clone(c) // a late call must not see the next contents of the caller's buffer; so in all writes
	return call(ctx, s.f, "claim", false, func(ctx context.Context, x fate) ([]driver.Grant, error) {
		blank := func(g *driver.Grant) { *g = driver.Grant{Err: fmt.Errorf("claim (unknown): %w", ErrFault)} }
		return items(s.f, x, c, blank, same, func(c []driver.Claim) ([]driver.Grant, error) {
			return s.inner.Claim(ctx, c...)
		})
	})
}

func (s *faultyStore) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	h = slices.Clone(h)
	return call(ctx, s.f, "extend", false, func(ctx context.Context, x fate) ([]driver.Outcome, error) {
		return items(s.f, x, h, unknown, same, func(h []driver.Hold) ([]driver.Outcome, error) {
			return s.inner.Extend(ctx, lease, h...)
		})
	})
}

func (s *faultyStore) Finish(ctx context.Context, fs ...driver.Finish) ([]driver.Outcome, error) {
	fs = slices.Clone(fs)
	return call(ctx, s.f, "finish", false, func(ctx context.Context, x fate) ([]driver.Outcome, error) {
		return items(s.f, x, fs, unknown, same, func(fs []driver.Finish) ([]driver.Outcome, error) {
			return s.inner.Finish(ctx, fs...)
		})
	})
}

func (s *faultyStore) Offers(effects any) bool { return s.committer.Offers(effects) }

func (s *faultyStore) Joins(q driver.Queue) bool { return s.committer.Joins(q) }

func (s *faultyStore) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	w = slices.Clone(w)
	for i := range w {
		w[i].Emit = slices.Clone(w[i].Emit)
		if w[i].Claim != nil {
			claim := *w[i].Claim
			w[i].Claim = &claim
		}
		if w[i].Ack != nil {
			w[i].Ack = &cloneSettlements([]driver.Settlement{*w[i].Ack})[0]
		}
	}
	return call(ctx, s.f, "commit", false, func(ctx context.Context, x fate) ([]driver.Outcome, error) {
		fix := func(err error, place []int) error {
			if item := (*driver.ItemError)(nil); errors.As(err, &item) {
				return &driver.ItemError{Index: place[item.Index], Err: item.Err, Transient: item.Transient}
			}
			return err
		}
		return items(s.f, x, w, unknown, fix, func(w []driver.Work) ([]driver.Outcome, error) {
			return s.committer.Commit(ctx, w...)
		})
	})
}

func (s *faultyStore) OffersTx(handle any) bool { return s.transactor.OffersTx(handle) }

// begun is what Begin returns.
type begun struct {
	tx     driver.Tx
	grants []driver.Grant
}

// Begin loses the transaction with the response, like a server that notices a lost connection.
func (s *faultyStore) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	b, err := call(ctx, s.f, "begin", true, func(ctx context.Context, x fate) (begun, error) {
		tx, g, err := s.transactor.Begin(ctx, c...)
		if x.err != "" && tx != nil {
			return begun{}, tx.Rollback(context.WithoutCancel(ctx))
		}
		return begun{tx, g}, err
	})
	if err != nil || b.tx == nil {
		return nil, b.grants, err
	}
	return &faultyTx{Tx: b.tx, f: s.f}, b.grants, nil
}

type faultyTx struct {
	driver.Tx
	f *Faults
}

// Commit leaves nothing open: a call that fails before it does anything rolls back.
func (t *faultyTx) Commit(ctx context.Context, w ...driver.Work) error {
	reached := false
	_, err := call(ctx, t.f, "tx commit", true, func(ctx context.Context, _ fate) (struct{}, error) {
		reached = true
		return struct{}{}, t.Tx.Commit(ctx, w...)
	})
	if !reached {
		_ = t.Tx.Rollback(context.WithoutCancel(ctx))
	}
	return err
}

// Unwrap is the transaction without faults.
func (t *faultyTx) Unwrap() any { return t.Tx }

type foundRecord struct {
	r  driver.Record
	ok bool
}

func (s *faultyStore) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	r, err := call(ctx, s.f, "record", true, func(ctx context.Context, _ fate) (foundRecord, error) {
		r, ok, err := s.inspector.Record(ctx, k)
		return foundRecord{r, ok}, err
	})
	return r.r, r.ok, err
}

func (s *faultyStore) Records(ctx context.Context, f driver.RecordFilter) ([]driver.Record, error) {
	return call(ctx, s.f, "records", true, func(ctx context.Context, _ fate) ([]driver.Record, error) {
		return s.inspector.Records(ctx, f)
	})
}

type operated struct {
	r driver.Record
	o driver.Outcome
}

func (s *faultyStore) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	r, err := call(ctx, s.f, "operate", false, func(ctx context.Context, _ fate) (operated, error) {
		r, o, err := s.operator.Operate(ctx, op)
		return operated{r, o}, err
	})
	return r.r, r.o, err
}

type sweptMore struct {
	s    driver.Swept
	more bool
}

func (s *faultyStore) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	r, err := call(ctx, s.f, "sweep", false, func(ctx context.Context, _ fate) (sweptMore, error) {
		w, more, err := s.sweeper.Sweep(ctx, horizon, limit, consumers...)
		return sweptMore{w, more}, err
	})
	return r.s, r.more, err
}

func (s *faultyStore) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	return call(ctx, s.f, "steps", true, func(ctx context.Context, _ fate) ([]driver.Step, error) {
		return s.steps.Steps(ctx, h)
	})
}

func (s *faultyStore) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	w = slices.Clone(w)
	return call(ctx, s.f, "write steps", false, func(ctx context.Context, _ fate) (driver.Outcome, error) {
		return s.steps.WriteSteps(ctx, h, w...)
	})
}
