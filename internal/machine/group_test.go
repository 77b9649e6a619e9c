package machine_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

func TestFM15_LocalDuplicateWaitsForItsLeader(t *testing.T) {
	r := newFixture(t, nil)
	same, other := message("2", "a"), message("3", "a")
	first := message("1", "a")
	first.Fingerprint, same.Fingerprint, other.Fingerprint = "r001x", "r001x", "r001y"
	r.receive(first, same, other)
	if a := r.claim(nil); len(a.Claims) != 1 {
		t.Fatalf("%d claims for one key in one process", len(a.Claims))
	}
	r.ran("a", machine.Result{})
	r.finish(driver.Applied)
	r.settle(driver.Applied)
	if a := r.settle(driver.Applied); len(a.Settlements) != 1 || a.Settlements[0].Receipt != "2" {
		t.Fatalf("settled %+v: only the duplicate with the same payload is done", a.Settlements)
	}
	r.claim(func(_ string, g *driver.Grant) { g.Verdict = driver.Mismatch })
	if s := r.settle(driver.Applied).Settlements[0]; s.Action != driver.Dead || s.DeadLetter.Kind != driver.DeadLetterMismatch {
		t.Fatalf("the duplicate with another payload was settled with %+v", s)
	}
}

func TestFM15_LocalDuplicateIsClaimedWhenItsLeaderFailed(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"), message("2", "a"))
	r.claim(nil)
	r.ran("a", machine.Result{Class: machine.Failed, Err: errBoom})
	r.finish(driver.Applied)
	if s := r.settle(driver.Applied).Settlements[0]; s.Action != driver.Retry {
		t.Fatalf("settlement %+v", s)
	}
	if a := r.claim(nil); a.Claims[0].DeliveryID != "2" {
		t.Fatalf("claim %+v", a.Claims[0])
	}
}

// TestRedriveIsNoLocalDuplicate: an operator reopens a completed key while its message is being acked. The redrive's message
// is claimed, any other duplicate acked.
func TestRedriveIsNoLocalDuplicate(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.ran("a", machine.Result{})
	r.finish(driver.Applied)
	again := message(driver.RedriveID("x"), "a")
	r.receive(message("2", "a"), again)
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "m-a" {
		t.Fatalf("settled %+v", s)
	}
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "2" || s[0].Action != driver.Ack {
		t.Fatalf("settled %+v", s)
	}
	if c := r.claim(nil); len(c.Claims) != 1 || c.Claims[0].DeliveryID != again.ID {
		t.Fatalf("claimed %+v", c.Claims)
	}
}

func TestFM60_GroupStopsAtAFailure(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(grouped("1", "a", "g"), grouped("2", "b", "g"), message("3", "c"))
	if a := r.claim(nil); len(a.Claims) != 2 || a.Claims[0].Key.Raw != "a" || a.Claims[1].Key.Raw != "c" {
		t.Fatalf("claimed %+v: only the head of a group is claimed (law 13)", a.Claims)
	}
	r.ran("a", machine.Result{Class: machine.Failed, Err: errBoom})
	r.finish(driver.Applied)
	r.settle(driver.Applied)
	if s := r.settle(driver.Applied).Settlements[0]; s.Receipt != "2" || s.Action != driver.Defer {
		t.Fatalf("the follower was settled with %+v", s)
	}
	r.none(machine.ActionClaim, "a stopped group stays stopped")
}

func TestGroupGoesOnAfterASuccess(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(grouped("1", "a", "g"), grouped("2", "b", "g"))
	r.claim(nil)
	r.ran("a", machine.Result{})
	r.finish(driver.Applied)
	r.none(machine.ActionClaim, "the next of a group waits until the first is settled")
	r.settle(driver.Applied)
	if a := r.claim(nil); a.Claims[0].Key.Raw != "b" {
		t.Fatalf("claimed %+v", a.Claims)
	}
}

func TestBusyHeadOfAGroupIsKeptInFlight(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(grouped("1", "a", "g"), grouped("2", "b", "g"))
	r.claim(func(_ string, g *driver.Grant) { g.Verdict, g.Wait = driver.Busy, 2*time.Second })
	if a := r.settle(driver.Applied); len(a.Settlements) != 1 || a.Settlements[0].Receipt != "2" {
		t.Fatalf("settled %+v", a.Settlements)
	}
	r.pass(time.Second)
	r.none(machine.ActionClaim, "it is busy for two seconds")
	r.pass(3 * time.Second)
	if a := r.claim(nil); a.Claims[0].Key.Raw != "a" {
		t.Fatalf("claimed %+v", a.Claims)
	}
}
