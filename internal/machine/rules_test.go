package machine_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

func TestFM64_DrainReturnsWhatHasNotStarted(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Concurrency = 1 })
	r.warm()
	r.receive(message("1", "a"), message("2", "b"))
	r.claim(nil)
	r.step(machine.Event{Kind: machine.Drain})
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "2" || s[0].Action != driver.Defer || s[0].After != 0 {
		t.Fatalf("settled %+v", s)
	}
	r.receive(message("3", "c")) // it was on its way
	if s := r.settle(driver.Applied).Settlements; s[0].Receipt != "3" || s[0].Action != driver.Defer {
		t.Fatalf("settled %+v", s)
	}
	r.none(machine.ActionCancel, "what runs may end within the grace period")
	r.ran("a", machine.Result{})
	r.finish(driver.Applied)
	r.settle(driver.Applied)
	if a := r.take(machine.ActionStop); a.Stuck != 0 {
		t.Fatalf("%d stuck", a.Stuck)
	}
	r.none(machine.ActionReceive, "it drains")
}

func TestFM64_DrainCancelsThenGivesUp(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.step(machine.Event{Kind: machine.Drain})
	r.receive()
	r.pass(r.cfg.Grace)
	if a := r.take(machine.ActionCancel); a.Cause != machine.CauseDraining {
		t.Fatalf("cause %d", a.Cause)
	}
	r.none(machine.ActionStop, "it may obey")
	r.pass(r.cfg.HardStop)
	if a := r.take(machine.ActionStop); a.Stuck != 1 {
		t.Fatalf("%d stuck", a.Stuck)
	}
	r.none(machine.ActionFinish, "a key is never released while its handler runs (law 11)")
	if n := r.m.Counts(); n.Executed != 1 || n.Fenced != 1 {
		t.Fatalf("counts %+v", n)
	}
}

func TestFM64_CancelledByTheDrainSpendsNoAttempt(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.step(machine.Event{Kind: machine.Drain})
	r.pass(r.cfg.Grace)
	r.ran("a", machine.Result{Class: machine.Failed, Err: errBoom})
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || !f.Refund || f.Ran != driver.MaybeApplied {
		t.Fatalf("finish %+v", f)
	}
}

func TestFM3_OnceIsParkedUnlessCertainlyNotApplied(t *testing.T) {
	for _, c := range []struct {
		res  machine.Result
		want driver.Final
	}{
		{machine.Result{Class: machine.Failed, Err: errBoom}, driver.Park},
		{machine.Result{Class: machine.Permanent, Err: errBoom}, driver.Park},
		{machine.Result{Class: machine.Failed, NotApplied: true, Err: errBoom}, driver.Release},
		{machine.Result{Class: machine.Permanent, NotApplied: true, Err: errBoom}, driver.Fail},
	} {
		r := newFixture(t, func(c *machine.Config) { c.Takeover = driver.Once })
		r.begin("a")
		r.ran("a", c.res)
		if f := r.finish(driver.Applied).Works[0].Finish; f.Final != c.want {
			t.Errorf("%+v: %v, want %v", c.res, f.Final, c.want)
		}
		if s := r.settle(driver.Applied).Settlements[0]; c.want == driver.Park && (s.Action != driver.Dead || s.DeadLetter.Kind != driver.DeadLetterUncertain) {
			t.Errorf("%+v: settled with %+v", c.res, s)
		}
	}
}

func TestFM82_StricterPolicyOfTheRecordRules(t *testing.T) {
	for policy, why := range map[driver.Takeover]string{driver.Once: "once", driver.Probe: "there is no probe to ask"} {
		r := newFixture(t, nil) // resume, no probe
		r.receive(message("1", "a"))
		r.claim(func(_ string, g *driver.Grant) { g.Takeover, g.Unknown = policy, true })
		r.none(machine.ActionRun, why)
		if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Park {
			t.Errorf("%v: %+v", policy, f)
		}
	}
}

func probing(c *machine.Config) { c.Takeover, c.Probes = driver.Probe, true }

func unknown(_ string, g *driver.Grant) { g.Unknown, g.Takeovers = true, 1 }

func TestFM3_ProbeIsAskedBeforeARunThatFollowsADoubt(t *testing.T) {
	for found, want := range map[machine.ProbeResult]driver.Final{
		machine.ProbeApplied: driver.Complete, machine.ProbeUnknown: driver.Park,
	} {
		r := newFixture(t, probing)
		r.receive(message("1", "a"))
		r.claim(unknown)
		if a := r.ran("a", machine.Result{Probe: found, Value: []byte("seen")}); !a.Job.Probe {
			t.Fatal("it ran without asking")
		}
		r.none(machine.ActionRun, "the probe decided")
		if f := r.finish(driver.Applied).Works[0].Finish; f.Final != want || (want == driver.Complete && string(f.Result) != "seen") {
			t.Errorf("probe result %d: %+v", found, f)
		}
	}
	r := newFixture(t, probing)
	r.receive(message("1", "a"))
	r.claim(unknown)
	r.ran("a", machine.Result{Probe: machine.ProbeNotApplied})
	if a := r.ran("a", machine.Result{}); a.Job.Probe {
		t.Fatal("asked twice")
	}
}

