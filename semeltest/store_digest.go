package semeltest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file tests the long-term tier of a store (driver.LongTerm): what a record leaves when its retention is over, and
// that there is no moment in which neither of both is found (FM71).

// remembered is for how long these cases keep digests.
const remembered = 400 * 24 * time.Hour

func digestCases() []suiteCase[StoreSetup] {
	var all []suiteCase[StoreSetup]
	for _, c := range []struct {
		name string
		run  func(b *digestBench)
	}{
		{"FM41 records leave digests", testFM41Digests},
		{"FM71 digests are announced before their record goes", testFM71Announced},
		{"FM71 no key is unknown at roll-over", testFM71NoHole},
		{"digests of reopened records", testDigestReopened},
		{"digests are bounded per sweep", testDigestBounds},
		{"registrations of digests", testDigestRegistrations},
		{"digests end", testDigestsEnd},
	} {
		all = append(all, suiteCase[StoreSetup]{c.name, func(t testing.TB, s StoreSetup) {
			lt, ok := driver.As[driver.LongTerm](s.Store)
			sw, sweeps := driver.As[driver.Sweeper](s.Store)
			if !ok || !sweeps {
				t.Log("left out: the store has no driver.LongTerm, or no driver.Sweeper")
				return
			}
			c.run(&digestBench{bench: newBench(t, s), lt: lt, sw: sw})
		}})
	}
	return all
}

// digestBench is one case on one store.
type digestBench struct {
	*bench
	lt driver.LongTerm
	sw driver.Sweeper
}

func (b *digestBench) key(consumer string, i int) driver.Key {
	return driver.Key{Consumer: consumer, Tenant: "t", Raw: fmt.Sprintf("key-%d", i)}
}

func (b *digestBench) remember(consumer string, keep time.Duration) {
	b.t.Helper()
	if err := b.lt.Remember(b.t.Context(), consumer, keep); err != nil {
		b.t.Fatalf("Remember: %v", err)
	}
}

// end makes a record whose retention is over in a moment, or is much longer where the state has none.
func (b *digestBench) end(k driver.Key, f driver.Finish) driver.Grant {
	b.t.Helper()
	g := mustClaim(b.t, b.Store, k)[0]
	if f.Final == 0 {
		return g
	}
	f.Hold, f.Keep = g.Hold, short
	mustFinish(b.t, b.Store, driver.Applied, f)
	return g
}

// sweep sweeps until there is no more, some at a time.
func (b *digestBench) sweepAll(limit int) (sum driver.Swept) {
	b.t.Helper()
	for more := true; more; {
		var s driver.Swept
		var err error
		if s, more, err = b.sw.Sweep(b.t.Context(), 0, limit); err != nil {
			b.t.Fatalf("Sweep: %v", err)
		}
		if did := s.Purged + s.Stranded + s.Announced; limit > 0 && did > limit || more && did == 0 {
			b.t.Fatalf("Sweep with limit %d answered %+v, more %v", limit, s, more)
		}
		sum.Purged += s.Purged
		sum.Announced += s.Announced
	}
	return sum
}

func (b *digestBench) wantSwept(purged, announced int) {
	b.t.Helper()
	if s := b.sweepAll(0); s.Purged != purged || s.Announced != announced {
		b.t.Fatalf("swept %d and announced %d, wanted %d and %d", s.Purged, s.Announced, purged, announced)
	}
}

// elapse lets the overlap pass; false where the store's clock cannot be moved.
func (b *digestBench) elapse() bool {
	b.t.Helper()
	const d = driver.DigestOverlap + time.Minute
	switch {
	case b.Advance != nil:
		b.Advance(d)
		b.now = b.now.Add(d)
	case b.Announced != nil:
		b.Announced(b.t, d)
	default:
		b.t.Log("ends here: the store's clock cannot be moved (StoreSetup.Announced)")
		return false
	}
	return true
}

func (b *digestBench) look(k ...driver.Key) []driver.Digest {
	b.t.Helper()
	d, err := b.lt.Remembered(b.t.Context(), k...)
	if err != nil || len(d) != len(k) {
		b.t.Fatalf("Remembered answered %d of %d, %v", len(d), len(k), err)
	}
	return d
}

// scan is what ScanDigests calls; nil where the store has none.
func (b *digestBench) scan(recent bool) map[driver.DigestHash]time.Time {
	b.t.Helper()
	s, ok := driver.As[driver.DigestScanner](b.Store)
	if !ok {
		return nil
	}
	all := map[driver.DigestHash]time.Time{}
	err := s.ScanDigests(b.t.Context(), recent, func(h driver.DigestHash, until time.Time) error {
		all[h] = until
		return nil
	})
	if err != nil {
		b.t.Fatalf("ScanDigests: %v", err)
	}
	return all
}

