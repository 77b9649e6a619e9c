package machine_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

func keeping(c *machine.Config) { c.KeepLast = true }

// update is version n of an entity.
func update(id string, n int64) machine.Arrival {
	a := message(id, "entity")
	a.Version = driver.IntVersion(n)
	return a
}

// noteOf answers the open claim flush, which has to be one note of version n.
func (r *rig) noteOf(n int64, answer driver.Grant) {
	r.t.Helper()
	a := r.take(machine.ActClaim)
	if len(a.Claims) != 1 || !a.Claims[0].NoteOnly || !a.Claims[0].KeepLast || a.Claims[0].Version != driver.IntVersion(n) {
		r.t.Fatalf("claims %+v, wanted a note of version %d", a.Claims, n)
	}
	r.step(machine.Event{Kind: machine.Claimed, Lane: a.Lane, Items: a.Items, Grants: []driver.Grant{answer}, Sent: r.now})
}

// acked answers the open settle flush and tells which messages were acked.
func (r *rig) acked() (ids []string) {
	r.t.Helper()
	a := r.settle(driver.Applied)
	for _, s := range a.Settlements {
		if s.Action != driver.Ack {
			r.t.Fatalf("%v was settled as %v", s.Receipt, s.Action)
		}
		ids = append(ids, s.Receipt.(string))
	}
	return ids
}

func want(t *testing.T, got []string, ids ...string) {
	t.Helper()
	if len(got) != len(ids) {
		t.Fatalf("%v, wanted %v", got, ids)
	}
	for i := range ids {
		if got[i] != ids[i] {
			t.Fatalf("%v, wanted %v", got, ids)
		}
	}
}

// runs is the first version of the entity, which runs.
func (r *rig) runs() {
	r.t.Helper()
	r.receive(update("m1", 1))
	r.claim(nil)
}

// TestNewestOfThoseThatWaitIsNoted: while one runs in the only slot, the newest of its twins is noted, those older than a
// noted one are acked, and it goes first when the run is over.
func TestNewestOfThoseThatWaitIsNoted(t *testing.T) {
	r := newRig(t, func(c *machine.Config) { keeping(c); c.Concurrency = 1 })
	r.runs()
	r.receive(update("m2", 2), update("m3", 3))
	r.noteOf(2, driver.Grant{Verdict: driver.Busy, Noted: true}) // it came first
	r.noteOf(3, driver.Grant{Verdict: driver.Busy, Noted: true})
	want(t, r.acked(), "m2")
	r.receive(update("m5", 5))
	r.noteOf(5, driver.Grant{Verdict: driver.Stale}) // somebody else has a newer one
	want(t, r.acked(), "m5")
	r.none(machine.ActClaim, "nothing is left to note")
	r.ran("entity", machine.Result{})
	r.finish(driver.Applied)
	want(t, r.acked(), "m1")
	a := r.claim(nil)
	if a.Claims[0].DeliveryID != "m3" || a.Claims[0].NoteOnly || !a.Claims[0].KeepLast {
		t.Fatalf("%s goes on, with the claim %+v", a.Claims[0].DeliveryID, a.Claims[0])
	}
}

// TestUnansweredNoteLeavesAllWaiting: nobody knows whether it was noted, so nobody is acked; the newest goes first.
func TestUnansweredNoteLeavesAllWaiting(t *testing.T) {
	r := newRig(t, keeping)
	r.runs()
	r.receive(update("m2", 2), update("m4", 4), update("m3", 3))
	r.noteOf(2, driver.Grant{Verdict: driver.Busy}) // the run was over, or its row locked
	r.noteOf(4, driver.Grant{Err: driver.ErrNotCommitted})
	r.none(machine.ActSettle, "none of them may go")
	r.ran("entity", machine.Result{})
	r.finish(driver.Applied)
	want(t, r.acked(), "m1")
	if a := r.claim(nil); len(a.Claims) != 1 || a.Claims[0].DeliveryID != "m4" {
		t.Fatalf("%s goes first", a.Claims[0].DeliveryID)
	}
}

