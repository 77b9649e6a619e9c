package driver

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// The expectations here are written by hand from protocol section 2; nothing in them is computed by the table.

var (
	t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	key   = Key{Consumer: "orders", Tenant: "acme", Raw: "order-1|charge"}
	mine  = Nonce{1}
	other = Nonce{2}
)

const (
	lease = time.Minute
	drawn = 100
	fpA   = Fingerprint("rcp1a")
	fpB   = Fingerprint("rcp1b")
	fpOld = Fingerprint("rcp0b")
)

// inState is a record in a state, as it stands one second after it was claimed with token 7 by mine.
func inState(s State, tweak ...func(*Record)) Record {
	r := Record{
		Key: key, State: s, Generation: 1, Token: 7, Nonce: mine, Lease: lease, LeaseUntil: t0.Add(lease),
		Attempt: 1, Fingerprint: fpA, CreatedAt: t0, UpdatedAt: t0, Deliveries: []string{"d-1"},
	}
	switch s {
	case Absent:
		return Record{}
	case Released:
		r.Spent, r.RetryAt, r.RetainUntil = true, t0, t0.Add(time.Hour)
	case Completed:
		r.Result, r.CompletedAt, r.RetainUntil = []byte("result"), t0, t0.Add(time.Hour)
	case FailedState:
		r.Failures, r.Reason, r.RetainUntil = 1, "it failed", t0.Add(time.Hour)
	case Uncertain:
		r.Unknown, r.Uncertainty, r.Reason = true, 1, "outcome unknown"
	}
	for _, f := range tweak {
		f(&r)
	}
	return r
}

func hold(token uint64, n Nonce) Hold { return Hold{Key: key, Generation: 1, Token: token, Nonce: n} }

func claim(n Nonce, tweak ...func(*Claim)) Claim {
	c := Claim{Key: key, Nonce: n, Fingerprint: fpA, DeliveryID: "d-2", Lease: lease}
	for _, f := range tweak {
		f(&c)
	}
	return c
}

