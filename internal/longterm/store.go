package longterm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

var errShort = errors.New("store answered fewer items than it was asked")

// New wraps a store in a tier. It is a driver.Committer or driver.Transactor where inner is one; other optional interfaces
// are to be asked of inner.
func New(inner driver.Store, t *Tier) driver.Store {
	s := &store{Store: inner, tier: t}
	s.committer, _ = driver.As[driver.Committer](inner)
	s.tx, _ = driver.As[driver.Transactor](inner)
	return s
}

type store struct {
	driver.Store
	tier      *Tier
	committer driver.Committer
	tx        driver.Transactor
}

// Unwrap is the store behind the tier.
func (s *store) Unwrap() any { return s.Store }

// Claim asks the store, and looks at what it granted. A grant whose look, or whose parking, was not answered is unknown:
// the same claim again is looked at again.
func (s *store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	grants, err := s.Store.Claim(ctx, c...)
	if err != nil || len(grants) != len(c) {
		return grants, err
	}
	hits, _ := s.tier.look(ctx, c, grants) // it has marked what it could not answer
	if len(hits) > 0 {
		s.park(ctx, hits, grants)
	}
	return grants, nil
}

// hit is a granted claim whose key is remembered.
type hit struct {
	at     int
	digest driver.Digest
}

// park ends the grants of remembered keys as uncertain.
func (s *store) park(ctx context.Context, hits []hit, grants []driver.Grant) {
	fs := make([]driver.Finish, len(hits))
	for j, h := range hits {
		fs[j] = driver.Finish{
			Hold: grants[h.at].Hold, Final: driver.Park, Ran: driver.MaybeApplied, Keep: s.tier.o.Retention,
			Reason: reason(h.digest),
		}
	}
	out, err := s.Store.Finish(ctx, fs...)
	if err == nil && len(out) != len(fs) {
		err = errShort
	}
	for j, h := range hits {
		g := &grants[h.at]
		switch {
		case err != nil:
			g.Err = fmt.Errorf("park a remembered key: %w", err)
		case out[j] != driver.Applied:
			g.Err = fmt.Errorf("park a remembered key: %v", out[j])
		default:
			g.Verdict, g.Reason, g.Unknown = driver.Parked, fs[j].Reason, true
			s.tier.parked()
		}
	}
}

// reason tells a person what to decide on.
func reason(d driver.Digest) string {
	what := map[driver.State]string{
		driver.Completed: "was completed", driver.FailedState: "failed for good", driver.Released: "was given back in doubt",
	}[d.State]
	return fmt.Sprintf("the key %s on %s, and its record is gone, past its retention: this is a late duplicate of it, or, once in "+
		"2^128, another key with the same hash", what, d.At.UTC().Format("2006-01-02 15:00 MST"))
}

// Offers is the store's.
func (c *store) Offers(effects any) bool { return c.committer.Offers(effects) }

// Joins is the store's.
func (c *store) Joins(q driver.Queue) bool { return c.committer.Joins(q) }

// Commit is the store's: what is committed was looked at when it was claimed.
func (c *store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	return c.committer.Commit(ctx, w...)
}

// OffersTx is the store's.
func (t *store) OffersTx(handle any) bool { return t.tx.OffersTx(handle) }

// rollbackWait bounds giving back a transaction whose caller may have gone.
const rollbackWait = 5 * time.Second

// rounds bounds how often a transaction is begun anew because keys in it are remembered: each round takes those out.
const rounds = 8

// Begin opens a transaction and looks at what it acquired. Remembered keys cannot be parked in it, because what is in it may
// be rolled back: it is given up, they are claimed and parked outside, and it is begun anew with the others.
func (t *store) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	out := make([]driver.Grant, len(c))
	left := make([]int, len(c))
	for i := range c {
		left[i] = i
	}
	for range rounds {
		some := make([]driver.Claim, len(left))
		for j, i := range left {
			some[j] = c[i]
		}
		tx, grants, err := t.tx.Begin(ctx, some...)
		if err != nil || len(grants) != len(some) {
			return tx, grants, err
		}
		hits, err := t.tier.look(ctx, some, grants)
		if err != nil {
			giveBack(ctx, tx)
			return nil, nil, err
		}
		for j, i := range left {
			out[i] = grants[j]
		}
		if len(hits) == 0 {
			return tx, out, nil
		}
		giveBack(ctx, tx)
		if left, err = t.parkOutside(ctx, c, left, hits, out); err != nil {
			return nil, nil, err
		}
		if len(left) == 0 {
			return nil, out, nil
		}
	}
	return nil, nil, fmt.Errorf("begin: too many of its keys are remembered: %w", driver.ErrNotCommitted)
}

// parkOutside claims and parks remembered keys without a transaction. left are the claims that are to be begun again.
func (t *store) parkOutside(
	ctx context.Context, c []driver.Claim, begun []int, hits []hit, out []driver.Grant,
) (left []int, err error) {
	claims := make([]driver.Claim, len(hits))
	hit := make(map[int]bool, len(hits))
	for j, h := range hits {
		claims[j] = c[begun[h.at]]
		hit[h.at] = true
	}
	grants, err := t.Claim(ctx, claims...)
	if err == nil && len(grants) != len(claims) {
		err = errShort
	}
	if err != nil {
		return nil, fmt.Errorf("claim remembered keys: %w", err)
	}
	for j, h := range hits {
		if out[begun[h.at]] = grants[j]; grants[j].Err == nil && grants[j].Verdict == driver.Acquired {
			left = append(left, begun[h.at]) // it is not remembered any more; the claim is ours, by its nonce
		}
	}
	for j, i := range begun {
		// What was not acquired in the transaction was answered by it, and stays so.
		if !hit[j] && out[i].Err == nil && out[i].Verdict == driver.Acquired {
			left = append(left, i)
		}
	}
	return left, nil
}

func giveBack(ctx context.Context, tx driver.Tx) {
	if tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
	defer cancel()
	_ = tx.Rollback(ctx) // nothing was written in it; the store ends it by itself otherwise
}
