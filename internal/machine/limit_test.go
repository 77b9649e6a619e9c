package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

func pooled(id, pool string) machine.Arrival {
	a := message(id, id)
	a.Pool = pool
	return a
}

// runningOf is the number of running handlers of a pool.
func (r *fixture) runningOf(pool string) (n int) {
	for _, a := range r.open {
		if a.Kind == machine.ActionRun && a.Item.Pool == pool {
			n++
		}
	}
	return n
}

// completeAll completes all actions but handlers and receives.
func (r *fixture) completeAll() {
	r.t.Helper()
	for {
		switch {
		case r.has(machine.ActionClaim) > 0:
			r.claim(nil)
		case r.has(machine.ActionFinish) > 0:
			r.finish(driver.Applied)
		case r.has(machine.ActionSettle) > 0:
			r.settle(driver.Applied)
		default:
			r.heartbeats()
			if r.has(machine.ActionClaim)+r.has(machine.ActionFinish)+r.has(machine.ActionSettle) == 0 {
				return
			}
		}
	}
}

// TestPoolBoundsWhatRunsAndOthersFlow: one tenant with a flood has two handlers, the other one the rest of the slots, and
// nothing is claimed that has to wait (law 1).
func TestPoolBoundsWhatRunsAndOthersFlow(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Concurrency, c.Batch, c.PoolConcurrency = 4, 20, 2 })
	r.warm()
	flood := make([]machine.Arrival, 6)
	for i := range flood {
		flood[i] = pooled(fmt.Sprintf("a%d", i), "A")
	}
	r.receive(flood...)
	if a := r.claim(nil); len(a.Claims) != 2 {
		t.Fatalf("%d claimed of a pool of two", len(a.Claims))
	}
	r.receive(pooled("b0", "B"), pooled("b1", "B"), pooled("b2", "B"))
	r.completeAll()
	if a, b := r.runningOf("A"), r.runningOf("B"); a != 2 || b != 2 {
		t.Fatalf("%d of A and %d of B run", a, b)
	}
	if l := r.m.Load(); l.Waiting != 5 {
		t.Fatalf("%+v", l)
	}
	r.live(3 * visible) // those that wait are kept
	r.none(machine.ActionClaim, "the pools are full")
	order := []string{"a0", "a1", "a2", "a3", "a4", "a5"}
	for i, key := range order {
		r.ran(key, machine.Result{})
		r.completeAll()
		if n := r.runningOf("A"); n != min(2, len(order)-1-i) {
			t.Fatalf("%d of A run after %s", n, key)
		}
	}
	for _, key := range []string{"b0", "b1", "b2"} {
		r.ran(key, machine.Result{})
		r.completeAll()
	}
	if l := r.m.Load(); l.Waiting != 0 || r.m.InFlight() != 0 {
		t.Fatalf("%+v", l)
	}
}

// TestPoolRate: starts of a pool come at its rate, a burst first, whatever becomes of the others.
func TestPoolRate(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) {
		c.Concurrency, c.Batch, c.PoolEvery, c.PoolBurst = 4, 20, 10*time.Second, 2
	})
	r.warm()
	r.receive(pooled("a0", "A"), pooled("a1", "A"), pooled("a2", "A"), pooled("a3", "A"), pooled("b0", "B"))
	r.completeAll()
	if a, b := r.runningOf("A"), r.runningOf("B"); a != 2 || b != 1 {
		t.Fatalf("%d of A and %d of B run", a, b)
	}
	for _, key := range []string{"a0", "a1", "b0"} {
		r.ran(key, machine.Result{})
	}
	r.completeAll()
	for i, key := range []string{"a2", "a3"} {
		for range 9 {
			r.live(time.Second)
			r.completeAll()
		}
		if n := r.runningOf("A"); n != 0 {
			t.Fatalf("%d of A run too early", n)
		}
		r.live(time.Second)
		r.completeAll()
		if n := r.runningOf("A"); n != 1 {
			t.Fatalf("%d of A run after %d0 s", n, i+1)
		}
		r.ran(key, machine.Result{})
		r.completeAll()
	}
}

