package machine_test

import (
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// uncounted is open mode on a queue that does not count deliveries.
func uncounted(batched bool) func(*machine.Config) {
	return func(c *machine.Config) {
		c.Mode, c.Batched, c.Counts, c.Batch, c.Concurrency, c.InFlight = machine.Open, batched, false, 4, 8, 24
	}
}

func first(id, key string) machine.Arrival {
	a := message(id, key)
	a.Count = 0
	return a
}

// TestFM83_UncountedDeliveriesAreClaimedDurably: after their claims they share a transaction, which repeats the claims with
// their nonces. An item with a past has a transaction of its own.
func TestFM83_UncountedDeliveriesAreClaimedDurably(t *testing.T) {
	r := newFixture(t, uncounted(false))
	r.receive(first("1", "a"), first("2", "b"), first("3", "taken over"), first("4", "c"))
	r.none(machine.ActionBegin, "nothing is claimed durably")
	claims := r.claim(func(key string, g *driver.Grant) {
		if key == "taken over" {
			g.Takeovers, g.Attempt = 1, 2
		}
	}).Claims
	for _, want := range [][]int{{0, 1}, {2}, {3}} {
		b := r.beginTx(func(key string, g *driver.Grant) {
			if key == "taken over" {
				g.Takeovers, g.Attempt = 1, 2
			}
		})
		if len(b.Claims) != len(want) {
			t.Fatalf("a transaction has %d claims, wanted those of %v", len(b.Claims), want)
		}
		for i, at := range want {
			if b.Claims[i].Key != claims[at].Key || b.Claims[i].Nonce != claims[at].Nonce {
				t.Errorf("the transaction claims %v, which was claimed as %v", b.Claims[i], claims[at])
			}
			r.ran(b.Claims[i].Key.Raw, machine.Result{})
		}
		c := r.take(machine.ActionCommit)
		r.step(machine.Event{Kind: machine.Committed, Items: c.Items, Works: c.Works})
	}
	r.settle(driver.Applied)
	if n := r.m.Counts(); n.Effects != 4 {
		t.Errorf("counts %+v", n)
	}
}

// TestFM83_OneBatchIsClaimedAhead: a lane claims no more than its next transaction takes, because a crash of the process is
// charged to every claimed key.
func TestFM83_OneBatchIsClaimedAhead(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) {
		uncounted(false)(c)
		c.Batch, c.Lanes = 2, 2
	})
	var as []machine.Arrival
	for _, key := range []string{"a", "c", "e", "g", "i", "k"} { // of one lane
		as = append(as, first(key, key))
	}
	r.receive(as...)
	if n := len(r.claim(nil).Claims); n != 2 {
		t.Fatalf("%d claims, wanted those of a batch", n)
	}
	r.take(machine.ActionBegin)
	if n := len(r.claim(nil).Claims); n != 2 {
		t.Fatalf("%d claims, wanted those of the next batch", n)
	}
	r.none(machine.ActionClaim, "a batch is claimed already")
}

// TestFM60_UncountedBatchIsHalved: the claims of a failed batch stay, and its halves run behind them.
func TestFM60_UncountedBatchIsHalved(t *testing.T) {
	r := newFixture(t, uncounted(true))
	r.receive(first("1", "a"), first("2", "b"), first("3", "c"), first("4", "d"))
	r.claim(nil)
	for _, want := range []int{4, 2, 1} {
		if b := r.beginTx(nil); len(b.Claims) != want {
			t.Fatalf("a batch has %d messages, wanted %d", len(b.Claims), want)
		}
		r.ran("a", machine.Result{Class: machine.Failed, Err: errBoom})
		r.none(machine.ActionClaim, "the claims are durable")
		r.take(machine.ActionRollback)
		r.step(machine.Event{Kind: machine.RolledBack})
	}
	f := r.finish(driver.Applied).Works[0].Finish
	if f.Hold.Key.Raw != "a" || f.Final != driver.Release || f.Ran != driver.NotApplied {
		t.Errorf("the culprit's end is %+v", f)
	}
	if b := r.beginTx(nil); len(b.Claims) != 3 {
		t.Errorf("the rest is a batch of %d", len(b.Claims))
	}
}
