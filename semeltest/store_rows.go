package semeltest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// rowLedger returns the store's driver.Committer if the suite can queue rows.
func rowLedger(t testing.TB, s StoreSetup) (driver.Committer, bool) {
	t.Helper()
	c, ok := effects(t, s)
	if ok && s.Ledger.Rows == nil {
		t.Log("left out: Ledger.Rows is nil")
		return nil, false
	}
	return c, ok
}

// rowWork completes a grant with a row that is its effect, a row of a parent and one of a child, in an order that depends on i.
func (l *Ledger) rowWork(c driver.Committer, g driver.Grant, i int) driver.Work {
	buf, id := l.Buffer(c), g.Hold.Key.Raw
	if i%3 == 0 {
		l.Rows.Add(buf, id)
	}
	l.Rows.Parent(buf, id)
	if i%3 == 1 {
		l.Rows.Add(buf, id)
	}
	l.Rows.Child(buf, id, id)
	if i%3 == 2 {
		l.Rows.Add(buf, id)
	}
	return driver.Work{Finish: complete(g), Effects: buf}
}

func (l *Ledger) rowWorks(c driver.Committer, gs []driver.Grant) []driver.Work {
	w := make([]driver.Work, len(gs))
	for i, g := range gs {
		w[i] = l.rowWork(c, g, i)
	}
	return w
}

// testCommitRows commits rows of many messages, once however often it is repeated, and with one work twice in a call.
func testCommitRows(t testing.TB, s StoreSetup) {
	c, ok := rowLedger(t, s)
	if !ok {
		return
	}
	ks := keys(100, "rows-%d")
	gs := mustClaim(t, s.Store, ks...)
	for range 2 {
		mustCommit(t, c, s.Ledger.rowWorks(c, gs), driver.Applied)
	}
	s.Ledger.counts(t, 1, ks...)

	ks = keys(4, "twice-%d")
	w := s.Ledger.rowWorks(c, mustClaim(t, s.Store, ks...))
	w = append(w, w[2])
	if _, err := c.Commit(t.Context(), w...); err != nil {
		t.Fatalf("commit of a work that is in it twice: %v", err)
	}
	s.Ledger.counts(t, 1, ks...)

	// Those whose hold is lost leave no row.
	ks = keys(5, "lost-%d")
	w = s.Ledger.rowWorks(c, mustClaim(t, s.Store, ks...))
	w[3].Finish.Hold.Nonce = newNonce()
	mustCommit(t, c, w, driver.Applied, driver.Applied, driver.Applied, driver.Lost, driver.Applied)
	s.Ledger.counts(t, 0, ks[3])
	s.Ledger.counts(t, 1, ks[0], ks[1], ks[2], ks[4])
}

// testCommitRowRefused lets one row be refused, at each place of the batch: nothing of the call is committed, the error names
// the item, and the others are committed without it.
func testCommitRowRefused(t testing.TB, s StoreSetup) {
	c, ok := rowLedger(t, s)
	if !ok {
		return
	}
	for _, culprit := range []int{0, 5, 19} {
		name := fmt.Sprintf("row-%d", culprit)
		ks := keys(20, name+"-%d")
		gs := mustClaim(t, s.Store, ks...)
		first := s.Ledger.Buffer(c)
		s.Ledger.Rows.Parent(first, name)
		mustCommit(t, c, []driver.Work{{Finish: complete(mustClaim(t, s.Store, driver.Key{Consumer: "suite", Raw: name})[0]), Effects: first}}, driver.Applied)
		for range 2 {
			w := s.Ledger.rowWorks(c, gs)
			s.Ledger.Rows.Parent(w[culprit].Effects, name) // exists
			out, err := c.Commit(t.Context(), w...)
			var item *driver.ItemError
			if !errors.As(err, &item) || item.Index != culprit || item.Transient {
				t.Fatalf("commit with a refused row of item %d returned %v, %v, wanted an ItemError that names it", culprit, out, err)
			}
			s.Ledger.counts(t, 0, ks...)
		}
		w := s.Ledger.rowWorks(c, gs)
		mustCommit(t, c, append(w[:culprit:culprit], w[culprit+1:]...), driver.Applied)
		for i, k := range ks {
			s.Ledger.counts(t, map[bool]int{true: 0, false: 1}[i == culprit], k)
		}
	}
}

// testCommitRowsOrder mixes rows and statements: those of one message run in their order, and a statement sees the rows of the
// messages before it.
func testCommitRowsOrder(t testing.TB, s StoreSetup) {
	c, ok := rowLedger(t, s)
	if !ok {
		return
	}
	if s.Ledger.Rows.Rename == nil {
		t.Log("left out: Ledger.Rows.Rename is nil")
		return
	}
	ks := keys(9, "order-%d")
	var w []driver.Work
	for i, g := range mustClaim(t, s.Store, ks...) {
		x := driver.Work{Finish: complete(g), Effects: s.Ledger.Buffer(c)}
		r, e, id := s.Ledger.Rows, x.Effects, ks[i-i%3].Raw
		switch i % 3 {
		case 0: // a parent that exists under this name only for the next two
			r.Parent(e, id)
			r.Rename(e, id, id+"-renamed")
			r.Child(e, id, id+"-renamed")
			r.Add(e, ks[i].Raw)
			r.Parent(e, id)
		case 1:
			r.Child(e, id+"-second", id)
			r.Add(e, ks[i].Raw)
		case 2:
			r.Add(e, ks[i].Raw)
			r.Parent(e, id+"-third")
			r.Rename(e, id+"-third", id+"-fourth")
		}
		w = append(w, x)
	}
	mustCommit(t, c, w, driver.Applied)
	s.Ledger.counts(t, 1, ks...)
}

// testTxRows is testTxEffects for rows.
func testTxRows(t testing.TB, s StoreSetup) {
	c, ok := rowLedger(t, s)
	if !ok {
		return
	}
	tr, ok := transactor(t, s)
	if !ok {
		return
	}
	fill := func(ks ...driver.Key) any {
		e := s.Ledger.Buffer(c)
		for _, k := range ks {
			s.Ledger.Rows.Parent(e, k.Raw)
		}
		for _, k := range ks {
			s.Ledger.Rows.Child(e, k.Raw, k.Raw)
			s.Ledger.Rows.Add(e, k.Raw)
		}
		return e
	}
	ks := keys(30, "row-batch-%d")
	tx, _, gs := begin(t, tr, ks...)
	if err := tx.Commit(t.Context(), batchWorks(gs, fill(ks...))...); err != nil {
		t.Fatalf("commit of a batch with rows: %v", err)
	}
	s.Ledger.counts(t, 1, ks...)

	again := keys(3, "refused-row-batch-%d")
	tx, _, gs = begin(t, tr, again...)
	e := fill(again...)
	s.Ledger.Rows.Parent(e, ks[0].Raw) // exists
	err := tx.Commit(t.Context(), batchWorks(gs, e)...)
	if item := (*driver.ItemError)(nil); !errors.As(err, &item) || item.Index != 0 {
		t.Errorf("commit of a batch with a refused row returned %v, wanted an ItemError that names the first work", err)
	}
	_ = tx.Rollback(t.Context())
	s.Ledger.counts(t, 0, again...)
}