func TestDecideClaim(t *testing.T) {
	under := func(p Takeover) func(*Record) { return func(r *Record) { r.Takeover = p } }
	by := func(p Takeover) func(*Claim) { return func(c *Claim) { c.Takeover = p } }
	notDue := func(r *Record) { r.RetryAt = t0.Add(time.Hour) }
	live, expired := t0.Add(10*time.Second), t0.Add(2*time.Minute)
	for _, x := range []struct {
		name    string
		r       Record
		c       Claim
		now     time.Time
		verdict Verdict
		state   State
		changed bool
		check   func(r Record, g Grant) bool
	}{
		{"absent", inState(Absent), claim(other), live, Acquired, InProgress, true, func(r Record, g Grant) bool {
			return r.Token == drawn && r.Nonce == other && r.Generation == 1 && r.Attempt == 1 && r.Fingerprint == fpA &&
				r.LeaseUntil.Equal(live.Add(lease)) && r.CreatedAt.Equal(live) && !g.Unknown && !g.Redelivery && g.Hold == r.Hold()
		}},
		{"absent under once", inState(Absent), claim(other, by(Once)), live, Acquired, InProgress, true, func(r Record, g Grant) bool {
			return r.Takeover == Once && g.Takeover == Once
		}},
		{"released, due", inState(Released), claim(other), live, Acquired, InProgress, true, func(r Record, g Grant) bool {
			return r.Token == drawn && r.Attempt == 2 && g.Attempt == 2 && !r.Spent && r.RetainUntil.IsZero() && r.Reason == ""
		}},
		{"released, not due", inState(Released, notDue), claim(other), live, Busy, Released, false, func(_ Record, g Grant) bool {
			return g.Wait == time.Hour-10*time.Second
		}},
		{"released, its own spent nonce", inState(Released), claim(mine), live, Busy, Released, false, func(_ Record, g Grant) bool {
			return g.Wait == 0
		}},
		{"released, its own spent nonce, not due", inState(Released, notDue), claim(mine), live, Busy, Released, false, func(_ Record, g Grant) bool {
			return g.Wait == time.Hour-10*time.Second
		}},
		{"released, policy gets stricter", inState(Released), claim(other, by(Once)), live, Acquired, InProgress, true, func(r Record, _ Grant) bool {
			return r.Takeover == Once
		}},
		{"FM82 released, policy stays strict", inState(Released, under(Once)), claim(other), live, Acquired, InProgress, true, func(r Record, _ Grant) bool {
			return r.Takeover == Once
		}},
		{"FM31 own nonce", inState(InProgress), claim(mine), live, Acquired, InProgress, true, func(r Record, g Grant) bool {
			return r.Token == 7 && r.Attempt == 1 && r.LeaseUntil.Equal(live.Add(lease)) && g.Hold == hold(7, mine)
		}},
		{"own nonce after its lease", inState(InProgress), claim(mine), expired, Acquired, InProgress, true, func(r Record, _ Grant) bool {
			return r.Token == 7 && r.Uncertainty == 0 && r.LeaseUntil.Equal(expired.Add(lease))
		}},
		{"own nonce of a takeover still knows the doubt", inState(InProgress, func(r *Record) { r.Unknown = true }), claim(mine), live, Acquired, InProgress, true, func(_ Record, g Grant) bool {
			return g.Unknown
		}},
		{"live", inState(InProgress), claim(other, by(Once)), live, Busy, InProgress, false, func(r Record, g Grant) bool {
			return g.Wait == 50*time.Second && r.Takeover == Resume && g.Hold == hold(7, mine)
		}},
		{"at the end of the lease it still holds", inState(InProgress), claim(other), t0.Add(lease), Busy, InProgress, false, func(_ Record, g Grant) bool {
			return g.Wait == 0
		}},
		{"expired", inState(InProgress), claim(other), expired, Acquired, InProgress, true, func(r Record, g Grant) bool {
			return r.Token == drawn && r.Unknown && r.Uncertainty == 1 && r.Takeovers == 1 && r.Attempt == 2 && g.Unknown && g.Takeovers == 1
		}},
		{"expired, the same delivery", inState(InProgress, func(r *Record) { r.Beat = 5 }), claim(other, func(c *Claim) { c.DeliveryID = "d-1" }), expired, Acquired, InProgress, true, func(r Record, g Grant) bool {
			return g.Redelivery && r.Beat == 0 && len(r.Deliveries) == 1
		}},
		{"expired under probe", inState(InProgress, under(Probe)), claim(other), expired, Acquired, InProgress, true, func(_ Record, g Grant) bool {
			return g.Takeover == Probe && g.Unknown
		}},
		{"expired under once", inState(InProgress, under(Once)), claim(other), expired, Parked, Uncertain, true, func(r Record, g Grant) bool {
			return r.Token == 7 && r.Nonce == mine && r.Uncertainty == 1 && r.Attempt == 1 && r.RetainUntil.IsZero() && g.Reason != ""
		}},
		{"FM82 expired, claimed by once", inState(InProgress), claim(other, by(Once)), expired, Parked, Uncertain, true, nil},
		{"FM43 lease too far ahead", inState(InProgress, func(r *Record) { r.LeaseUntil = t0.Add(3 * time.Hour) }), claim(other), live, Busy, InProgress, true, func(r Record, g Grant) bool {
			return r.LeaseUntil.Equal(live.Add(lease)) && g.Wait == lease
		}},
		{"completed", inState(Completed), claim(other), expired, Replay, Completed, false, func(_ Record, g Grant) bool {
			return string(g.Result) == "result" && g.Hold == hold(7, mine)
		}},
		{"failed", inState(FailedState), claim(other), expired, Failed, FailedState, false, func(_ Record, g Grant) bool {
			return g.Reason == "it failed" && !g.Disposed
		}},
		{"FM80 disposed", inState(FailedState, func(r *Record) { r.Disposed = true }), claim(other), expired, Failed, FailedState, false, func(_ Record, g Grant) bool {
			return g.Disposed
		}},
		{"FM77 uncertain", inState(Uncertain), claim(mine), expired, Parked, Uncertain, false, func(_ Record, g Grant) bool {
			return g.Reason == "outcome unknown" && g.Unknown
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			before := inStateCopy(x.r)
			r, g, changed := DecideClaim(x.r, x.c, x.now, drawn)
			if g.Verdict != x.verdict || r.State != x.state || changed != x.changed || x.check != nil && !x.check(r, g) {
				t.Errorf("returned %v (changed %v)\ngrant %+v\nrecord %+v", g.Verdict, changed, g, r)
			}
			if !changed && !reflect.DeepEqual(r, before) {
				t.Errorf("unchanged, but the record is %+v and was %+v", r, before)
			}
			if !reflect.DeepEqual(x.r, before) {
				t.Errorf("the record passed in became %+v", x.r)
			}
		})
	}
}

