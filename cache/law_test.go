package cache_test

import (
	"errors"
	"testing"
	"time"

	"github.com/semel-dev/semel/cache"
	"github.com/semel-dev/semel/driver"
)

// TestDuplicatesHit: redeliveries of keys that this process completed hit, and also those of keys that another process completed,
// after one verdict of the store.
func TestDuplicatesHit(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10})
	r.done("a", "m1")
	r.hit("a", "m1")
	r.hit("a", "")
	r.miss(driver.Replay, "a", "m2")
	r.hit("a", "m2")
	r.hit("a", "m1")

	g := r.claim(r.other, "b", "m3")
	r.finish(r.other, driver.Finish{Hold: g.Hold, Final: driver.Complete, Result: []byte("r")})
	r.miss(driver.Replay, "b", "m3")
	r.hit("b", "m3")
	s := as[driver.Cached](r.cache).CacheStats()
	if s.Hits != 5 || s.Misses != 3 || s.Entries != 2 || s.Size != 10 || s.Bytes == 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestRepeatedClaims: a claim that is repeated with its nonce renews the lease, and the record keeps the delivery and the body of the
// first one.
func TestRepeatedClaims(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10})
	nonce := func(body driver.BodyDigest) func(*driver.Claim) {
		return func(c *driver.Claim) { c.Nonce, c.BodyDigest = driver.Nonce{7}, body }
	}
	body := func(b driver.BodyDigest) func(*driver.Claim) { return func(c *driver.Claim) { c.BodyDigest = b } }
	r.claim(r.cache, "a", "m1", nonce(1))
	g := r.claim(r.cache, "a", "m2", nonce(0))
	r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete})
	r.hit("a", "m1", body(1))
	r.miss(driver.Replay, "a", "m2", body(1))
	r.hit("a", "m2", body(1))
}

func TestStrangersHitWithTheOption(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10, Strangers: true})
	r.done("a", "m1")
	r.hit("a", "m2")
	r.miss(driver.Replay, "a", driver.RedriveID("x"))
	r.miss(driver.Replay, "a", driver.RedriveID("x")) // nor when it is known
}

// TestRerunsDoNotHit: another process runs a completed key again. Its message is not acked from memory, whatever
// the cache knows, and the old message's copies stay duplicates.
func TestRerunsDoNotHit(t *testing.T) {
	for _, strangers := range []bool{false, true} {
		r := newFixture(t, cache.Options{Size: 10, Strangers: strangers})
		h := r.done("a", "m1")
		rerun := driver.Operation{Kind: driver.Redrive, Key: h.Key, NewGeneration: true, Keep: keep}
		if _, o, err := r.other.Operate(t.Context(), rerun); o != driver.Applied || err != nil {
			t.Fatal(o, err)
		}
		before := r.behind.claims
		if g := r.claim(r.cache, "a", "m1"); g.Verdict != driver.Replay || r.behind.claims != before {
			t.Errorf("a copy of the message that was done: %v", g.Verdict)
		}
		g := r.miss(driver.Acquired, "a", driver.RedriveID("dead letter"))
		if g.Hold.Generation != 2 || g.Hold.Epoch != 1 {
			t.Errorf("the rerun runs as %+v", g.Hold)
		}
		r.miss(driver.Busy, "a", "m1") // the grant removed the old entry
		r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete})
		// The person was interrupted and did it all again: one message, twice, for two generations.
		if _, o, err := r.other.Operate(t.Context(), rerun); o != driver.Applied || err != nil {
			t.Fatal(o, err)
		}
		r.miss(driver.Acquired, "a", driver.RedriveID("dead letter"))
	}
}

func TestEntriesAge(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10, MaxAge: time.Minute})
	r.done("a", "m1")
	r.clock.advance(59 * time.Second)
	r.hit("a", "m1")
	r.clock.advance(time.Second)
	r.miss(driver.Replay, "a", "m1") // the hit did not make it younger
	r.clock.advance(59 * time.Second)
	r.hit("a", "m1")
	r.clock.advance(time.Second)
	r.miss(driver.Replay, "a", "m1")
}