// testFM41Digests: whatever took effect, or may have, leaves a digest, and nothing else does.
func testFM41Digests(b *digestBench) {
	b.remember("digested", remembered)
	type row struct {
		f     driver.Finish
		state driver.State // of the digest; Absent: none
		stays bool
	}
	rows := []row{
		{f: driver.Finish{Final: driver.Complete, Result: []byte("r")}, state: driver.Completed},
		{f: driver.Finish{Final: driver.Fail, Ran: driver.NotApplied}, state: driver.FailedState},
		{f: driver.Finish{Final: driver.Release, Ran: driver.MaybeApplied}, state: driver.Released},
		{f: driver.Finish{Final: driver.Release, Ran: driver.NotApplied}},
		{f: driver.Finish{Final: driver.Release, Ran: driver.Unstarted}},
		{f: driver.Finish{Final: driver.Park}, stays: true},
		{stays: true}, // in progress
	}
	keys := make([]driver.Key, len(rows))
	for i, r := range rows {
		keys[i] = b.key("digested", i)
		b.end(keys[i], r.f)
	}
	b.end(b.key("others", 0), driver.Finish{Final: driver.Complete})
	b.wait()
	b.wantSwept(3, 3)
	b.wantSwept(0, 0)
	for i, d := range b.look(keys...) {
		if d.Found {
			b.t.Errorf("row %d: found although its record is still there", i)
		}
	}
	if !b.elapse() {
		return
	}
	b.wantSwept(3, 0)
	for i, d := range b.look(append(keys, b.key("others", 0), keys[0])...) {
		want := driver.Absent
		if i < len(rows) {
			want = rows[i].state
		} else if i == len(rows)+1 {
			want = driver.Completed
		}
		switch {
		case d.Found != (want != driver.Absent) || d.State != want:
			b.t.Errorf("row %d: digest %+v, wanted state %v", i, d, want)
		case d.Found && !digestTimes(d):
			b.t.Errorf("row %d: ended at %v and kept until %v, wanted %v in between", i, d.At, d.Until, remembered)
		case d.Found && b.Advance == nil && time.Since(d.At) > 2*time.Hour:
			b.t.Errorf("row %d: ended at %v, which is not to the hour", i, d.At)
		}
	}
	if st, err := b.lt.DigestStats(b.t.Context()); err != nil || st.Keep["digested"] != remembered || len(st.Keep) != 1 {
		b.t.Errorf("DigestStats answered %+v, %v", st, err)
	}
	for i, r := range rows {
		g := mustClaimAny(b.t, b.Store, keys[i])
		if fresh := g.Verdict == driver.Acquired; fresh == r.stays {
			b.t.Errorf("row %d: claimed again %v after the sweep", i, g.Verdict)
		}
	}
}

// digestTimes reports that a digest is kept for as long as was asked for: its times are to the hour and to the day, and the
// overlap is between them.
func digestTimes(d driver.Digest) bool {
	kept := d.Until.Sub(d.At)
	return kept >= remembered && kept <= remembered+27*time.Hour
}

// mustClaimAny claims one key and takes any verdict.
func mustClaimAny(t testing.TB, s driver.Store, k driver.Key) driver.Grant {
	t.Helper()
	g, err := s.Claim(t.Context(), driver.Claim{Key: k, Nonce: newNonce(), Lease: long})
	if err != nil || len(g) != 1 || g[0].Err != nil {
		t.Fatalf("claim of %v: %+v, %v", k, g, err)
	}
	return g[0]
}

// testFM71Announced: whoever reads the announcements more often than the overlap knows of every digest before the record
// goes; and a whole scan finds what is on its way out and what is gone.
func testFM71Announced(b *digestBench) {
	if b.scan(true) == nil {
		b.t.Log("left out: the store has no driver.DigestScanner")
		return
	}
	b.remember("digested", remembered)
	var want [2]map[driver.DigestHash]bool
	for round := range want {
		want[round] = map[driver.DigestHash]bool{}
		for i := range 3 {
			k := b.key("digested", 10*round+i)
			b.end(k, driver.Finish{Final: driver.Complete})
			want[round][k.Digest()] = true
		}
		b.wait()
		b.sweepAll(0) // announces these, and lets those of the round before go
		recent := b.scan(true)
		for h := range want[round] {
			if _, ok := recent[h]; !ok {
				b.t.Errorf("round %d: %x is not among the recent digests", round, h)
			}
		}
		if len(recent) != 3 {
			b.t.Errorf("round %d: %d digests are recent, wanted 3", round, len(recent))
		}
		if !b.elapse() {
			return
		}
	}
	all := b.scan(false)
	if len(all) != 6 {
		b.t.Errorf("%d digests in all, wanted 6", len(all))
	}
	for h, until := range all {
		if !want[0][h] && !want[1][h] {
			b.t.Errorf("%x is nobody's", h)
		}
		if d := time.Until(until); b.Advance == nil && (d < remembered-time.Hour || d > remembered+25*time.Hour) {
			b.t.Errorf("%x is kept for %v", h, d)
		}
	}
	b.wantSwept(3, 0)
	if n := len(b.scan(true)); n != 0 {
		b.t.Errorf("%d digests are recent after their records went", n)
	}
	if n := len(b.scan(false)); n != 6 {
		b.t.Errorf("%d digests in all after their records went, wanted 6", n)
	}
}

