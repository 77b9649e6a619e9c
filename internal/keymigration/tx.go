package keymigration

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// OffersTx is the store's.
func (s *store) OffersTx(handle any) bool { return s.tx.OffersTx(handle) }

// beginRounds bounds how often a transaction is begun anew because others completed what it claimed.
const beginRounds = 8

// Begin opens a transaction that holds both records of every claim it acquires. If only one record of a claim is acquired it
// stays as it was, since no work comes for it. If the other record is completed, it has to be completed before the duplicate
// is acked, whatever becomes of this transaction: the transaction is rolled back, the record is completed, and a new
// transaction begins with the other claims.
func (s *store) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	if !anyMigrating(c) {
		return s.tx.Begin(ctx, c...)
	}
	out := make([]driver.Grant, len(c))
	left := make([]int, len(c))
	for i := range c {
		left[i] = i
	}
	for range beginRounds {
		tx, settle, err := s.beginOnce(ctx, c, left, out)
		if err != nil || len(settle) == 0 {
			return tx, out, err
		}
		if left, err = s.settleFirst(ctx, c, left, settle, out); err != nil {
			return nil, nil, err
		}
		if len(left) == 0 {
			return nil, out, nil
		}
	}
	return nil, nil, fmt.Errorf("begin: the records change too fast: %w", driver.ErrNotCommitted)
}

// beginOnce begins a transaction for the claims that are left. settle has those that have to be completed first. Then the
// transaction is rolled back.
func (s *store) beginOnce(ctx context.Context, c []driver.Claim, left []int, out []driver.Grant) (driver.Tx, []int, error) {
	some := pick(c, left)
	p := planOf(some)
	tx, grants, err := s.tx.Begin(ctx, p.asks...)
	if err == nil && len(grants) != len(p.asks) {
		err = errShort
	}
	if err != nil {
		_ = rollback(ctx, tx) // the first error counts
		return nil, nil, fmt.Errorf("begin with two keys a message: %w", err)
	}
	var settle []int
	for j, i := range left {
		g, end := p.grant(j, &some[j], grants, s.o.Keep)
		out[i] = g
		if end != nil && end.Final == driver.Complete {
			settle = append(settle, i)
		}
	}
	if len(settle) > 0 {
		return nil, settle, rollback(ctx, tx)
	}
	if tx == nil {
		return nil, nil, nil
	}
	return &migratingTx{tx}, nil, nil
}

// settleFirst claims what has to be completed, outside of any transaction, and returns what is left to begin with.
func (s *store) settleFirst(ctx context.Context, c []driver.Claim, left, settle []int, out []driver.Grant) ([]int, error) {
	grants, err := s.Claim(ctx, pick(c, settle)...)
	if err != nil {
		return nil, err
	}
	decided := map[int]bool{}
	for j, i := range settle {
		out[i] = grants[j]
		// Acquired after all: the transaction claims it again, by the same nonce.
		decided[i] = grants[j].Err != nil || grants[j].Verdict != driver.Acquired
	}
	var rest []int
	for _, i := range left {
		if !decided[i] {
			rest = append(rest, i)
		}
	}
	return rest, nil
}

func pick(c []driver.Claim, at []int) []driver.Claim {
	some := make([]driver.Claim, len(at))
	for j, i := range at {
		some[j] = c[i]
	}
	return some
}

// migratingTx is an open transaction that holds both records.
type migratingTx struct{ driver.Tx }

// Unwrap returns the transaction of the store.
func (x *migratingTx) Unwrap() any { return x.Tx }

// Commit commits the works with those of their new keys.
func (x *migratingTx) Commit(ctx context.Context, w ...driver.Work) error {
	all, owner := make([]driver.Work, len(w), 2*len(w)), make([]int, len(w), 2*len(w))
	for i := range w {
		all[i], owner[i] = w[i], i
	}
	for i := range w {
		f, n := apart(w[i].Finish)
		all[i].Finish = f
		if n != nil {
			all, owner = append(all, driver.Work{Finish: *n}), append(owner, i)
		}
	}
	return mapped(x.Tx.Commit(ctx, all...), owner)
}