// TestEntriesEndWithTheRetention: a record that may be purged does not hit, and another process's purge is bounded by MaxAge,
// this one's is noticed.
func TestEntriesEndWithTheRetention(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10, MaxAge: 3 * keep})
	r.done("a", "m1")
	r.clock.advance(keep - time.Second)
	r.hit("a", "m1")
	r.miss(driver.Replay, "a", "m2") // a grant without a retention does not extend the known one
	r.clock.advance(2 * time.Second)
	if _, _, err := r.other.Sweep(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	r.miss(driver.Acquired, "a", "m1")

	g := r.claim(r.other, "b", "m3")
	r.finish(r.other, driver.Finish{Hold: g.Hold, Final: driver.Complete})
	r.miss(driver.Replay, "b", "m3")
	r.clock.advance(keep + time.Second)
	if s, _, err := as[driver.Sweeper](r.cache).Sweep(t.Context(), 0, 0); err != nil || s.Purged == 0 {
		t.Fatal(s, err)
	}
	r.miss(driver.Acquired, "b", "m3")
}

func TestOtherPayloadsAndVersionsAsk(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10, Strangers: true})
	h := r.done("a", "m1")
	r.miss(driver.Mismatch, "a", "m1", payload(fp2))
	r.miss(driver.Replay, "a", "m1", payload(""))
	r.hit("a", "m1", payload(""))
	r.miss(driver.Replay, "a", "m1", func(c *driver.Claim) { c.Nonce = h.Nonce }) // its own attempt lost a response

	r.done("v", "m2", version(2))
	r.hit("v", "m2", version(2))
	r.miss(driver.Stale, "v", "m3", version(1))
	r.hit("v", "m3", version(1))
	g := r.miss(driver.Acquired, "v", "m4", version(3))
	r.miss(driver.Stale, "v", "m3", version(1))
	r.miss(driver.Replay, "v", "m2", version(2)) // with the hold of the newer run
	r.miss(driver.Replay, "v", "m2", version(2)) // so it is not kept
	r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete})
	r.hit("v", "m4", version(3))
	r.miss(driver.Stale, "v", "m2", version(2))
}

// TestFM51_AnotherBodyIsNotKept: whether it is a replay or a mismatch depends on what the next claim asks for.
func TestFM51_AnotherBodyIsNotKept(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10, Strangers: true})
	with := func(body driver.BodyDigest, whole bool) func(*driver.Claim) {
		return func(c *driver.Claim) { c.Fingerprint, c.BodyDigest, c.WholeBody = "", body, whole }
	}
	g := r.miss(driver.Acquired, "a", "m1", with(1, false))
	r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete})
	r.hit("a", "m1", with(1, false))
	if g := r.miss(driver.Replay, "a", "m2", with(2, false)); !g.OtherPayload {
		t.Errorf("another body is not noticed: %+v", g)
	}
	r.miss(driver.Mismatch, "a", "m2", with(2, true))
}

// TestFM39_OnlyCompletionsAreKept: failures, releases, parked runs, unknown and lost writes are decided by the store.
func TestFM39_OnlyCompletionsAreKept(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10, Strangers: true})
	for _, c := range []struct {
		final driver.Final
		want  driver.Verdict
	}{{driver.Fail, driver.Failed}, {driver.Park, driver.Parked}, {driver.Release, driver.Acquired}} {
		g := r.claim(r.cache, c.final.String(), "m1")
		r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: c.final})
		r.miss(c.want, c.final.String(), "m1")
	}
	g := r.claim(r.cache, "unknown", "m1")
	r.behind.unknown = true
	if o := r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete}); o != driver.Unknown {
		t.Fatal(o)
	}
	r.behind.unknown = false
	r.miss(driver.Replay, "unknown", "m1")

	g = r.claim(r.cache, "recovered", "m1")
	r.finish(r.other, driver.Finish{Hold: g.Hold, Final: driver.Park})
	if o := r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete}); o != driver.Recovered {
		t.Fatal(o)
	}
	r.miss(driver.Replay, "recovered", "m1") // with the doubt in it, that its dead letter is closed by

	g = r.claim(r.cache, "lost", "m1")
	r.clock.advance(2 * time.Minute)
	r.claim(r.other, "lost", "m1")
	if o := r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete}); o != driver.Lost {
		t.Fatal(o)
	}
	r.miss(driver.Busy, "lost", "m1")

	late := r.claim(r.cache, "twice", "m1")
	r.clock.advance(2 * time.Minute)
	g = r.claim(r.cache, "twice", "m1")
	if o := r.finish(r.cache, driver.Finish{Hold: late.Hold, Final: driver.Complete}); o != driver.Lost {
		t.Fatal(o)
	}
	r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete})
	r.hit("twice", "m1") // the loser's outcome does not affect the other
}

