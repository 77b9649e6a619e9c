package semeltest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Fingerprints: two sums of one recipe, one of another.
const (
	fpSame  = driver.Fingerprint("rcp1" + "sum-a")
	fpOther = driver.Fingerprint("rcp1" + "sum-b")
	fpOlder = driver.Fingerprint("rcp0" + "sum-a")
)

// Steps that recipes are made of. "mine" is the hold of the last attempt that acquired the cell's key.

func claimFor(lease time.Duration) step {
	return step{make: func(c *cell) request {
		return request{claim: &driver.Claim{
			Key: c.key, Nonce: newNonce(), Fingerprint: c.fp, BodyDigest: c.body(""), DeliveryID: "delivery-1", Lease: lease,
			Takeover: c.policy,
		}}
	}}
}

// claimAs is a claim by another caller with its own policy and body.
func claimAs(p driver.Takeover) step {
	return step{make: func(c *cell) request {
		return request{claim: &driver.Claim{
			Key: c.key, Nonce: newNonce(), BodyDigest: c.body("other"), DeliveryID: "delivery-2", Lease: long, Takeover: p,
		}}
	}}
}

func claimAgain() step {
	return step{make: func(c *cell) request {
		return request{claim: &driver.Claim{
			Key: c.key, Nonce: c.held.Nonce, Fingerprint: c.fp, BodyDigest: c.body(""), Lease: long, Takeover: c.policy,
		}}
	}}
}

func finishWith(f driver.Finish) step {
	return step{make: func(c *cell) request {
		g := f
		g.Hold, g.Keep, g.Reason = c.held, c.keep, own+f.Final.String()
		return request{finish: &g}
	}}
}

func extendMine() step {
	return step{make: func(c *cell) request { return request{extend: &c.held} }}
}

func operateWith(op driver.Operation) step {
	return step{make: func(c *cell) request {
		o := op
		o.Key, o.Token, o.Generation = c.key, c.model.Token, c.model.Generation
		o.Keep, o.Reason = c.keep, own+"operator"
		return request{operate: &o}
	}}
}

var barrier = step{barrier: short}

// recipe reaches one state by legal operations.
type recipe struct {
	name     string
	operator bool // it needs a driver.Operator
	bare     bool // its claims carry no fingerprint
	expires  bool // it can become EXPIRED, under some policy
	steps    []step
}

func recipes() []recipe {
	done := finishWith(driver.Finish{Final: driver.Complete, Result: []byte("result-1")})
	fail := finishWith(driver.Finish{Final: driver.Fail})
	park := finishWith(driver.Finish{Final: driver.Park})
	release := func(r driver.Ran, after time.Duration) step {
		return finishWith(driver.Finish{Final: driver.Release, Ran: r, RetryAfter: after})
	}
	resolve := func(as driver.State) step {
		return operateWith(driver.Operation{Kind: driver.Resolve, As: as, Result: []byte("result-2")})
	}
	redrive := operateWith(driver.Operation{Kind: driver.Redrive})
	rerun := operateWith(driver.Operation{Kind: driver.Redrive, NewGeneration: true})
	force := operateWith(driver.Operation{Kind: driver.ForceRelease})
	list := func(s ...step) []step { return s }
	return []recipe{
		{name: "absent"},
		{name: "live", steps: list(claimFor(long))},
		{name: "live, bare", bare: true, steps: list(claimFor(long))},
		{name: "live, extended", steps: list(claimFor(short), extendMine())},
		{name: "live, claimed again", steps: list(claimFor(short), claimAgain())},
		{name: "live, second attempt", steps: list(claimFor(long), release(driver.MaybeApplied, 0), claimFor(long))},
		{name: "expired", steps: list(claimFor(short), barrier)},
		{name: "taken over", steps: list(claimFor(short), barrier, claimFor(long))},
		{name: "taken over, expired", steps: list(claimFor(short), barrier, claimFor(short), barrier)},
		{name: "taken over by once", steps: list(claimFor(short), barrier, claimAs(driver.Once))},
		{name: "released unstarted", steps: list(claimFor(long), release(driver.Unstarted, 0))},
		{name: "released not applied", steps: list(claimFor(long), release(driver.NotApplied, 0))},
		{name: "released maybe", expires: true, steps: list(claimFor(long), release(driver.MaybeApplied, 0))},
		{name: "released after a wait", steps: list(claimFor(long), release(driver.NotApplied, short), barrier)},
		{name: "released not due", steps: list(claimFor(long), release(driver.MaybeApplied, retry))},
		{name: "completed", expires: true, steps: list(claimFor(long), done)},
		{name: "completed, bare", expires: true, bare: true, steps: list(claimFor(long), done)},
		{name: "completed after expiry", expires: true, steps: list(claimFor(short), barrier, done)},
		{name: "failed", expires: true, steps: list(claimFor(long), fail)},
		{name: "uncertain", steps: list(claimFor(long), park)},
		{name: "recovered", expires: true, steps: list(claimFor(long), park, done)},
		{name: "disposed", expires: true, operator: true, steps: list(claimFor(long), fail, operateWith(driver.Operation{Kind: driver.Discard}))},
		{name: "resolved to completed", expires: true, operator: true, steps: list(claimFor(long), park, resolve(driver.Completed))},
		{name: "resolved to failed", expires: true, operator: true, steps: list(claimFor(long), park, resolve(driver.FailedState))},
		{name: "resolved to released", operator: true, steps: list(claimFor(long), park, resolve(driver.Released))},
		{name: "redriven", operator: true, steps: list(claimFor(long), fail, redrive)},
		{name: "redriven, live", operator: true, steps: list(claimFor(long), fail, redrive, claimFor(long))},
		{name: "rerun", operator: true, steps: list(claimFor(long), done, rerun)},
		{name: "rerun, completed", expires: true, operator: true, steps: list(claimFor(long), done, rerun, claimFor(long), done)},
		{name: "force-released", expires: true, operator: true, steps: list(claimFor(long), force)},
	}
}

