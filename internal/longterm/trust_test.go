package longterm

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestFilterOfASleepingMachine: a monotonic clock may stand still while the machine sleeps, and records go meanwhile.
func TestFilterOfASleepingMachine(t *testing.T) {
	var slept time.Duration
	var r *rig
	r = newRig(t, Options{Wall: func() time.Time { return r.now().Add(slept) }})
	r.finish(r.want(driver.Acquired, "done", "m").Hold, driver.Complete)
	r.ready()
	var there time.Time
	slept, there = time.Hour+driver.DigestOverlap, r.now() // the others see this time go by, the tier's clock does not
	r.gone()
	r.at.Store(there.UnixNano())
	r.want(driver.Parked, "done", "late")
	if !r.tier.stale() {
		t.Error("a filter that missed announcements is to be filled")
	}
	r.ready()
	slept = 0 // the wall clock is set back: it says nothing, and is not believed
	if r.tier.trusted(r.tier.moment()) {
		t.Error("a filter that was read in the future is believed")
	}
}

// TestFilterAndLateCommits: an announcement can be read a moment after its time, when its transaction has ended.
func TestFilterAndLateCommits(t *testing.T) {
	r := newRig(t, Options{})
	r.finish(r.want(driver.Acquired, "done", "m").Hold, driver.Complete)
	r.ready()
	r.advance(keep + time.Second)
	r.sweep() // announced now
	r.ready() // a filter that is filled by now is not to have it
	f, _ := r.tier.reset(filterLeast)
	if err := f.Fill(func(func([32]byte, time.Time)) error { return nil }); err != nil {
		t.Fatal(err)
	}
	r.tier.filled = true
	r.lt.blind = true
	r.advance(110 * time.Second) // and committed only after this read
	if err := r.tier.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.advance(driver.DigestOverlap - 109*time.Second)
	if s := r.sweep(); s.Purged != 1 {
		t.Fatalf("swept %+v", s)
	}
	r.want(driver.Parked, "done", "late")
}

// TestFM44_RegistersAgain: a server that failed over had not received the registration of the consumers.
func TestFM44_RegistersAgain(t *testing.T) {
	r := newRig(t, Options{})
	if err := r.lt.Remember(t.Context(), "c", 0); err != nil {
		t.Fatal(err)
	}
	if err := r.tier.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := r.lt.DigestStats(t.Context()); err != nil || st.Keep["c"] != keepLong {
		t.Errorf("registered are %v, %v", st.Keep, err)
	}
}