// TestOperatorsAreNoticed: operations by this process count at once, also against calls in flight.
func TestOperatorsAreNoticed(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10})
	op := as[driver.Operator](r.cache)
	h := r.done("a", "m1")
	rerun := driver.Operation{Kind: driver.Redrive, Key: h.Key, NewGeneration: true, Keep: keep}
	operate := func() {
		if _, o, err := op.Operate(t.Context(), rerun); o != driver.Applied || err != nil {
			t.Fatal(o, err)
		}
	}
	operate()
	g := r.miss(driver.Acquired, "a", "m1")
	r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete})
	r.clock.advance(2 * time.Minute) // nothing is cached

	r.behind.during = operate
	r.miss(driver.Replay, "a", "m1") // decided before, returned after
	g = r.miss(driver.Acquired, "a", "m1")
	r.behind.during = operate
	r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete})
	r.miss(driver.Acquired, "a", "m1")
}

// TestOldGrantsAreNotKept: a grant that was decided before a run that this process knows, or has seen end, is not kept.
func TestOldGrantsAreNotKept(t *testing.T) {
	for _, ends := range []bool{false, true} {
		r := newFixture(t, cache.Options{Size: 10})
		g := r.claim(r.other, "a", "m1")
		r.finish(r.other, driver.Finish{Hold: g.Hold, Final: driver.Complete, Result: []byte("old")})
		rerun := driver.Operation{Kind: driver.Redrive, Key: g.Hold.Key, NewGeneration: true, Keep: keep}
		r.behind.during = func() {
			if _, o, err := r.other.Operate(t.Context(), rerun); o != driver.Applied || err != nil {
				t.Fatal(o, err)
			}
			g := r.claim(r.cache, "a", "m2")
			if ends {
				r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete, Result: []byte("new")})
			}
		}
		if g := r.claim(r.cache, "a", "m1"); string(g.Result) != "old" {
			t.Fatalf("%+v", g)
		}
		if ends {
			r.hit("a", "m2")
		} else {
			r.miss(driver.Busy, "a", "m1")
		}
	}
}

// TestOtherVerdictsSpeakAgainst: what this process hears of a key counts more than what it knew.
func TestOtherVerdictsSpeakAgainst(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10})
	h := r.done("a", "m1")
	rerun := driver.Operation{Kind: driver.Redrive, Key: h.Key, NewGeneration: true, Keep: keep}
	if _, o, err := r.other.Operate(t.Context(), rerun); o != driver.Applied || err != nil {
		t.Fatal(o, err)
	}
	r.claim(r.other, "a", "m2")
	r.miss(driver.Busy, "a", "m3")
	r.miss(driver.Busy, "a", "m1")
}

// TestOutagesAreNotHidden: while the store does not respond, claims reach it, and fail.
func TestOutagesAreNotHidden(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10})
	r.done("a", "m1")
	gone := errors.New("connection refused")
	r.behind.fail = gone
	r.hit("a", "m1") // the outage is not known yet
	for _, raw := range []string{"new", "a"} {
		if g, err := r.cache.Claim(t.Context(), r.ask(raw, "m1")); !errors.Is(err, gone) {
			t.Errorf("claim of %s in an outage: %v, %v", raw, g, err)
		}
	}
	if g, err := r.cache.Claim(t.Context(), r.ask("a", "m1"), r.ask("new", "m2")); !errors.Is(err, gone) {
		t.Errorf("two claims in an outage: %v, %v", g, err)
	}
	r.behind.fail = nil
	r.miss(driver.Replay, "a", "m1")
	r.hit("a", "m1")
}