// testFM71NoHole claims keys while their records go: who is granted a key anew finds its digest, every time.
func testFM71NoHole(b *digestBench) {
	const n = 40
	b.remember("digested", remembered)
	for i := range n {
		b.end(b.key("digested", i), driver.Finish{Final: driver.Complete})
	}
	b.wait()
	b.wantSwept(0, n)
	if !b.elapse() {
		return
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				g, err := b.Store.Claim(ctx, driver.Claim{Key: b.key("digested", i), Nonce: newNonce(), Lease: long})
				if err != nil || g[0].Err != nil || g[0].Verdict != driver.Acquired {
					continue
				}
				if d, err := b.lt.Remembered(ctx, b.key("digested", i)); err != nil || !d[0].Found {
					b.bad.add("key %d was granted anew, and its digest is not there: %+v, %v", i, d, err)
				}
				return
			}
			b.bad.add("key %d was not granted", i)
		})
	}
	if s := b.sweepAll(3); s.Purged != n {
		b.t.Errorf("%d records went, wanted %d", s.Purged, n)
	}
	wg.Wait()
	b.bad.report(b.t)
}

// testDigestReopened: a record that a person reopens between the announcement and its time stays.
func testDigestReopened(b *digestBench) {
	op, ok := driver.As[driver.Operator](b.Store)
	if !ok {
		b.t.Log("left out: the store has no driver.Operator")
		return
	}
	b.remember("digested", remembered)
	k := b.key("digested", 1)
	g := b.end(k, driver.Finish{Final: driver.Fail})
	b.wait()
	b.wantSwept(0, 1)
	_, o, err := op.Operate(b.t.Context(), driver.Operation{
		Kind: driver.Redrive, Key: k, Token: g.Hold.Token, Generation: g.Hold.Generation, Keep: keep,
	})
	if err != nil || o != driver.Applied {
		b.t.Fatalf("redrive: %v, %v", o, err)
	}
	if !b.elapse() {
		return
	}
	b.wantSwept(0, 0)
	if d := b.look(k)[0]; d.Found {
		b.t.Errorf("the key of a reopened record is remembered: %+v", d)
	}
	again := mustClaimAny(b.t, b.Store, k)
	if again.Verdict != driver.Acquired || again.Hold.Generation != g.Hold.Generation+1 {
		b.t.Errorf("the reopened record answers %+v", again)
	}
}

// testDigestBounds: announcing counts towards the limit of a sweep as removing does.
func testDigestBounds(b *digestBench) {
	b.remember("digested", remembered)
	for i := range 10 {
		b.end(b.key("digested", i), driver.Finish{Final: driver.Complete})
	}
	b.wait()
	if s, more, err := b.sw.Sweep(b.t.Context(), 0, 4); err != nil || s.Announced != 4 || s.Purged != 0 || !more {
		b.t.Errorf("Sweep with limit 4 answered %+v, more %v, %v", s, more, err)
	}
	if s := b.sweepAll(4); s.Announced != 6 || s.Purged != 0 {
		b.t.Errorf("the sweeps after it answered %+v", s)
	}
	if !b.elapse() {
		return
	}
	if s := b.sweepAll(4); s.Purged != 10 {
		b.t.Errorf("the sweeps after the overlap answered %+v", s)
	}
}

// testDigestRegistrations: the longest keep counts, and a keep of 0 ends it.
func testDigestRegistrations(b *digestBench) {
	for _, d := range []time.Duration{48 * time.Hour, remembered, 24 * time.Hour} {
		b.remember("digested", d)
	}
	b.remember("others", time.Hour)
	b.remember("others", 0)
	b.remember("nobody", 0)
	st, err := b.lt.DigestStats(b.t.Context())
	if err != nil || len(st.Keep) != 1 || st.Keep["digested"] != remembered {
		b.t.Errorf("DigestStats answered %+v, %v", st, err)
	}
	b.end(b.key("others", 1), driver.Finish{Final: driver.Complete})
	b.wait()
	b.wantSwept(1, 0)
}

// testDigestsEnd: a digest that is over is not found, and goes.
func testDigestsEnd(b *digestBench) {
	if b.Advance == nil {
		b.t.Log("left out: the store's clock cannot be moved")
		return
	}
	b.remember("digested", 36*time.Hour)
	for i := range 5 {
		b.end(b.key("digested", i), driver.Finish{Final: driver.Complete})
	}
	b.wait()
	b.wantSwept(0, 5)
	b.elapse()
	b.wantSwept(5, 0)
	b.Advance(35 * time.Hour)
	if d := b.look(b.key("digested", 1))[0]; !d.Found {
		b.t.Errorf("not remembered any more: %+v", d)
	}
	b.Advance(26 * time.Hour) // to the day
	for _, d := range b.look(b.key("digested", 1), b.key("digested", 2)) {
		if d.Found {
			b.t.Errorf("remembered for too long: %+v", d)
		}
	}
	b.sweepAll(0)
	if n := len(b.scan(false)); n != 0 {
		b.t.Errorf("%d digests are there after their end", n)
	}
}