// operations are those that the store offers.
func (b *bench) operations() []op {
	_, operator := driver.As[driver.Operator](b.Store)
	return slices.DeleteFunc(operations(), func(o op) bool {
		return o.operator && !operator || o.atCommit && !b.Store.Features().ClaimsAtCommit
	})
}

// cells makes every combination of recipe, policy and operation. A last claim by another caller shows the outcome if the
// store cannot show records.
func (b *bench) cells() []*cell {
	_, operator := driver.As[driver.Operator](b.Store)
	last := claimAs(driver.Resume)
	var all []*cell
	for _, r := range recipes() {
		if r.operator && !operator {
			continue
		}
		for _, p := range []driver.Takeover{driver.Resume, driver.Probe, driver.Once} {
			for _, o := range b.operations() {
				c := b.newCell(fmt.Sprintf("%s, under %v: %s", r.name, p, o.name))
				c.policy = p
				if !r.bare {
					c.fp = fpSame
				}
				under := o.step
				under.checked = true
				c.steps = append(append(append(c.steps, r.steps...), under), last)
				all = append(all, c)
			}
		}
	}
	return all
}

// testCells compares the store with the decision table, cell by cell (protocol section 2).
func testCells(t testing.TB, s StoreSetup) {
	b := newBench(t, s)
	cells := b.sampled(b.cells())
	b.run(cells)
	b.bad.report(t)
	t.Logf("%d cells of the decision table compared", len(cells))
}

// testFM43Cells does the same after the store's clock stepped back: leases that seem too long are cut (law 7). Most cells
// have no such lease, so a third of them is compared, all in nightly runs.
func testFM43Cells(t testing.TB, s StoreSetup) {
	if s.Advance == nil {
		t.Log("left out: the store's clock cannot be moved")
		return
	}
	s.Sample = max(s.Sample, Sampled(3))
	b := newBench(t, s)
	cells := b.sampled(b.cells())
	tails := make([][]step, len(cells))
	for i, c := range cells {
		at := len(c.steps) - 2 // the operation under test and the last claim
		c.steps, tails[i] = c.steps[:at], c.steps[at:]
	}
	b.run(cells)
	const back = 45 * time.Minute // less than the long leases, more than the short ones
	s.Advance(-back)
	b.now = b.now.Add(-back)
	for i, c := range cells {
		c.steps = tails[i]
	}
	b.run(cells)
	b.bad.report(t)
	t.Logf("%d cells of the decision table compared after the clock stepped back", len(cells))
}

// testSweepCells sweeps records of every state, past their retention and not, abandoned and not.
func testSweepCells(t testing.TB, s StoreSetup) {
	sw, ok := driver.As[driver.Sweeper](s.Store)
	if !ok {
		t.Log("left out: the store has no driver.Sweeper")
		return
	}
	b := newBench(t, s)
	_, operator := driver.As[driver.Operator](s.Store)
	var cells []*cell
	for _, r := range recipes() {
		for _, p := range []driver.Takeover{driver.Resume, driver.Once} {
			for _, k := range []time.Duration{short, keep} {
				if r.operator && !operator {
					continue
				}
				c := b.newCell(fmt.Sprintf("sweep: %s, under %v, kept for %v", r.name, p, k))
				c.policy, c.keep = p, k
				c.steps = append(append(c.steps, r.steps...), barrier)
				cells = append(cells, c)
			}
		}
	}
	b.run(cells)
	b.wait() // claims of the last round are short too
	b.sweep(sw, cells, 0)
	b.sweep(sw, cells, time.Millisecond)
	b.sweep(sw, cells, time.Millisecond)
	late := finishWith(driver.Finish{Final: driver.Complete, Result: []byte("late")})
	late.checked = true
	for _, c := range cells {
		c.steps = []step{late, claimAs(driver.Resume)}
	}
	b.run(cells)
	b.bad.report(t)
	t.Logf("%d records swept three times", len(cells))
}

// sweep sweeps in small steps until there is no more, and compares the counts and every record with the table.
func (b *bench) sweep(sw driver.Sweeper, cells []*cell, horizon time.Duration) {
	b.t.Helper()
	var want driver.Swept
	for _, c := range cells {
		after, v := driver.DecideSweep(c.model, b.now, horizon, b.longTerm)
		switch v {
		case driver.SweepPurge:
			want.Purged++
			c.model = driver.Record{}
		case driver.SweepAbandon:
			want.Abandoned++
			c.model = after
		case driver.SweepExpire:
			want.Expired++
			c.model = after
		case driver.SweepKeep:
		}
	}
	ctx, cancel := b.call()
	defer cancel()
	var got driver.Swept
	for more := true; more; {
		const limit = 7
		var s driver.Swept
		var err error
		if s, more, err = sw.Sweep(ctx, horizon, limit); err != nil {
			b.t.Fatalf("Sweep: %v", err)
		}
		if s.Count() > limit {
			b.bad.add("Sweep with limit %d swept %+v", limit, s)
		}
		if more && s.Count() == 0 {
			b.t.Fatalf("Sweep did nothing and reports that there is more")
		}
		got.Purged += s.Purged
		got.Abandoned += s.Abandoned
		got.Expired += s.Expired
	}
	if got != want {
		b.bad.add("Sweep with horizon %v returned %+v in all, the table says %+v", horizon, got, want)
	}
	for _, c := range cells {
		b.inspect(c)
	}
}
