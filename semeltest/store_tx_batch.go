package semeltest

import (
	"errors"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// batchWorks are the works of a batch: the first carries the effects that the handler queued.
func batchWorks(gs []driver.Grant, effects any) []driver.Work {
	w := make([]driver.Work, len(gs))
	for i, g := range gs {
		w[i] = driver.Work{Finish: complete(g)}
	}
	w[0].Effects = effects
	return w
}

// testTxEffects commits queued effects with the transaction that holds the claims, as batch handlers need it: all of
// them with all records, or none with none.
func testTxEffects(t testing.TB, s StoreSetup) {
	tr, ok := transactor(t, s)
	if !ok {
		return
	}
	fill := func(ks ...driver.Key) any {
		e := s.Ledger.Buffer(as[driver.Committer](s.Store))
		for _, k := range ks {
			s.Ledger.Add(e, k.Raw)
		}
		return e
	}
	ks := keys(5, "batch-%d")
	tx, _, gs := begin(t, tr, ks...)
	s.Ledger.addTx(t, tx, ks[4]) // beside what is done at once
	if err := tx.Commit(t.Context(), batchWorks(gs, fill(ks[:4]...))...); err != nil {
		t.Fatalf("commit of a batch with queued effects: %v", err)
	}
	s.Ledger.counts(t, 1, ks...)

	// Refused effects belong to all: nothing is written, and the first work is named.
	ks = keys(3, "refused-batch-%d")
	tx, _, gs = begin(t, tr, ks...)
	e := fill(ks...)
	s.Ledger.Refuse(e)
	err := tx.Commit(t.Context(), batchWorks(gs, e)...)
	if item := (*driver.ItemError)(nil); !errors.As(err, &item) || item.Index != 0 {
		t.Errorf("commit of a batch with refused effects returned %v, wanted an ItemError that names the first work", err)
	}
	_ = tx.Rollback(t.Context())
	s.Ledger.counts(t, 0, ks...)

	// One hold is not the transaction's: effects that belong to all must not be written for the others.
	tx, _, gs = begin(t, tr, ks...)
	for i, g := range gs {
		if g.Attempt != 1 || g.Unknown {
			t.Errorf("key %q: attempt %d, unknown %v after a refused batch, wanted a first attempt", ks[i].Raw, g.Attempt, g.Unknown)
		}
	}
	w := batchWorks(gs, fill(ks...))
	w[2].Finish.Hold.Nonce = newNonce()
	if err := tx.Commit(t.Context(), w...); err == nil {
		t.Error("commit of a batch of which one hold is lost returned no error")
	}
	_ = tx.Rollback(t.Context())
	s.Ledger.counts(t, 0, ks...)
	for i, g := range claimKeys(t, s.Store, ks...) {
		if g.Verdict != driver.Acquired || g.Attempt != 1 {
			t.Errorf("claim of key %q returned %v, attempt %d after a batch that was not committed, wanted a first attempt", ks[i].Raw, g.Verdict, g.Attempt)
		}
	}
}

// testTxThousand commits a thousand works in one transaction.
func testTxThousand(t testing.TB, s StoreSetup) {
	tr, ok := transactor(t, s)
	if !ok {
		return
	}
	const n = 1000
	ks := keys(n, "one-of-a-thousand-%d")
	tx, _, gs := begin(t, tr, ks...)
	e := s.Ledger.Buffer(as[driver.Committer](s.Store))
	for _, i := range []int{0, n / 2, n - 1} {
		s.Ledger.Add(e, ks[i].Raw)
	}
	if err := tx.Commit(t.Context(), batchWorks(gs, e)...); err != nil {
		t.Fatalf("commit of %d works: %v", n, err)
	}
	s.Ledger.counts(t, 1, ks[0], ks[n/2], ks[n-1])
	for i, g := range claimKeys(t, s.Store, ks...) {
		if g.Verdict != driver.Replay {
			t.Fatalf("claim of key %q returned %v after the commit, wanted replay", ks[i].Raw, g.Verdict)
		}
	}
}