// inStateCopy copies a record with its slices.
func inStateCopy(r Record) Record {
	r.Deliveries = append([]string(nil), r.Deliveries...)
	r.Result = append([]byte(nil), r.Result...)
	return r
}

// TestFM51Fingerprints: a differing fingerprint is a mismatch in every state, whoever asks; another recipe, or none,
// is not compared.
func TestFM51Fingerprints(t *testing.T) {
	for _, s := range []State{InProgress, Released, Completed, FailedState, Uncertain} {
		for _, n := range []Nonce{mine, other} {
			c := claim(n, func(c *Claim) { c.Fingerprint = fpB })
			r, g, changed := DecideClaim(inState(s), c, t0.Add(time.Hour), drawn)
			if g.Verdict != Mismatch || changed || r.State != s || g.Result != nil && s != Completed {
				t.Errorf("%v: a differing fingerprint returned %v, changed %v", s, g.Verdict, changed)
			}
			for _, fp := range []Fingerprint{fpA, fpOld, "", "rc"} {
				c.Fingerprint = fp
				if _, g, _ := DecideClaim(inState(s), c, t0.Add(time.Hour), drawn); g.Verdict == Mismatch {
					t.Errorf("%v: fingerprint %q was called a mismatch of %q", s, fp, fpA)
				}
			}
		}
	}
	bare := inState(Completed, func(r *Record) { r.Fingerprint = "" })
	if _, g, _ := DecideClaim(bare, claim(other), t0, drawn); g.Verdict != Replay {
		t.Errorf("a record without fingerprint returned %v", g.Verdict)
	}
}

// TestTokensNeverRepeat: the token is the greater of the drawn number and the record's successor (I3).
func TestTokensNeverRepeat(t *testing.T) {
	for _, x := range []struct{ has, drawn, want uint64 }{{7, 100, 100}, {7, 8, 8}, {7, 7, 8}, {7, 3, 8}, {7, 0, 8}} {
		r, _, _ := DecideClaim(inState(Released, func(r *Record) { r.Token = x.has }), claim(other), t0, x.drawn)
		if r.Token != x.want {
			t.Errorf("after token %d with %d drawn: %d, wanted %d", x.has, x.drawn, r.Token, x.want)
		}
	}
}

func TestDeliveriesAreBounded(t *testing.T) {
	r := Record{}
	for i := range 30 {
		id := string(rune('a' + i))
		var g Grant
		r, g, _ = DecideClaim(r, Claim{Key: key, Nonce: Nonce{byte(i + 1)}, DeliveryID: id, Lease: lease}, t0, 0)
		if g.Redelivery {
			t.Errorf("delivery %q is called a redelivery", id)
		}
		if _, g, _ := DecideClaim(r, claim(other, func(c *Claim) { c.DeliveryID = id }), t0, 0); !g.Redelivery {
			t.Errorf("delivery %q again is not called a redelivery", id)
		}
		r.State, r.Spent = Released, true
	}
	if got := strings.Join(r.Deliveries, ""); len(r.Deliveries) != MaxDeliveries || got[0] != 'a' || !strings.HasSuffix(got, "~") && got[len(got)-1] != 'a'+29 {
		t.Errorf("the record keeps %q, wanted the first and the latest, %d in all", got, MaxDeliveries)
	}
}