// TestRateCountsRunsOnly: a duplicate that is replayed from its record is refunded.
func TestRateCountsRunsOnly(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Every, c.Burst = time.Second, 1 })
	r.receive(message("1", "a"), message("2", "b"), message("3", "c"))
	for range 2 {
		if a := r.claim(func(_ string, g *driver.Grant) { g.Verdict = driver.Replay }); len(a.Claims) != 1 {
			t.Fatalf("%d claims at a rate of one", len(a.Claims))
		}
		r.settle(driver.Applied)
	}
	r.claim(nil)
	if r.has(machine.ActionRun) != 1 {
		t.Fatal("the third one does not run, though no run was started before")
	}
	r.ran("c", machine.Result{})
	r.completeAll()
	for i := range 3 {
		r.receive(message("n", fmt.Sprint("n", i)))
		r.none(machine.ActionClaim, "the next run is due in a second")
		r.pass(999 * time.Millisecond)
		r.none(machine.ActionClaim, "the next run is due in a second")
		r.pass(time.Millisecond)
		r.claim(nil)
		r.ran(fmt.Sprint("n", i), machine.Result{})
		r.completeAll()
	}
}

// TestPoolsAreBounded: if too many wait, the others are returned for a while. Pools without items are forgotten.
func TestPoolsAreBounded(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) {
		c.Concurrency, c.Batch, c.InFlight, c.PoolConcurrency = 2, 4, 4, 1
	})
	r.warm()
	given := 0
	for i := range 40 {
		if r.has(machine.ActionReceive) == 0 {
			break
		}
		r.receive(pooled(fmt.Sprint("a", i), "A"))
		for r.has(machine.ActionClaim) > 0 {
			r.claim(nil)
		}
		for r.has(machine.ActionSettle) > 0 {
			for _, s := range r.settle(driver.Applied).Settlements {
				if given++; s.Action != driver.Defer || s.After < time.Second {
					t.Fatalf("%+v", s)
				}
			}
		}
	}
	if l := r.m.Load(); given == 0 || l.Waiting > 4 || r.m.InFlight() > 9 || l.Running != 1 {
		t.Fatalf("%d returned, %+v", given, l)
	}
	r.receive(pooled("b", "B"))
	r.completeAll()
	if r.runningOf("B") != 1 {
		t.Fatal("a full hand of A keeps B from running")
	}
}

// TestPoolsAreRefundedWhatIsNotRun: busy, failed, drained or expired, an item that does not run returns its share.
func TestPoolsAreRefundedWhatIsNotRun(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.PoolConcurrency = 1; c.Extends = false })
	r.receive(pooled("1", "A"), pooled("2", "A"), pooled("3", "A"))
	r.claim(func(_ string, g *driver.Grant) { g.Verdict, g.Wait = driver.Busy, time.Second })
	r.settle(driver.Applied)
	c := r.take(machine.ActionClaim)
	r.step(machine.Event{Kind: machine.Claimed, Items: c.Items, Err: errBoom})
	r.pass(time.Second)
	if a := r.claim(nil); a.Claims[0].DeliveryID != "2" {
		t.Fatalf("claimed %+v", a.Claims)
	}
	r.none(machine.ActionClaim, "one of A runs")
	r.pass(visible) // the third expires while it waits
	if l := r.m.Load(); l.Waiting != 0 {
		t.Fatalf("%+v", l)
	}
	r.ran("2", machine.Result{})
	r.completeAll()
	r.open = r.only(machine.ActionReceive)
	r.receive(pooled("4", "A"), pooled("5", "A"))
	r.claim(nil)
	r.step(machine.Event{Kind: machine.Drain})
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "5" || s[0].Action != driver.Defer {
		t.Fatalf("settled %+v", s)
	}
	r.ran("4", machine.Result{})
	r.completeAll()
	if r.m.InFlight() != 0 || r.m.Load().Waiting != 0 {
		t.Fatalf("%d in flight", r.m.InFlight())
	}
}

// batch runs the open transaction that is asked for, if any, and returns the ids of its messages.
func (r *fixture) batch() (ran []string) {
	r.t.Helper()
	if r.has(machine.ActionBegin) == 0 {
		return nil
	}
	b := r.take(machine.ActionBegin)
	grants := make([]driver.Grant, len(b.Claims))
	for i, c := range b.Claims {
		grants[i] = r.acquired(c)
	}
	r.step(machine.Event{Kind: machine.Begun, Items: b.Items, Claims: b.Claims, Grants: grants, Sent: r.now})
	a := r.take(machine.ActionRun)
	seen := map[string]int{}
	for _, it := range a.Items {
		ran = append(ran, it.ID)
		if seen[it.Pool]++; seen[it.Pool] > 1 {
			r.t.Errorf("%d of pool %s in one batch", seen[it.Pool], it.Pool)
		}
	}
	r.step(machine.Event{Kind: machine.Ran, Item: a.Item, Items: a.Items, Results: make([]machine.Result, len(a.Items))})
	c := r.take(machine.ActionCommit)
	r.step(machine.Event{Kind: machine.Committed, Items: c.Items})
	r.settle(driver.Applied)
	return ran
}

