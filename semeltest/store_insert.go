package semeltest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// inserter returns the store's driver.Committer; ok is false when its commits bring no claims.
func inserter(t testing.TB, s StoreSetup) (driver.Committer, bool) {
	t.Helper()
	if !s.Store.Features().ClaimsAtCommit {
		t.Log("left out: the store does not claim at commits")
		return nil, false
	}
	return effects(t, s)
}

// look claims keys at their commit, and wants that they have no record.
func look(t testing.TB, s StoreSetup, ks ...driver.Key) (cs []driver.Claim, holds []driver.Hold) {
	t.Helper()
	for _, k := range ks {
		cs = append(cs, driver.Claim{Key: k, Nonce: newNonce(), Lease: long, AtCommit: true})
	}
	gs, err := s.Store.Claim(t.Context(), cs...)
	if err != nil || len(gs) != len(cs) {
		t.Fatalf("claim of %d keys at their commit returned %d grants and %v", len(cs), len(gs), err)
	}
	for i, g := range gs {
		want := driver.Hold{Key: ks[i], Generation: 1, Nonce: cs[i].Nonce}
		if g.Err != nil || g.Verdict != driver.Acquired || g.Hold != want {
			t.Fatalf("claim of key %q at its commit returned %v, %+v, %v", ks[i].Raw, g.Verdict, g.Hold, g.Err)
		}
		holds = append(holds, g.Hold)
		if r, found, err := as[driver.RecordInspector](s.Store).Record(t.Context(), ks[i]); err != nil || found {
			t.Errorf("after a claim at its commit key %q has a record (%v, %v)", ks[i].Raw, r.State, err)
		}
	}
	return cs, holds
}

// testAtCommitBeside claims keys twice in one call, once at the commit. Claims of one key are decided in their order.
func testAtCommitBeside(t testing.TB, s StoreSetup) {
	if _, ok := inserter(t, s); !ok {
		return
	}
	ks := keys(2, "beside-%d")
	var cs []driver.Claim
	for i, k := range []driver.Key{ks[0], ks[0], ks[1], ks[1]} {
		cs = append(cs, driver.Claim{Key: k, Nonce: newNonce(), Lease: long, AtCommit: i == 1 || i == 2})
	}
	gs, err := s.Store.Claim(t.Context(), cs...)
	if err != nil || len(gs) != len(cs) {
		t.Fatalf("claim of two keys, twice each, returned %d grants and %v", len(gs), err)
	}
	for i, want := range []driver.Verdict{driver.Acquired, driver.Busy, driver.Acquired, driver.Acquired} {
		if g := gs[i]; g.Err != nil || g.Verdict != want || want == driver.Acquired && (g.Hold.Token == 0) != cs[i].AtCommit {
			t.Errorf("claim %d returned %v, %+v, %v, wanted %v", i, g.Verdict, g.Hold, g.Err, want)
		}
	}
}

// bring is a work with its claim, and one effect named after its key.
func (l *Ledger) bring(c driver.Committer, q *driver.Claim) driver.Work {
	w := l.work(c, driver.Grant{Hold: driver.Hold{Key: q.Key, Generation: 1, Nonce: q.Nonce}})
	w.Claim = q
	return w
}

// testCommitClaims commits works that bring their claims among others. A key that got a record meanwhile loses its item
// alone, and a repeated commit changes nothing.
func testCommitClaims(t testing.TB, s StoreSetup) {
	c, ok := inserter(t, s)
	if !ok {
		return
	}
	ks := keys(6, "brought-%d")
	cs, holds := look(t, s, ks[:5]...)
	durable := mustClaim(t, s.Store, ks[5])[0]
	mustClaim(t, s.Store, ks[1])
	mustFinish(t, s.Store, driver.Applied, complete(mustClaim(t, s.Store, ks[3])[0]))
	works := func() []driver.Work {
		var w []driver.Work
		for i := range cs {
			w = append(w, s.Ledger.bring(c, &cs[i]))
		}
		return append(w, s.Ledger.work(c, durable))
	}
	won := []driver.Outcome{driver.Applied, driver.Lost, driver.Applied, driver.Lost, driver.Applied, driver.Applied}
	for range 3 {
		mustCommit(t, c, works(), won...)
	}
	free, _ := look(t, s, keys(1, "brought-alone-%d")...)
	alone := s.Ledger.bring(c, &free[0])
	mustCommit(t, c, []driver.Work{alone}, driver.Applied)
	s.Ledger.counts(t, 1, ks[0], ks[2], ks[4], ks[5], free[0].Key)
	s.Ledger.counts(t, 0, ks[1], ks[3])
	want := []driver.Verdict{driver.Replay, driver.Busy, driver.Replay, driver.Replay, driver.Replay, driver.Replay}
	tokens := map[uint64]bool{0: true}
	for i, g := range claimKeys(t, s.Store, ks...) {
		if g.Verdict != want[i] || tokens[g.Hold.Token] {
			t.Errorf("claim of key %q returned %v with token %d afterwards, wanted %v with a token of its own", ks[i].Raw, g.Verdict,
				g.Hold.Token, want[i])
		}
		if tokens[g.Hold.Token] = true; i < len(cs) && won[i] == driver.Applied && g.Hold.Nonce != cs[i].Nonce {
			t.Errorf("the record of key %q has nonce %x, not that of its claim", ks[i].Raw, g.Hold.Nonce)
		}
	}
	if hs, err := s.Store.Extend(t.Context(), long, holds[0]); err != nil || hs[0] != driver.Lost {
		t.Errorf("an extension with token 0 returned %v, %v", hs, err)
	}
	stranger := driver.Finish{Hold: holds[2], Final: driver.Fail, Keep: keep}
	mustFinish(t, s.Store, driver.Lost, stranger)
}