// TestNoteWhoseRunEndedIsForgotten: its answer comes when the item asks for itself already, or is gone.
func TestNoteWhoseRunEndedIsForgotten(t *testing.T) {
	r := newRig(t, keeping)
	r.runs()
	r.receive(update("m2", 2))
	r.ran("entity", machine.Result{})
	r.finish(driver.Applied)
	want(t, r.acked(), "m1")
	r.noteOf(2, driver.Grant{Verdict: driver.Stale}) // by a newer one that is noted: its own claim finds out
	r.none(machine.ActSettle, "its own claim decides")
	if a := r.claim(nil); a.Claims[0].DeliveryID != "m2" || a.Claims[0].NoteOnly {
		t.Fatalf("claims %+v", a.Claims)
	}
	r.receive(update("m3", 3))
	r.step(machine.Event{Kind: machine.Drain})
	r.noteOf(3, driver.Grant{Verdict: driver.Busy, Noted: true})
	if a := r.settle(driver.Applied); a.Settlements[0].Action != driver.Defer {
		t.Fatalf("%+v", a.Settlements)
	}
}

// TestNewestBehindTheRunInItsGroupIsNoted: those of one group that were handed out together are not acked out of turn: the
// store tells each in its turn that it is superseded.
func TestNewestBehindTheRunInItsGroupIsNoted(t *testing.T) {
	r := newRig(t, keeping)
	var all []machine.Arrival
	for i, id := range []string{"m1", "m2", "m3"} {
		a := update(id, int64(i+1))
		a.Group = "g"
		all = append(all, a)
	}
	r.receive(all...)
	r.claim(nil)
	r.noteOf(3, driver.Grant{Verdict: driver.Busy, Noted: true})
	r.none(machine.ActSettle, "m2 is to be answered in its turn")
	r.ran("entity", machine.Result{})
	r.finish(driver.Applied)
	want(t, r.acked(), "m1")
	r.claim(func(_ string, g *driver.Grant) { g.Verdict = driver.Stale })
	want(t, r.acked(), "m2")
	if a := r.claim(nil); a.Claims[0].DeliveryID != "m3" {
		t.Fatalf("%s goes on", a.Claims[0].DeliveryID)
	}
}

// TestTooManyUpdatesKeepTheNewest: of more than can wait the oldest are given back.
func TestTooManyUpdatesKeepTheNewest(t *testing.T) {
	r := newRig(t, func(c *machine.Config) { keeping(c); c.InHand = 3 })
	r.runs()
	r.receive(update("m9", 9), update("m2", 2), update("m3", 3))
	r.receive(update("m8", 8))
	a := r.settle(driver.Applied)
	if len(a.Settlements) != 1 || a.Settlements[0].Receipt != "m2" || a.Settlements[0].Action != driver.Defer || a.Settlements[0].After < lease/2 {
		t.Fatalf("given back: %+v", a.Settlements)
	}
}

// TestParkedTwinsWaitTogether: what the oldest of an entity waits for the newer ones in hand wait for as well: one claim
// answers for all, and they come back in the order in which they were sent.
func TestParkedTwinsWaitTogether(t *testing.T) {
	r := newRig(t, func(c *machine.Config) { c.Park = time.Hour })
	var all []machine.Arrival
	for i, n := range []int64{5, 4, 7} {
		a := update([]string{"m5", "m4", "m7"}[i], n)
		a.After, a.Age = driver.IntVersion(n-1), time.Duration(10-n)*time.Second
		all = append(all, a)
	}
	r.receive(all...)
	gap := func(_ string, g *driver.Grant) { *g = driver.Grant{Verdict: driver.Busy, Gap: true} }
	r.claim(gap) // m5, the first that came
	if a := r.settle(driver.Applied); len(a.Settlements) != 2 || a.Settlements[0].Receipt != "m7" || a.Settlements[1].Receipt != "m5" || a.Settlements[0].After >= a.Settlements[1].After {
		t.Fatalf("given back: %+v", a.Settlements)
	}
	if a := r.claim(gap); a.Claims[0].DeliveryID != "m4" {
		t.Fatalf("%s goes on", a.Claims[0].DeliveryID)
	}
}