// TestPoolsKeepOrder: an ordered group whose head waits for its pool waits with it, in a batch too.
func TestPoolsKeepOrder(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) {
		c.Mode, c.Batched, c.PoolConcurrency, c.Batch = machine.Open, true, 1, 8
	})
	group := func(id, pool string) machine.Arrival {
		a := pooled(id, pool)
		a.Group = "g"
		return a
	}
	r.receive(pooled("x", "A"), group("1", "A"), group("2", "B"), pooled("y", "B"))
	var ran []string
	for range 4 {
		ran = append(ran, r.batch()...)
	}
	at := map[string]int{}
	for i, id := range ran {
		at[id] = i + 1
	}
	if len(ran) != 4 || at["1"] > at["2"] {
		t.Fatalf("ran %v", ran)
	}
}

// TestPoolsOfOneGroup: the item that a pool lets start is followed in its group by one of another pool, which has to wait then.
// No pool is forgotten for it.
func TestPoolsOfOneGroup(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) {
		c.Mode, c.Batched, c.Batch, c.PoolEvery, c.PoolBurst = machine.Open, true, 8, 10*time.Second, 1
	})
	group := func(id, pool string) machine.Arrival {
		a := pooled(id, pool)
		a.Group = "g"
		return a
	}
	r.receive(pooled("a0", "A"))
	ran := r.batch()
	r.live(5 * time.Second)
	r.receive(pooled("b0", "B"), group("1", "A"), group("2", "B"), pooled("a1", "A"))
	for range 30 {
		ran = append(ran, r.batch()...)
		r.live(time.Second)
	}
	if got := fmt.Sprint(ran); got != "[a0 b0 1 2 a1]" {
		t.Errorf("ran %s", got)
	}
}

// TestRateOfRunsInBatches: each member of a transaction counts.
func TestRateOfRunsInBatches(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) {
		c.Mode, c.Batched, c.Batch, c.InFlight, c.Every, c.Burst = machine.Open, true, 8, 24, time.Second, 3
	})
	r.receive(message("1", "a"), message("2", "b"), message("3", "c"), message("4", "d"))
	if b := r.take(machine.ActionBegin); len(b.Claims) != 3 {
		t.Fatalf("%d of a burst of three", len(b.Claims))
	}
}

// TestPoolRateCountsRunsOnly: a duplicate is refunded by its pool.
func TestPoolRateCountsRunsOnly(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.PoolEvery, c.PoolBurst = time.Hour, 1 })
	r.receive(pooled("1", "A"), pooled("2", "A"))
	r.claim(func(_ string, g *driver.Grant) { g.Verdict = driver.Replay })
	r.settle(driver.Applied)
	if a := r.claim(nil); a.Claims[0].DeliveryID != "2" {
		t.Fatalf("%+v", a.Claims)
	}
}

// TestPoolOfAKeyInQuarantineIsForgottenAlone: a key that waits for quarantine releases its claim and its share, so its pool
// may be forgotten and made anew meanwhile. When it has ended the new pool still counts its running items.
func TestPoolOfAKeyInQuarantineIsForgottenAlone(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Concurrency, c.Batch, c.PoolConcurrency = 4, 20, 1 })
	r.warm()
	r.receive(pooled("x", "B"), pooled("a", "A"))
	r.claim(crashedTwice("a"))
	r.finish(driver.Applied) // given up: x runs
	r.receive(pooled("b", "A"))
	r.ran("x", machine.Result{})
	r.claim(crashedTwice("a")) // alone
	r.ran("a", machine.Result{})
	r.completeAll()
	r.receive(pooled("c", "A"), pooled("d", "A"))
	r.completeAll()
	if n := r.runningOf("A"); n != 1 {
		t.Fatalf("%d of a pool of one run", n)
	}
}
