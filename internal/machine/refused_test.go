package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

var errDeadlock = fmt.Errorf("deadlock: %w", driver.ErrNotCommitted)

// A claim that definitely did not happen met another write: it is repeated at once, and polling goes on.
func TestFM46_RefusedClaimIsRepeatedAndPollingGoesOn(t *testing.T) {
	r := newFixture(t, nil)
	r.warm()
	r.receive(message("1", "a"), message("2", "b"))
	a := r.take(machine.ActionClaim)
	nonce := a.Claims[0].Nonce
	r.step(machine.Event{Kind: machine.Claimed, Items: a.Items, Err: errDeadlock})
	r.receive(message("3", "c"))
	if r.has(machine.ActionReceive) != 1 {
		t.Fatal("polling is paused, though the store responds")
	}
	r.pass(20 * time.Millisecond)
	b := r.claim(nil)
	if len(b.Claims) != 3 || b.Claims[0].Nonce != nonce {
		t.Fatalf("claimed %+v: all of them, in their places, the first with the same nonce", b.Claims)
	}
	if n := r.has(machine.ActionRun); n != 3 {
		t.Fatalf("%d runs", n)
	}
	r.ran("a", machine.Result{})
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Complete {
		t.Fatalf("finish %+v", f)
	}
}

// The pauses double, and a store that refuses everything for long is down.
func TestFM46_StoreThatOnlyRefusesIsDown(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"))
	var pauses []time.Duration
	for r.has(machine.ActionReceive) > 0 || len(pauses) < 8 {
		if len(pauses) > 20 {
			t.Fatal("the store refuses everything, and polling goes on")
		}
		last := r.now
		for r.has(machine.ActionClaim) == 0 {
			r.pass(time.Millisecond)
		}
		pauses = append(pauses, r.now-last)
		a := r.take(machine.ActionClaim)
		r.step(machine.Event{Kind: machine.Claimed, Items: a.Items, Err: errDeadlock})
		if r.has(machine.ActionReceive) > 0 {
			r.receive()
		}
	}
	if pauses[1] > 20*time.Millisecond || pauses[6] < 8*pauses[1] {
		t.Errorf("the pauses are %v", pauses)
	}
	for r.has(machine.ActionClaim) == 0 {
		r.pass(10 * time.Millisecond)
	}
	r.claim(nil)
	if r.has(machine.ActionReceive) != 1 || r.has(machine.ActionRun) != 1 {
		t.Error("it did not resume")
	}
}

// A transaction that could not begin is begun again with the same claims. No attempt is spent.
func TestFM45_RefusedBeginAndCommitAreRepeated(t *testing.T) {
	r := newFixture(t, openMode)
	r.receive(message("1", "a"), message("2", "b"))
	a := r.take(machine.ActionBegin)
	items := append([]*machine.Item(nil), a.Items...)
	r.step(machine.Event{Kind: machine.Begun, Items: items, Err: errDeadlock})
	r.receive(message("3", "c"))
	if r.has(machine.ActionReceive) != 1 {
		t.Fatal("polling is paused, though the store responds")
	}
	r.pass(20 * time.Millisecond)
	if b := r.beginTx(nil); len(b.Claims) != 3 || b.Claims[0].Nonce != a.Claims[0].Nonce || b.Claims[1].Nonce != a.Claims[1].Nonce {
		t.Fatalf("begun with %+v", b.Claims)
	}
	for _, k := range []string{"a", "b", "c"} {
		r.ran(k, machine.Result{})
	}
	c := r.take(machine.ActionCommit)
	r.step(machine.Event{Kind: machine.Committed, Items: c.Items, Err: errDeadlock})
	r.pass(20 * time.Millisecond)
	r.beginTx(nil)
	for _, k := range []string{"a", "b", "c"} {
		r.ran(k, machine.Result{})
	}
	c = r.take(machine.ActionCommit)
	r.step(machine.Event{Kind: machine.Committed, Items: c.Items})
	if n := r.m.Counts(); n.Effects != 3 || n.Executed != 3 || n.Retried != 0 {
		t.Fatalf("counts %+v", n)
	}
}

// A refused extension is repeated before the lease ends, and is no outage.
func TestFM46_RefusedExtensionIsNoOutage(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.receive()
	r.pass(lease / 2)
	e := r.take(machine.ActionExtend)
	r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Sent: r.now, Err: errDeadlock})
	r.receive()
	if r.has(machine.ActionReceive) != 1 {
		t.Fatal("polling is paused, though the store responds")
	}
	r.pass(200 * time.Millisecond)
	if r.has(machine.ActionExtend) != 1 {
		t.Fatal("it was not asked again")
	}
}
