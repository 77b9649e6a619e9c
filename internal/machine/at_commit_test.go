package machine_test

import (
	"errors"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

func atCommit(c *machine.Config) { c.AtCommit, c.Mode = true, machine.Joined }

// free is the grant of a key without a record.
func free(_ string, g *driver.Grant) { g.Hold.Token = 0 }

// started has a first delivery run without a claim.
func started(t *testing.T) *fixture {
	t.Helper()
	r := newFixture(t, atCommit)
	r.receive(message("m-1", "k"))
	if a := r.claim(free); !a.Claims[0].AtCommit {
		t.Fatal("the claim of a first delivery is durable")
	}
	return r
}

// work returns the only work of the open finish.
func (r *fixture) work() driver.Work {
	r.t.Helper()
	for i := range r.open {
		if r.open[i].Kind == machine.ActionFinish {
			return r.open[i].Works[0]
		}
	}
	r.t.Fatal("nothing is being finished")
	return driver.Work{}
}

// TestFM32CommitIsRepeatedWithItsNonce: a commit without a response is repeated as it was, until a lease has passed. Meanwhile
// the delivery is neither acked nor returned.
func TestFM32CommitIsRepeatedWithItsNonce(t *testing.T) {
	r := started(t)
	r.ran("k", machine.Result{})
	first := r.work()
	if first.Claim == nil || first.Finish.Hold.Token != 0 || first.Claim.Nonce != first.Finish.Hold.Nonce {
		t.Fatalf("the commit carries the claim %+v", first.Claim)
	}
	for end := r.now + lease - guard; r.now < end; {
		if r.has(machine.ActionFinish) > 0 {
			if again := r.work(); again.Claim == nil || again.Claim.Nonce != first.Claim.Nonce {
				t.Fatalf("repeated with the claim %+v, first with %+v", again.Claim, first.Claim)
			}
			a := r.take(machine.ActionFinish)
			r.step(machine.Event{Kind: machine.Finished, Lane: a.Lane, Items: a.Items, Works: a.Works, Err: errors.New("no response")})
		}
		r.none(machine.ActionSettle, "the outcome is unknown")
		r.none(machine.ActionExtend, "there is no lease")
		r.pass(lease / 20)
	}
	r.pass(lease)
	for r.has(machine.ActionFinish) > 0 {
		a := r.take(machine.ActionFinish)
		r.step(machine.Event{Kind: machine.Finished, Lane: a.Lane, Items: a.Items, Works: a.Works, Err: errors.New("no response")})
	}
	r.none(machine.ActionSettle, "the outcome is still unknown")
	if n := r.m.Counts(); n.Fenced != 1 || r.m.InFlight() != 0 {
		t.Errorf("afterwards %d are in flight, counts %+v", r.m.InFlight(), n)
	}
}

// TestFM13LostCommitIsClaimed: a commit that found a record is followed by an ordinary claim, whose verdict stands.
func TestFM13LostCommitIsClaimed(t *testing.T) {
	r := started(t)
	r.ran("k", machine.Result{})
	lost := r.work()
	r.finish(driver.Lost)
	a := r.claim(func(_ string, g *driver.Grant) { g.Verdict = driver.Replay })
	if c := a.Claims[0]; c.AtCommit || c.Nonce == lost.Claim.Nonce {
		t.Errorf("claimed with %+v after the commit of %+v", c, lost.Claim)
	}
	r.settle(driver.Applied)
	if n := r.m.Counts(); n.Replayed != 1 || n.Effects != 0 || n.Fenced != 1 || n.Executed != 1 {
		t.Errorf("counts %+v", n)
	}
}

// TestFailureIsRecordedByAClaim: a run that failed without a claim is claimed before its failure is written.
func TestFailureIsRecordedByAClaim(t *testing.T) {
	r := started(t)
	r.ran("k", machine.Result{Class: machine.Permanent, NotApplied: true, Err: errors.New("failed")})
	r.none(machine.ActionFinish, "nothing is claimed yet")
	if a := r.claim(nil); a.Claims[0].AtCommit {
		t.Error("the failure is to be recorded by a claim at its commit")
	}
	if w := r.work(); w.Claim != nil || w.Finish.Final != driver.Fail || w.Finish.Hold.Token == 0 {
		t.Errorf("recorded with %+v", w.Finish)
	}
	r.finish(driver.Applied)
	if n := r.m.Counts(); n.Dead != 1 || n.Executed != 1 || n.Fenced != 0 {
		t.Errorf("counts %+v", n)
	}
}

// TestFM83OnlyFirstDeliveriesAreClaimedAtTheCommit: a redelivery, and one whose count is unknown, are claimed before they run.
func TestFM83OnlyFirstDeliveriesAreClaimedAtTheCommit(t *testing.T) {
	for _, count := range []int{0, 2} {
		r := newFixture(t, atCommit)
		m := message("m-1", "k")
		m.Count = count
		r.receive(m)
		if a := r.claim(nil); a.Claims[0].AtCommit {
			t.Errorf("delivery %d is claimed at its commit", count)
		}
	}
}
