package dynamodb

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
)

// TestFM42_DuplicatesLeaveLeasesOfClocksAhead: a holder's clock is ahead within the skew. Each duplicate costs one failed
// write, leaves the record alone, and waits until the lease may have ended by its own clock.
func TestFM42_DuplicatesLeaveLeasesOfClocksAhead(t *testing.T) {
	r := newFixture(t, Options{})
	ahead := r.again(t, func(o *Options) { o.Clock = func() time.Time { return r.clock.Now().Add(9 * time.Second) } })
	claimOne(t, ahead, claimOf("a"), driver.Acquired)
	before := r.item(t, "a")
	for range 3 {
		if g := claimOne(t, r.Store, claimOf("a"), driver.Busy); g.Wait != time.Minute+9*time.Second+r.o.skew() {
			t.Errorf("the wait is %v", g.Wait)
		}
	}
	if after := r.item(t, "a"); !same(after["rev"], before["rev"]) {
		t.Errorf("duplicates changed the record from revision %v to %v", before["rev"], after["rev"])
	}
}

// TestFM42_ClockSkew claims with a clock that is ahead and one that is behind. Within MaxClockSkew, or with strict
// observation at any difference, no live lease is taken over.
func TestFM42_ClockSkew(t *testing.T) {
	at := func(clock *awstest.Clock) func(o *Options) { return func(o *Options) { o.Clock = clock.Now } }
	r := newFixture(t, Options{})
	ahead := awstest.Frozen(midday.Add(9 * time.Second))
	other := r.again(t, at(ahead))
	g := claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	ahead.Advance(time.Minute) // 9 s past the end of the lease by this clock, and exactly at its end by the other
	claimOne(t, other, claimOf("a"), driver.Busy)
	ahead.Advance(2 * time.Second)
	if got := claimOne(t, other, claimOf("a"), driver.Acquired); !got.Unknown || got.Hold.Token <= g.Hold.Token {
		t.Errorf("the takeover is %+v after token %d", got, g.Hold.Token)
	}
	finishOne(t, r.Store, completion(g), driver.Lost) // fenced, although its own clock says that it has time
	// A record from a clock that was far ahead, and stepped back: the lease lasts no longer than it was asked for.
	claimOne(t, other, claimOf("b"), driver.Acquired)
	if b := claimOne(t, r.Store, claimOf("b"), driver.Busy); b.Wait > time.Minute+r.o.skew() {
		t.Errorf("the lease of a clock that is ahead lasts for %v", b.Wait)
	}
	if v := r.item(t, "b")["lease_until"]; !same(v, number(r.clock.Now().Add(time.Minute).UnixMicro())) {
		t.Errorf("lease_until is %v, wanted now and the lease", v)
	}
}

// TestFM42_Observe compares no clocks: only the time during which a record was seen unchanged counts.
func TestFM42_Observe(t *testing.T) {
	r := newFixture(t, Options{Observe: true})
	mine := awstest.Frozen(midday.Add(1000 * time.Hour))
	other := r.again(t, func(o *Options) { o.Clock = mine.Now })
	g := claimOne(t, r.Store, claimOf("a"), driver.Acquired)
	for range 5 { // it lives: every extension is seen
		claimOne(t, other, claimOf("a"), driver.Busy)
		mine.Advance(50 * time.Second)
		if o, err := r.Extend(t.Context(), time.Minute, g.Hold); err != nil || o[0] != driver.Applied {
			t.Fatalf("extend returned %v, %v", o, err)
		}
	}
	claimOne(t, other, claimOf("a"), driver.Busy)
	mine.Advance(59 * time.Second)
	if b := claimOne(t, other, claimOf("a"), driver.Busy); b.Wait != time.Second {
		t.Errorf("the wait is %v, wanted what is left of the lease as observed", b.Wait)
	}
	mine.Advance(2 * time.Second)
	if got := claimOne(t, other, claimOf("a"), driver.Acquired); !got.Unknown {
		t.Error("a takeover does not mark the outcome as unknown")
	}
}