// TestFM51_BodyDigest: the digest tells, and decides only where the body is what is compared and the record has no
// fingerprint.
func TestFM51_BodyDigest(t *testing.T) {
	a, b, newer := NewBodyDigest(1, [32]byte{1}), NewBodyDigest(1, [32]byte{2}), NewBodyDigest(2, [32]byte{2})
	if a.Differs(a) || !a.Differs(b) || a.Differs(newer) || a.Differs(0) || BodyDigest(0).Differs(a) || int64(NewBodyDigest(255, [32]byte{255})) < 0 {
		t.Errorf("%x %x %x", a, b, newer)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name     string
		fp       Fingerprint // of the record
		claim    Claim
		mismatch bool
		other    bool
	}{
		{"the same", "", Claim{BodyDigest: a, WholeBody: true, Fingerprint: "bodya"}, false, false},
		{"another", "", Claim{BodyDigest: b}, false, true},
		{"unknown", "", Claim{}, false, false},
		{"another, asked for later", "", Claim{BodyDigest: b, WholeBody: true, Fingerprint: "bodyb"}, true, true},
		{"another, and the field is what counts now", "", Claim{BodyDigest: b, Fingerprint: "json7"}, false, true},
		{"another, and the field that counts is the same", "json7", Claim{BodyDigest: b, Fingerprint: "json7"}, false, false},
		{"another, and another field counted then", "json7", Claim{BodyDigest: b, WholeBody: true, Fingerprint: "bodyb"}, false, true},
		{"another recipe of digests", "", Claim{BodyDigest: newer, WholeBody: true, Fingerprint: "bodyb"}, false, false},
	} {
		first := Claim{Key: Key{Consumer: "c", Raw: "k"}, Nonce: Nonce{1}, Lease: time.Minute, Fingerprint: c.fp, BodyDigest: a}
		r, g, _ := DecideClaim(Record{}, first, now, 1)
		r, _, _ = DecideFinish(r, Finish{Hold: g.Hold, Final: Complete, Keep: time.Hour}, now)
		c.claim.Key, c.claim.Nonce, c.claim.Lease = first.Key, Nonce{2}, time.Minute
		_, g, changed := DecideClaim(r, c.claim, now, 2)
		if changed || (g.Verdict == Mismatch) != c.mismatch || g.Verdict == Replay && g.OtherPayload != c.other {
			t.Errorf("%s: %v, other payload %v, changed %v", c.name, g.Verdict, g.OtherPayload, changed)
		}
	}
	// A retry that brings another body leaves its own: that is the one that took effect.
	r, g, _ := DecideClaim(Record{}, Claim{Nonce: Nonce{1}, Lease: time.Minute, BodyDigest: a}, now, 1)
	r, _, _ = DecideFinish(r, Finish{Hold: g.Hold, Final: Release, Ran: NotApplied}, now)
	if r, g, _ = DecideClaim(r, Claim{Nonce: Nonce{2}, Lease: time.Minute, BodyDigest: b}, now, 2); g.Verdict != Acquired || r.BodyDigest != b {
		t.Errorf("a retry with another body: %v, digest %x", g.Verdict, r.BodyDigest)
	}
	// A redriven dead letter may have been edited.
	r, _, _ = DecideFinish(r, Finish{Hold: g.Hold, Final: Fail}, now)
	r, _, _ = DecideOperate(r, Operation{Kind: Redrive, Token: r.Token, Generation: r.Generation, Keep: time.Hour}, now, 3)
	if _, g, _ = DecideClaim(r, Claim{Nonce: Nonce{3}, Lease: time.Minute, BodyDigest: a, WholeBody: true, Fingerprint: "bodya"}, now, 4); g.Verdict != Acquired {
		t.Errorf("an edited dead letter: %v", g.Verdict)
	}
}