func TestFM2_NoRunBeginsAfterTheDeadline(t *testing.T) {
	r := newFixture(t, probing)
	r.receive(message("1", "a"))
	r.claim(unknown)
	r.now += lease // the process was stopped; the first event that it sees is the probe's result
	r.ran("a", machine.Result{Probe: machine.ProbeNotApplied})
	r.none(machine.ActionRun, "the lease may be another's by now")
}

func TestRefusedEffectsAreExcludedAndTheRestIsSentAgain(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Mode = machine.Joined })
	r.receive(message("1", "a"), message("2", "b"), message("3", "c"), message("4", "d"))
	r.claim(nil)
	r.ran("d", machine.Result{})
	for _, k := range []string{"a", "b", "c"} {
		r.ran(k, machine.Result{})
	}
	r.finish(driver.Applied)
	a := r.take(machine.ActionFinish)
	if len(a.Works) != 3 || a.Works[1].Finish.Hold.Key.Raw != "b" || a.Works[1].Ack == nil {
		t.Fatalf("works %+v", a.Works)
	}
	r.step(machine.Event{Kind: machine.Finished, Items: a.Items, Err: &driver.ItemError{Index: 1, Err: errBoom}})
	r.none(machine.ActionRun, "a batch that is sent again runs no handler again (protocol section 3)")
	again := r.finish(driver.Applied)
	final := map[string]driver.Final{}
	for _, w := range again.Works {
		final[w.Finish.Hold.Key.Raw] = w.Finish.Final
	}
	if final["a"] != driver.Complete || final["c"] != driver.Complete || final["b"] != driver.Release {
		t.Fatalf("sent again: %v", final)
	}
	r.none(machine.ActionSettle, "acks commit with the records")
}

// openMode is modes B and C.
func openMode(c *machine.Config) { c.Mode = machine.Open }

// beginTx completes the open begin.
func (r *fixture) beginTx(change func(key string, g *driver.Grant)) machine.Action {
	r.t.Helper()
	a := r.take(machine.ActionBegin)
	grants := make([]driver.Grant, len(a.Claims))
	for i, c := range a.Claims {
		grants[i] = r.acquired(c)
		if change != nil {
			change(c.Key.Raw, &grants[i])
		}
	}
	items := append([]*machine.Item(nil), a.Items...)
	r.step(machine.Event{Kind: machine.Begun, Items: items, Grants: grants, Sent: r.now})
	return a
}

func TestFM70_UnknownCommitRepeatsTheClaims(t *testing.T) {
	r := newFixture(t, openMode)
	r.receive(message("1", "a"))
	nonce := r.beginTx(nil).Claims[0].Nonce
	r.ran("a", machine.Result{})
	c := r.take(machine.ActionCommit)
	r.step(machine.Event{Kind: machine.Committed, Items: c.Items, Err: errBoom})
	r.none(machine.ActionRun, "it is unknown whether it was committed (FM33)")
	r.pass(time.Second)
	if a := r.beginTx(func(_ string, g *driver.Grant) { g.Verdict = driver.Replay }); a.Claims[0].Nonce != nonce {
		t.Fatal("asked with another nonce")
	}
	if s := r.settle(driver.Applied).Settlements[0]; s.Action != driver.Ack {
		t.Fatalf("settlement %+v", s)
	}
	if n := r.m.Counts(); n.Effects != 1 || n.Replayed != 0 || n.Executed != 1 {
		t.Fatalf("counts %+v: the commit was ours", n)
	}
}

func TestFM72_FailedItemIsExcludedAndRecorded(t *testing.T) {
	r := newFixture(t, openMode)
	r.receive(message("1", "a"), message("2", "b"))
	if a := r.beginTx(nil); len(a.Claims) != 2 {
		t.Fatalf("%d claims", len(a.Claims))
	}
	r.ran("a", machine.Result{})
	r.ran("b", machine.Result{Class: machine.Failed, Err: errBoom})
	r.none(machine.ActionCommit, "an item failed")
	r.take(machine.ActionRollback)
	r.step(machine.Event{Kind: machine.RolledBack})
	if a := r.claim(nil); len(a.Claims) != 1 || a.Claims[0].Key.Raw != "b" {
		t.Fatalf("claimed %+v", a.Claims)
	}
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || f.Ran != driver.NotApplied {
		t.Fatalf("finish %+v: its effects were rolled back", f)
	}
	if a := r.beginTx(nil); len(a.Claims) != 1 || a.Claims[0].Key.Raw != "a" {
		t.Fatalf("the rest runs again: %+v", a.Claims)
	}
	r.ran("a", machine.Result{})
	if c := r.take(machine.ActionCommit); len(c.Works) != 1 || c.Works[0].Finish.Hold.Key.Raw != "a" {
		t.Fatalf("commit %+v", c.Works)
	}
}

