package keymigration

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// Offers is the store's.
func (s *store) Offers(effects any) bool { return s.committer.Offers(effects) }

// Joins is the store's.
func (s *store) Joins(q driver.Queue) bool { return s.committer.Joins(q) }

// Commit writes works. The completions of both keys are one transaction, which holds both records. Two works of one Commit
// are not enough: if one is Lost, the other is still written. Then the new key would be COMPLETED without the effect, or the
// effect written although another worker has the new key. Other ends are committed as they are, with those of their new
// keys. A store without transactions completes works without effects, messages and acks one record after the other.
func (s *store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	var pairs, others []driver.Work
	var pairAt, otherAt []int
	migrating := 0
	for i := range w {
		if w[i].Finish.Hold.NewKey != nil {
			migrating++
			if w[i].Finish.Final == driver.Complete {
				pairs, pairAt = append(pairs, w[i]), append(pairAt, i)
				continue
			}
		}
		others, otherAt = append(others, w[i]), append(otherAt, i)
	}
	if migrating == 0 {
		return s.committer.Commit(ctx, w...)
	}
	out := make([]driver.Outcome, len(w))
	for _, part := range []struct {
		works  []driver.Work
		at     []int
		commit func(context.Context, []driver.Work) ([]driver.Outcome, error)
	}{{pairs, pairAt, s.pairs}, {others, otherAt, s.others}} {
		if len(part.works) == 0 {
			continue
		}
		got, err := part.commit(ctx, part.works)
		for j := range got {
			out[part.at[j]] = got[j]
		}
		if e := (*driver.ItemError)(nil); errors.As(err, &e) && e.Index >= 0 {
			return nil, &driver.ItemError{Index: part.at[e.Index], Err: e.Err, Transient: e.Transient}
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// others commits the ends that complete no new key, with the releases of new keys.
func (s *store) others(ctx context.Context, w []driver.Work) ([]driver.Outcome, error) {
	all, owner := make([]driver.Work, len(w), 2*len(w)), make([]int, len(w), 2*len(w))
	x := split(finishes(w))
	for i := range w {
		all[i], owner[i] = w[i], i
		all[i].Finish = x.previous[i]
	}
	for j, i := range x.backOf {
		all, owner = append(all, driver.Work{Finish: x.back[j]}), append(owner, i)
	}
	out, err := s.committer.Commit(ctx, all...)
	if err == nil && len(out) != len(all) {
		err = errShort
	}
	if err != nil {
		return nil, mapped(err, owner)
	}
	x.released(out[len(w):], out)
	return out[:len(w)], nil
}

func finishes(w []driver.Work) []driver.Finish {
	fs := make([]driver.Finish, len(w))
	for i := range w {
		fs[i] = w[i].Finish
	}
	return fs
}

// mapped gives the culprit the caller's index: owner has it for every work that was sent.
func mapped(err error, owner []int) error {
	if e := (*driver.ItemError)(nil); errors.As(err, &e) && e.Index >= 0 && e.Index < len(owner) {
		return &driver.ItemError{Index: owner[e.Index], Err: e.Err, Transient: e.Transient}
	}
	return err
}

// pairs commits the completions of both keys.
func (s *store) pairs(ctx context.Context, w []driver.Work) ([]driver.Outcome, error) {
	if s.tx == nil {
		for i := range w {
			if w[i].Effects != nil || w[i].Ack != nil || len(w[i].Emit) > 0 {
				return nil, &driver.ItemError{Index: i, Err: fmt.Errorf("complete two records with effects in one write: %w", driver.ErrUnsupported)}
			}
		}
		return s.Finish(ctx, finishes(w)...)
	}
	out, err := s.together(ctx, w)
	e := (*driver.ItemError)(nil)
	if !errors.As(err, &e) || e.Index >= 0 {
		return out, err
	}
	// The culprit is unknown: one at a time.
	out = make([]driver.Outcome, len(w))
	for i := range w {
		one, err := s.together(ctx, w[i:i+1])
		switch {
		case errors.As(err, &e):
			return nil, &driver.ItemError{Index: i, Err: e.Err, Transient: e.Transient}
		case err != nil:
			return out, err
		}
		out[i] = one[0]
	}
	return out, nil
}

// together completes works and their new keys in one transaction. The transaction claims all records once more, each by the
// nonce that has it. That shows whether both are still ours, and excludes other workers until the end.
func (s *store) together(ctx context.Context, w []driver.Work) ([]driver.Outcome, error) {
	claims := make([]driver.Claim, 0, 2*len(w))
	for i := range w {
		h := &w[i].Finish.Hold
		claims = append(claims, s.reclaim(h), s.reclaim(h.NewKey))
	}
	tx, grants, err := s.tx.Begin(ctx, claims...)
	if err == nil && len(grants) != len(claims) {
		err = errShort
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin the end of attempts with two keys: %w", err), rollback(ctx, tx))
	}
	out := make([]driver.Outcome, len(w))
	var previous, newKeys []driver.Work
	var owner, newOf, parked []int
	for i := range w {
		x := w[i]
		p, n := standing(&grants[2*i], &x.Finish.Hold), standing(&grants[2*i+1], x.Finish.Hold.NewKey)
		f, nf := apart(x.Finish)
		switch x.Finish = f; {
		case p == driver.Unknown || n == driver.Unknown:
		case p == driver.Applied && n == driver.Applied:
			previous, owner = append(previous, x), append(owner, i)
			newKeys, newOf = append(newKeys, driver.Work{Finish: *nf}), append(newOf, i)
		case p == driver.Settled && n == driver.Applied:
			newKeys, newOf = append(newKeys, driver.Work{Finish: *nf}), append(newOf, i)
		case p == driver.Settled && n == driver.Settled:
			out[i] = driver.Applied // by a write whose outcome was unknown
		case p == driver.Recovered:
			parked = append(parked, i)
		default:
			out[i] = driver.Lost
		}
	}
	if len(newKeys) == 0 {
		err = rollback(ctx, tx)
	} else if err = tx.Commit(ctx, append(previous, newKeys...)...); err != nil {
		return nil, errors.Join(mapped(err, append(owner, newOf...)), rollback(ctx, tx))
	}
	for _, i := range newOf {
		out[i] = driver.Applied
	}
	for _, i := range parked {
		if err == nil {
			out[i], err = s.late(ctx, w[i])
		}
		if e := (*driver.ItemError)(nil); errors.As(err, &e) {
			return nil, &driver.ItemError{Index: i, Err: e.Err, Transient: e.Transient}
		}
	}
	return out, err
}

// late completes an attempt whose previous key was parked meanwhile: late truth wins. No transaction claims a parked record,
// so the new key is claimed before, with a nonce of its own, and completed afterwards. It may be parked too.
func (s *store) late(ctx context.Context, w driver.Work) (driver.Outcome, error) {
	f, n := apart(w.Finish)
	grants, err := s.inner.Claim(ctx, s.afresh(n.Hold.Key))
	if err == nil && len(grants) != 1 {
		err = errShort
	}
	switch {
	case err != nil:
		return driver.Unknown, fmt.Errorf("claim the second key of a parked one: %w", err)
	case grants[0].Err != nil:
		return driver.Unknown, grants[0].Err
	case grants[0].Verdict != driver.Acquired && grants[0].Verdict != driver.Parked:
		return driver.Lost, nil
	}
	w.Finish, n.Hold = f, grants[0].Hold
	out, err := s.committer.Commit(ctx, w)
	if err == nil && len(out) != 1 {
		err = errShort
	}
	if err != nil {
		return driver.Unknown, err
	}
	if !ok(out[0]) {
		n = unstarted(n.Hold, s.o.Keep)
	}
	_, err = s.inner.Finish(ctx, *n)
	return out[0], err
}

// reclaim claims a record that we hold already: it renews the lease, and its grant shows whether the record is still ours.
func (s *store) reclaim(h *driver.Hold) driver.Claim {
	return driver.Claim{Key: h.Key, Nonce: h.Nonce, Lease: s.o.Lease, Version: h.Version}
}

// standing is the state of an attempt by the grant of a repeated claim: Applied while it has the record, Settled if it
// completed it, Recovered if it was parked and may still be completed, Lost, or Unknown.
func standing(g *driver.Grant, h *driver.Hold) driver.Outcome {
	mine := g.Hold.Token == h.Token && g.Hold.Generation == h.Generation && g.Hold.Nonce == h.Nonce
	switch {
	case g.Err != nil:
		return driver.Unknown
	case mine && g.Verdict == driver.Acquired:
		return driver.Applied
	case mine && g.Verdict == driver.Replay:
		return driver.Settled
	case mine && g.Verdict == driver.Parked:
		return driver.Recovered
	}
	return driver.Lost
}

func rollback(ctx context.Context, tx driver.Tx) error {
	if tx == nil {
		return nil
	}
	if err := tx.Rollback(ctx); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}
