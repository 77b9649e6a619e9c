package rowstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// batch is the records of the items of one call under their locks. Items are decided in the order of the call; those of one
// key one after the other.
type batch struct {
	ids    []ID  // distinct, in the order of their hashes, which is the order of locks
	at     []int // place of an item's key in ids
	locked []Locked
	after  []driver.Record
	put    []bool
}

func lock(tx Tx, n int, key func(i int) *driver.Key, mode Mode) (*batch, error) {
	b := &batch{ids: make([]ID, n), at: make([]int, n)}
	for i := range b.ids {
		b.ids[i] = ID{*key(i), HashOf(key(i))}
	}
	all := b.ids
	b.ids = slices.Clone(all)
	slices.SortFunc(b.ids, compareIDs)
	b.ids = slices.CompactFunc(b.ids, func(a, b ID) bool { return a.Key == b.Key })
	for i := range all {
		b.at[i], _ = slices.BinarySearchFunc(b.ids, all[i], compareIDs)
	}
	if n == 0 {
		return b, nil
	}
	var err error
	b.locked, err = tx.Lock(b.ids, mode)
	b.after, b.put = make([]driver.Record, len(b.ids)), make([]bool, len(b.ids))
	for at := range b.locked {
		b.after[at] = b.locked[at].Record
	}
	return b, err
}

// compareIDs orders by hash. Two keys of one hash are two records, of which one cannot be.
func compareIDs(a, b ID) int {
	return cmp.Or(bytes.Compare(a.Hash[:], b.Hash[:]), cmp.Compare(a.Key.Consumer, b.Key.Consumer),
		cmp.Compare(a.Key.Tenant, b.Key.Tenant), cmp.Compare(a.Key.Raw, b.Key.Raw))
}

// write writes what was decided.
func (b *batch) write(tx Tx) error {
	for at, changed := range b.put {
		if !changed {
			continue
		}
		if err := tx.Put(&b.locked[at], &b.after[at]); err != nil {
			return fmt.Errorf("key %q: %w", b.ids[at].Key.Raw, err)
		}
	}
	return nil
}

// decision is the table's for the end of attempt i.
type decision func(i int, r driver.Record, now time.Time) (after driver.Record, o driver.Outcome, changed bool)

// ends decides ends of attempts, and returns those that this call writes: fresh.
func ends(tx Tx, mode Mode, out []driver.Outcome, hold func(i int) *driver.Hold, decide decision) (fresh []int, err error) {
	b, err := lock(tx, len(out), func(i int) *driver.Key { return &hold(i).Key }, mode)
	if err != nil {
		return nil, err
	}
	for i := range out {
		at := b.at[i]
		if out[i] = driver.Unknown; unlessCollision(b.locked[at].Err) != nil {
			continue // unreadable, or locked
		}
		var changed bool
		if b.after[at], out[i], changed = decide(i, b.after[at], b.locked[at].Now); changed {
			b.put[at] = true
			fresh = append(fresh, i)
		}
	}
	return fresh, b.write(tx)
}

// atomic runs f in a transaction. When the locks were waited for in vain it runs f once more without waiting.
func (s *Store) atomic(ctx context.Context, items int, mode Mode, f func(tx Tx, mode Mode) error) error {
	if items == 0 {
		return nil
	}
	err := s.db.Atomic(ctx, items, func(tx Tx) error { return f(tx, mode) })
	var item *driver.ItemError
	if mode != Skip && errors.Is(err, driver.ErrBlocked) && !errors.As(err, &item) {
		err = s.db.Atomic(ctx, items, func(tx Tx) error { return f(tx, Skip) })
	}
	return err
}

// Extend renews leases in one transaction.
func (s *Store) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) (out []driver.Outcome, err error) {
	out, err = s.ExtendLocked(ctx, Wait, lease, h...)
	return out, wrap("extend leases", err)
}

// ExtendLocked is Extend in a mode. With [Skip] the items whose records somebody else has locked are Unknown.
func (s *Store) ExtendLocked(ctx context.Context, mode Mode, lease time.Duration, h ...driver.Hold) (out []driver.Outcome, err error) {
	err = s.atomic(ctx, len(h), mode, func(tx Tx, mode Mode) error {
		out, err = extend(tx, mode, lease, h)
		return err
	})
	return out, err
}

// Finish ends attempts in one transaction.
func (s *Store) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	out, err := s.FinishLocked(ctx, Wait, f...)
	return out, wrap("finish", err)
}

// FinishLocked is Finish in a mode. With [Skip] the items whose records somebody else has locked are Unknown.
func (s *Store) FinishLocked(ctx context.Context, mode Mode, f ...driver.Finish) (out []driver.Outcome, err error) {
	err = s.atomic(ctx, len(f), mode, func(tx Tx, mode Mode) error {
		out, _, err = finish(tx, mode, len(f), func(i int) *driver.Finish { return &f[i] })
		return err
	})
	return out, err
}

