package semeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// FaultyStore is a store whose calls go wrong as f says. It has those optional interfaces that inner has; of a
// driver.StepStore the journal only when inner is a driver.Transactor, RecordInspector, Operator and Sweeper too.
func FaultyStore(inner driver.Store, f *Faults) driver.Store {
	s := &faultyStore{inner: inner, f: f}
	a := admin{}
	if i, ok := inner.(driver.RecordInspector); ok {
		a.i = &faultyInspector{i, f}
	}
	if o, ok := inner.(driver.Operator); ok {
		a.o = &faultyOperator{o, f}
	}
	if w, ok := inner.(driver.Sweeper); ok {
		a.w = &faultySweeper{w, f}
	}
	c, ok := inner.(driver.Committer)
	if !ok {
		return a.withStore(s)
	}
	fc := &faultyCommitter{faultyStore: s, inner: c}
	if t, ok := inner.(driver.Transactor); ok {
		ft := &faultyTransactor{faultyCommitter: fc, inner: t}
		if st, ok := inner.(driver.StepStore); ok && a.bits() == 7 {
			return a.withSteps(ft, st)
		}
		return a.withTransactor(ft)
	}
	return a.withCommitter(fc)
}

type faultyStore struct {
	inner driver.Store
	f     *Faults
}

func (s *faultyStore) Features() driver.StoreFeatures { return s.inner.Features() }

func unknown(o *driver.Outcome) { *o = driver.Unknown }

func same(err error, _ []int) error { return err }

func (s *faultyStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	c = slices.Clone(c) // a late call must not see what the caller puts into its buffer next; so in all writes
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

type faultyCommitter struct {
	*faultyStore
	inner driver.Committer
}

func (s *faultyCommitter) Offers(effects any) bool { return s.inner.Offers(effects) }

// Joins looks through a [FaultyQueue].
func (s *faultyCommitter) Joins(q driver.Queue) bool {
	if u, ok := q.(interface{ Unwrap() driver.Queue }); ok {
		q = u.Unwrap()
	}
	return s.inner.Joins(q)
}

func (s *faultyCommitter) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	w = slices.Clone(w)
	for i := range w {
		w[i].Emit = slices.Clone(w[i].Emit)
		if w[i].Ack != nil {
			w[i].Ack = &cloneSettlements([]driver.Settlement{*w[i].Ack})[0]
		}
	}
	return call(ctx, s.f, "commit", false, func(ctx context.Context, x fate) ([]driver.Outcome, error) {
		fix := func(err error, place []int) error {
			if item := (*driver.ItemError)(nil); errors.As(err, &item) {
				return &driver.ItemError{Index: place[item.Index], Err: item.Err, Suspect: item.Suspect}
			}
			return err
		}
		return items(s.f, x, w, unknown, fix, func(w []driver.Work) ([]driver.Outcome, error) {
			return s.inner.Commit(ctx, w...)
		})
	})
}

type faultyTransactor struct {
	*faultyCommitter
	inner driver.Transactor
}

func (s *faultyTransactor) OffersTx(handle any) bool { return s.inner.OffersTx(handle) }

// begun is the answer of Begin.
type begun struct {
	tx     driver.Tx
	grants []driver.Grant
}

// Begin loses the transaction with the answer, as a server does that notices a lost connection.
func (s *faultyTransactor) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	b, err := call(ctx, s.f, "begin", true, func(ctx context.Context, x fate) (begun, error) {
		tx, g, err := s.inner.Begin(ctx, c...)
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

// Transient asks the transaction itself, where it can tell.
func (t *faultyTx) Transient(err error) error {
	c, ok := t.Tx.(driver.TxClassifier)
	if !ok {
		return nil
	}
	return c.Transient(err)
}

type faultyInspector struct {
	inner driver.RecordInspector
	f     *Faults
}

type foundRecord struct {
	r  driver.Record
	ok bool
}

func (s *faultyInspector) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	r, err := call(ctx, s.f, "record", true, func(ctx context.Context, _ fate) (foundRecord, error) {
		r, ok, err := s.inner.Record(ctx, k)
		return foundRecord{r, ok}, err
	})
	return r.r, r.ok, err
}

func (s *faultyInspector) Records(ctx context.Context, f driver.RecordFilter) ([]driver.Record, error) {
	return call(ctx, s.f, "records", true, func(ctx context.Context, _ fate) ([]driver.Record, error) {
		return s.inner.Records(ctx, f)
	})
}

type faultyOperator struct {
	inner driver.Operator
	f     *Faults
}

type operated struct {
	r driver.Record
	o driver.Outcome
}

func (s *faultyOperator) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	r, err := call(ctx, s.f, "operate", false, func(ctx context.Context, _ fate) (operated, error) {
		r, o, err := s.inner.Operate(ctx, op)
		return operated{r, o}, err
	})
	return r.r, r.o, err
}

type faultySweeper struct {
	inner driver.Sweeper
	f     *Faults
}

type sweptMore struct {
	s    driver.Swept
	more bool
}

func (s *faultySweeper) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	r, err := call(ctx, s.f, "sweep", false, func(ctx context.Context, _ fate) (sweptMore, error) {
		w, more, err := s.inner.Sweep(ctx, horizon, limit, consumers...)
		return sweptMore{w, more}, err
	})
	return r.s, r.more, err
}