func TestRedeliveryIsClaimedDurablyAndRunsInATransactionOfItsOwn(t *testing.T) {
	r := newFixture(t, openMode)
	again := message("1", "a")
	again.Count = 2
	r.receive(again, message("2", "b"))
	b := r.beginTx(nil)
	if len(b.Claims) != 1 || b.Claims[0].Key.Raw != "b" {
		t.Fatalf("begun with %+v", b.Claims)
	}
	if c := r.claim(nil); c.Claims[0].Key.Raw != "a" {
		t.Fatalf("claimed %+v", c.Claims)
	}
	r.ran("b", machine.Result{})
	r.none(machine.ActionRun, "the one with a past waits for a transaction of its own")
	c := r.take(machine.ActionCommit)
	r.step(machine.Event{Kind: machine.Committed, Items: c.Items})
	if a := r.beginTx(nil); len(a.Claims) != 1 || a.Claims[0].Key.Raw != "a" {
		t.Fatalf("begun with %+v", a.Claims)
	}
	r.ran("a", machine.Result{})
}

func TestMemberWithAPastIsClaimedDurablyFirst(t *testing.T) {
	r := newFixture(t, openMode)
	r.receive(message("1", "a"), message("2", "b"))
	r.beginTx(func(key string, g *driver.Grant) {
		if key == "a" {
			g.Failures = 1
		}
	})
	r.none(machine.ActionRun, "the attempt of a would not be counted if it killed the process")
	r.take(machine.ActionRollback)
	r.step(machine.Event{Kind: machine.RolledBack})
	if c := r.claim(nil); len(c.Claims) != 1 || c.Claims[0].Key.Raw != "a" {
		t.Fatalf("claimed %+v", c.Claims)
	}
	if b := r.beginTx(nil); len(b.Claims) != 1 || b.Claims[0].Key.Raw != "b" {
		t.Fatalf("begun with %+v", b.Claims)
	}
}

func TestNothingIsExtendedInsideATransaction(t *testing.T) {
	r := newFixture(t, openMode)
	again := message("1", "a")
	again.Count = 2
	r.receive(again)
	c := r.claim(nil) // durably: its attempt counts even if it kills the process
	if a := r.beginTx(nil); a.Claims[0].Nonce != c.Claims[0].Nonce {
		t.Fatal("the claim inside carries another nonce")
	}
	r.pass(2 * lease)
	r.none(machine.ActionExtend, "the row is locked by ourselves")
	r.none(machine.ActionCancel, "the transaction keeps others out")
	r.ran("a", machine.Result{})
	r.take(machine.ActionCommit)
}

// TestAckOfAnUnknownWriteIsKept: (1) a joined finish times out, and its adapter still holds the work; (2) the
// repetition is applied, the delivery is gone; (3) the next delivery must not be written over the ack of the first.
func TestAckOfAnUnknownWriteIsKept(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Mode = machine.Joined })
	r.begin("a")
	r.ran("a", machine.Result{})
	first := r.take(machine.ActionFinish)
	r.step(machine.Event{Kind: machine.Finished, Items: first.Items, Err: errBoom})
	r.pass(time.Second)
	r.finish(driver.Applied)
	for _, key := range []string{"b", "c"} {
		r.begin(key)
		r.ran(key, machine.Result{})
		r.finish(driver.Applied)
	}
	if ack := first.Works[0].Ack; ack.Receipt != "m-a" {
		t.Fatalf("the ack of the write without an outcome now names %v", ack.Receipt)
	}
}

// While handlers are slow, or have not returned yet, nothing is fetched ahead of them.
func TestSlowHandlersFetchNothingAhead(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Concurrency, c.Batch = 2, 10 })
	asked := func() int { t.Helper(); return r.take(machine.ActionReceive).Max }
	if n := asked(); n != 2 {
		t.Fatalf("asked for %d at first, and there are 2 slots", n)
	}
	r.step(machine.Event{Kind: machine.Received, Arrivals: deadLetters("a b"), Sent: r.now})
	r.claim(nil)
	r.none(machine.ActionReceive, "both slots are taken")
	r.pass(time.Millisecond)
	r.ran("a", machine.Result{})
	if n := asked(); n <= 2 {
		t.Fatalf("asked for %d, and handlers are fast", n)
	}
	r.step(machine.Event{Kind: machine.Received, Arrivals: deadLetters("c"), Sent: r.now})
	r.finish(driver.Applied)
	r.settle(driver.Applied)
	r.claim(nil)
	asked()
	r.pass(2 * time.Second)
	r.ran("b", machine.Result{})
	r.finish(driver.Applied)
	r.settle(driver.Applied)
	r.step(machine.Event{Kind: machine.Received, Sent: r.now})
	if n := asked(); n != 1 {
		t.Fatalf("asked for %d: handlers take long, and one slot is free", n)
	}
}