func wrap(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// Commit writes works in one transaction: records, effects, emitted messages, acknowledgements. See [driver.Committer].
func (s *Store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	for i := range w {
		if err := s.layout.Check(&w[i]); err != nil {
			return nil, fmt.Errorf("commit: %w", &driver.ItemError{Index: i, Err: err})
		}
	}
	out, err := s.CommitLocked(ctx, Wait, w...)
	return out, wrap("commit", err)
}

// CommitLocked is Commit in a mode, for works that were checked. With [Skip] the items whose records somebody else has locked
// are Unknown.
func (s *Store) CommitLocked(ctx context.Context, mode Mode, w ...driver.Work) (out []driver.Outcome, err error) {
	err = s.atomic(ctx, 2*len(w), mode, func(tx Tx, mode Mode) (err error) {
		var fresh []int
		out, fresh, err = finish(tx, mode, len(w), func(i int) *driver.Finish { return &w[i].Finish })
		if err != nil || len(fresh) == 0 {
			return err
		}
		return tx.Works(w, fresh)
	})
	return out, err
}

// lockedWait is the Grant.Wait of a key that somebody else has locked: nothing tells when that ends.
const lockedWait = 100 * time.Millisecond

// LockedGrant is the grant of a claim whose record somebody else has locked.
func LockedGrant(c *driver.Claim) driver.Grant {
	return driver.Grant{
		Verdict: driver.Busy, Hold: driver.Hold{Key: c.Key, Generation: 1}, Takeover: c.Takeover, Wait: lockedWait,
	}
}

// ErrAbsent is the error of a claim in [ClaimTx] whose key has no record, and that may not make one.
var ErrAbsent = errors.New("there is no record")

// Claim decides claims in one transaction. A key that somebody else has locked is waited for, and then Busy.
func (s *Store) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	out, err := s.ClaimLocked(ctx, Make, c...)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	for i := range out {
		if errors.Is(out[i].Err, ErrLocked) || errors.Is(out[i].Err, ErrAbsent) {
			out[i] = LockedGrant(&c[i])
		}
	}
	return out, nil
}

// ClaimLocked is [ClaimTx] in a transaction of its own. What was waited for in vain has ErrLocked or ErrAbsent.
func (s *Store) ClaimLocked(ctx context.Context, mode Mode, c ...driver.Claim) (out []driver.Grant, err error) {
	err = s.atomic(ctx, len(c), mode, func(tx Tx, mode Mode) error {
		out, err = ClaimTx(tx, mode, c...)
		return err
	})
	return out, err
}

// ClaimTx decides claims inside a transaction. Only with [Make] it makes records of keys that have none; without, such a
// claim has the error ErrAbsent. Grant.Err of a record that somebody else has locked is ErrLocked (see [Skip]).
func ClaimTx(tx Tx, mode Mode, c ...driver.Claim) ([]driver.Grant, error) {
	out := make([]driver.Grant, len(c))
	b, err := lock(tx, len(c), func(i int) *driver.Key { return &c[i].Key }, mode)
	if err != nil {
		return nil, err
	}
	for i := range c {
		at, changed := b.at[i], false
		l := &b.locked[at]
		var after driver.Record
		if l.Err == nil {
			after, out[i], changed = driver.DecideClaim(b.after[at], c[i], l.Now, l.Drawn)
		}
		switch {
		case l.Err != nil:
			out[i] = driver.Grant{Err: fmt.Errorf("key %q: %w", c[i].Key.Raw, l.Err)}
		case changed && l.Record.State == driver.Absent && mode != Make:
			out[i] = driver.Grant{Err: fmt.Errorf("key %q: %w", c[i].Key.Raw, ErrAbsent)}
		case changed:
			b.after[at], b.put[at] = after, true
		case b.after[at].State == driver.Absent && mode == Make:
			if err := tx.Drop(l); err != nil {
				return nil, err
			}
		}
	}
	return out, b.write(tx)
}

// ExtendTx renews leases inside a transaction.
func ExtendTx(tx Tx, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	return extend(tx, Wait, lease, h)
}

func extend(tx Tx, mode Mode, lease time.Duration, h []driver.Hold) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(h))
	_, err := ends(tx, mode, out, func(i int) *driver.Hold { return &h[i] },
		func(i int, r driver.Record, now time.Time) (driver.Record, driver.Outcome, bool) {
			after, o := driver.DecideExtend(r, h[i], lease, now)
			return after, o, o == driver.Applied
		})
	return out, err
}

// FinishTx ends attempts inside a transaction. fresh are those that this call writes.
func FinishTx(tx Tx, f ...driver.Finish) (out []driver.Outcome, fresh []int, err error) {
	return finish(tx, Wait, len(f), func(i int) *driver.Finish { return &f[i] })
}

func finish(tx Tx, mode Mode, n int, f func(i int) *driver.Finish) (out []driver.Outcome, fresh []int, err error) {
	out = make([]driver.Outcome, n)
	fresh, err = ends(tx, mode, out, func(i int) *driver.Hold { return &f(i).Hold },
		func(i int, r driver.Record, now time.Time) (driver.Record, driver.Outcome, bool) {
			return driver.DecideFinish(r, *f(i), now)
		})
	return out, fresh, err
}