// TestBatchesArePositional: hits and misses of one call, as claims and in a transaction.
func TestBatchesArePositional(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10})
	r.done("a", "m1")
	r.done("b", "m2")
	verdicts := func(g []driver.Grant) (v []driver.Verdict) {
		for i := range g {
			v = append(v, g[i].Verdict)
		}
		return v
	}
	is := func(what string, g []driver.Grant, claims int, want ...driver.Verdict) {
		t.Helper()
		got := verdicts(g)
		if len(got) != len(want) {
			t.Fatalf("%s: %v, wanted %v", what, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, wanted %v", what, got, want)
			}
		}
		if r.behind.claims != claims {
			t.Errorf("%s: %d claims reached the store, wanted %d", what, r.behind.claims, claims)
		}
	}
	r.behind.claims = 0
	g, err := r.cache.Claim(t.Context(), r.ask("x", "m3"), r.ask("a", "m1"), r.ask("y", "m4"), r.ask("b", "m2"))
	if err != nil {
		t.Fatal(err)
	}
	is("claims", g, 2, driver.Acquired, driver.Replay, driver.Acquired, driver.Replay)
	if string(g[1].Result) != "a" || g[2].Hold.Key.Raw != "y" || string(g[3].Result) != "b" {
		t.Errorf("grants are not in the order of their claims: %+v", g)
	}

	tr := as[driver.Transactor](r.cache)
	tx, g, err := tr.Begin(t.Context(), r.ask("a", "m1"), r.ask("b", "m2"))
	if tx != nil || err != nil {
		t.Fatalf("begin of what is done: %v, %v", tx, err)
	}
	is("begin of what is done", g, 2, driver.Replay, driver.Replay)
	tx, g, err = tr.Begin(t.Context(), r.ask("b", "m2"), r.ask("z", "m5"))
	if err != nil {
		t.Fatal(err)
	}
	is("begin", g, 3, driver.Replay, driver.Acquired)
	z := driver.Finish{Hold: g[1].Hold, Final: driver.Complete, Keep: keep}
	if err := tx.Commit(t.Context(), driver.Work{Finish: z}); err != nil {
		t.Fatal(err)
	}
	r.hit("z", "m5")
	out, err := as[driver.Committer](r.cache).Commit(t.Context(), driver.Work{Finish: driver.Finish{
		Hold: r.claim(r.cache, "w", "m6").Hold, Final: driver.Complete, Keep: keep,
	}})
	if err != nil || out[0] != driver.Applied {
		t.Fatal(out, err)
	}
	r.hit("w", "m6")
}

// TestFM44_NothingSurvivesAnotherHistory: the server failed over to a standby that did not have what was completed last.
func TestFM44_NothingSurvivesAnotherHistory(t *testing.T) {
	r := newFixture(t, cache.Options{Size: 10})
	failOver := func() { r.behind.history++ }
	r.done("k", "1")
	r.hit("k", "1")
	failOver()
	if st := as[driver.Cached](r.cache).CacheStats(); st.Entries != 0 {
		t.Errorf("%d entries are left", st.Entries)
	}
	r.miss(driver.Replay, "k", "1")
	r.hit("k", "1") // verdict of the new server

	r.behind.during = failOver // the old server responds during the failover
	r.miss(driver.Replay, "k", "2")
	r.miss(driver.Replay, "k", "2")
	r.hit("k", "2")

	g := r.claim(r.cache, "l", "1")
	r.behind.during = failOver
	if o := r.finish(r.cache, driver.Finish{Hold: g.Hold, Final: driver.Complete}); o != driver.Applied {
		t.Fatal(o)
	}
	r.miss(driver.Replay, "l", "1")
}