// testCommitClaimsRefused refuses the effects of one item that brings its claim: no item leaves a record, and the others are
// committed again without it.
func testCommitClaimsRefused(t testing.TB, s StoreSetup) {
	c, ok := inserter(t, s)
	if !ok {
		return
	}
	ks := keys(3, "brought-refused-%d")
	cs, _ := look(t, s, ks...)
	w := make([]driver.Work, len(ks))
	for i := range cs {
		w[i] = s.Ledger.bring(c, &cs[i])
	}
	s.Ledger.Refuse(w[1].Effects)
	var item *driver.ItemError
	if _, err := c.Commit(t.Context(), w...); !errors.As(err, &item) || item.Index != 1 {
		t.Fatalf("commit with refused effects of item 1 returned %v", err)
	}
	s.Ledger.counts(t, 0, ks...)
	for _, k := range ks {
		if r, found, err := as[driver.RecordInspector](s.Store).Record(t.Context(), k); err != nil || found {
			t.Errorf("after a refused commit key %q has a record (%v, %v)", k.Raw, r.State, err)
		}
	}
	rest := []driver.Work{s.Ledger.bring(c, &cs[0]), s.Ledger.bring(c, &cs[2])}
	mustCommit(t, c, rest, driver.Applied)
	s.Ledger.counts(t, 1, ks[0], ks[2])
	// The failure of the refused item is recorded by a claim.
	g := mustClaim(t, s.Store, ks[1])[0]
	mustFinish(t, s.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: driver.Fail, Keep: keep})
	mustCommit(t, c, []driver.Work{s.Ledger.bring(c, &cs[1])}, driver.Lost)
	s.Ledger.counts(t, 0, ks[1])
}

// testFM13OneInserts has many callers commit the same keys at once, in different orders.
func testFM13OneInserts(t testing.TB, s StoreSetup) {
	c, ok := inserter(t, s)
	if !ok {
		return
	}
	const callers = 6
	ks := keys(40, "brought-race-%d")
	var (
		wg   sync.WaitGroup
		bad  mismatches
		mu   sync.Mutex
		wins = map[driver.Key]int{}
	)
	var claims [callers][]driver.Claim
	for n := range callers {
		claims[n], _ = look(t, s, ks...)
		if n%2 == 1 {
			slices.Reverse(claims[n])
		}
	}
	for n, cs := range claims {
		wg.Go(func() {
			for i := 0; i < len(cs); i += 10 {
				w := make([]driver.Work, 10)
				for at := range w {
					w[at] = s.Ledger.bring(c, &cs[i+at])
				}
				out, err := untilCommitted(t, c, w)
				if err != nil {
					bad.add("commit of caller %d: %v", n, err)
					return
				}
				mu.Lock()
				for at, o := range out {
					if o == driver.Applied {
						wins[w[at].Claim.Key]++
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	bad.report(t)
	for _, k := range ks {
		if wins[k] != 1 {
			t.Errorf("key %q was won %d times", k.Raw, wins[k])
		}
	}
	s.Ledger.counts(t, 1, ks...)
}

// untilCommitted repeats a commit until every item has an outcome.
func untilCommitted(t testing.TB, c driver.Committer, w []driver.Work) ([]driver.Outcome, error) {
	var out []driver.Outcome
	err := errors.New("never tried")
	for range 200 {
		if out, err = c.Commit(t.Context(), w...); err == nil && !slices.Contains(out, driver.Unknown) {
			return out, nil
		}
		if err != nil && !errors.Is(err, driver.ErrNotCommitted) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("after 200 tries: %v, %w", out, err)
}
