package rowstore

import (
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// Held is the set of claims that an open transaction (modes B and C) acquired.
type Held struct {
	Claims []HeldClaim
	places map[driver.Nonce]int
}

// HeldClaim is one claim with the record before it, because a claim without a work is taken back.
type HeldClaim struct {
	Before *driver.Record // nil: there was none
	After  driver.Record
}

// Add remembers a claim.
func (h *Held) Add(before *driver.Record, after driver.Record) {
	if h.places == nil {
		h.places = map[driver.Nonce]int{}
	}
	h.places[after.Nonce] = len(h.Claims)
	h.Claims = append(h.Claims, HeldClaim{before, after})
}

// Park writes the changes of claims that do not acquire their record.
func Park(tx Tx, mode Mode, c ...driver.Claim) error {
	b, err := lock(tx, len(c), func(i int) *driver.Key { return &c[i].Key }, mode)
	if err != nil {
		return err
	}
	for i := range c {
		l := &b.locked[b.at[i]]
		after, g, changed := driver.DecideClaim(l.Record, c[i], l.Now, l.Drawn)
		if l.Err == nil && changed && g.Verdict != driver.Acquired {
			b.set(b.at[i], after)
		}
	}
	return b.write(tx)
}

// Works returns the index of the work of each claim, or -1. A work that the transaction does not hold is an error.
func (h *Held) Works(w []driver.Work) ([]int, error) {
	works := make([]int, len(h.Claims))
	for i := range works {
		works[i] = -1
	}
	for i := range w {
		hold := &w[i].Finish.Hold
		at, ok := h.places[hold.Nonce]
		if !ok || works[at] >= 0 || h.Claims[at].After.Hold() != *hold {
			return nil, &driver.ItemError{Index: i, Err: fmt.Errorf("key %q is not held by this transaction", hold.Key.Raw)}
		}
		works[at] = i
	}
	return works, nil
}

// TakeBack restores the record from before a claim.
func (c *HeldClaim) TakeBack(tx Tx) error {
	l := &Locked{Record: c.After}
	if c.Before == nil {
		return tx.Drop(l)
	}
	return tx.Put(l, c.Before)
}

// Commit takes back the claims without a work, and has commit write the works inside the transaction ([CommitTx], or what the
// adapter does faster). The caller commits the transaction.
func (h *Held) Commit(tx Tx, w []driver.Work, commit func() ([]driver.Outcome, error)) error {
	works, err := h.Works(w)
	if err != nil {
		return err
	}
	for at, i := range works {
		if i < 0 {
			if err := h.Claims[at].TakeBack(tx); err != nil {
				return err
			}
		}
	}
	out, err := commit()
	for i, o := range out {
		if err == nil && o != driver.Applied {
			err = &driver.ItemError{Index: i, Err: fmt.Errorf("the record was changed inside the transaction: %v", o)}
		}
	}
	return err
}
