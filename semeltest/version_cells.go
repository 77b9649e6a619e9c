package semeltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is the grid of mode D (protocol section 6): histories of a key with versions, and claims of every relation to
// them. The numbers have one, two and three digits, to find a store that compares them as text.

// vClaim claims version n, 0 = none.
func vClaim(n int64, lease time.Duration, tweak ...func(c *driver.Claim)) step {
	return step{make: func(c *cell) request {
		q := &driver.Claim{
			Key: c.key, Nonce: newNonce(), Fingerprint: fpSame, BodyDigest: c.body(fmt.Sprint(n)),
			DeliveryID: fmt.Sprintf("delivery-%d", n), Lease: lease, Takeover: c.policy,
		}
		if n != 0 {
			q.Version = driver.IntVersion(n)
		}
		for _, f := range tweak {
			f(q)
		}
		return request{claim: q}
	}}
}

// untilBrief lets brief leases end. No other step may come in between: under load a round takes longer than the leases.
var untilBrief = step{barrier: brief}

func noWait(c *driver.Claim) { c.NoWait = true }

func afterPrevious(c *driver.Claim) { c.After = c.Version.Before() }

func versionRecipes() []recipe {
	done := finishWith(driver.Finish{Final: driver.Complete, Result: []byte("result-1")})
	fail := finishWith(driver.Finish{Final: driver.Fail, Ran: driver.NotApplied})
	failMaybe := finishWith(driver.Finish{Final: driver.Fail, Ran: driver.MaybeApplied})
	park := finishWith(driver.Finish{Final: driver.Park})
	release := func(r driver.Ran) step { return finishWith(driver.Finish{Final: driver.Release, Ran: r}) }
	discard := operateWith(driver.Operation{Kind: driver.Discard})
	list := func(s ...step) []step { return s }
	nine := list(vClaim(9, long), done)
	then := func(s ...step) []step { return append(append([]step(nil), nine...), s...) }
	return []recipe{
		{name: "absent"},
		{name: "9 applied", steps: nine},
		{name: "9 applied, 100 live", steps: then(vClaim(100, long))},
		{name: "9 applied, 100 expired", steps: then(vClaim(100, brief), untilBrief)},
		{name: "9 applied, 100 taken over", steps: then(vClaim(100, brief), untilBrief, vClaim(100, long))},
		{name: "9 applied, 100 released unstarted", steps: then(vClaim(100, long), release(driver.Unstarted))},
		{name: "9 applied, 100 released not applied", steps: then(vClaim(100, long), release(driver.NotApplied))},
		{name: "9 applied, 100 released maybe", steps: then(vClaim(100, long), release(driver.MaybeApplied))},
		{name: "9 applied, 100 failed", steps: then(vClaim(100, long), fail)},
		{name: "9 applied, 100 failed maybe", steps: then(vClaim(100, long), failMaybe)},
		{name: "9 applied, 100 uncertain", steps: then(vClaim(100, long), park)},
		{name: "9 applied, 100 recovered", steps: then(vClaim(100, long), park, done)},
		{name: "9 applied, 99 in doubt, 100 failed", steps: then(vClaim(99, long), failMaybe, vClaim(100, long), fail)},
		{name: "9 applied, 99 in doubt, 100 live", steps: then(vClaim(99, brief), untilBrief, vClaim(100, long))},
		{name: "9 applied, 100 failed, 10 live", steps: then(vClaim(100, long), fail, vClaim(10, long))},
		{name: "9 applied, 100 over a gap", steps: then(vClaim(100, long, afterPrevious, noWait), done)},
		{name: "9 applied, 100 over a gap failed", steps: then(vClaim(100, long, afterPrevious, noWait), fail)},
		{name: "9 applied, 100 over a gap, 101", steps: then(vClaim(100, long, afterPrevious, noWait), done, vClaim(101, long, afterPrevious), done)},
		{name: "100 over a gap at the beginning", steps: list(vClaim(100, long, afterPrevious, noWait), done)},
		{name: "without versions", steps: list(vClaim(0, long), done)},
		{name: "9 applied, 100 discarded", operator: true, steps: then(vClaim(100, long), fail, discard)},
		{name: "9 applied, 100 discarded, 10 failed", operator: true, steps: then(vClaim(100, long), fail, discard, vClaim(10, long), fail)},
		{name: "9 applied, 100 redriven", operator: true, steps: then(vClaim(100, long), failMaybe, operateWith(driver.Operation{Kind: driver.Redrive}))},
		{name: "9 rerun", operator: true, steps: then(operateWith(driver.Operation{Kind: driver.Redrive, NewGeneration: true}))},
	}
}

// versionOps relate a claim to the stored versions: older, equal, between, newer; with the same payload and another; with
// and without a predecessor.
func versionOps() []op {
	ways := []struct {
		name  string
		tweak []func(c *driver.Claim)
	}{
		{"", nil}, {", cannot wait", []func(c *driver.Claim){noWait}}, {", in sequence", []func(c *driver.Claim){afterPrevious}},
		{", in sequence, cannot wait", []func(c *driver.Claim){afterPrevious, noWait}},
		{", another payload", []func(c *driver.Claim){func(c *driver.Claim) { c.Fingerprint = fpOther }}},
		{", another body", []func(c *driver.Claim){func(c *driver.Claim) { c.Fingerprint, c.BodyDigest = "", c.BodyDigest^1 }}},
	}
	var all []op
	for _, n := range []int64{1, 8, 9, 10, 98, 99, 100, 101, 1000} {
		for _, w := range ways {
			all = append(all, op{name: fmt.Sprintf("claim version %d%s", n, w.name), step: vClaim(n, later, w.tweak...)})
		}
	}
	all = append(all,
		op{name: "claim without version", step: vClaim(0, later)},
		op{name: "claim another kind of version", step: vClaim(0, later, func(c *driver.Claim) { c.Version = driver.TextVersion("100") })},
		op{name: "extend", step: extendMine()})
	for _, f := range finals() {
		all = append(all, op{name: f.name, step: finishWith(f.Finish)})
	}
	return append(all, operatorOps()...)
}

// testVersionCells compares the claims of versions with the decision table, cell by cell.
func testVersionCells(t testing.TB, s StoreSetup) {
	b := newBench(t, s)
	_, operator := driver.As[driver.Operator](s.Store)
	var cells []*cell
	for _, r := range versionRecipes() {
		for _, p := range []driver.Takeover{driver.Resume, driver.Once} {
			for _, o := range versionOps() {
				if (r.operator || o.operator) && !operator {
					continue
				}
				c := b.newCell(fmt.Sprintf("%s, under %v: %s", r.name, p, o.name))
				c.policy = p
				under := o.step
				under.checked = true
				last := vClaim(2000, long)
				last.checked = true
				c.steps = append(append(append(c.steps, r.steps...), under), last)
				cells = append(cells, c)
			}
		}
	}
	cells = b.sampled(cells)
	b.run(cells)
	b.bad.report(t)
	t.Logf("%d cells of versions compared", len(cells))
}

// testFM62TxVersions: versions in their own transactions. The applied version only grows, and an older one is stale.
func testFM62TxVersions(t testing.TB, s StoreSetup) {
	tr, ok := driver.As[driver.Transactor](s.Store)
	if !ok {
		t.Log("left out: the store has no driver.Transactor")
		return
	}
	b := newBench(t, s)
	key := driver.Key{Consumer: "suite", Tenant: "t", Raw: "versions in transactions"}
	for _, x := range []struct {
		n      int64
		tweak  func(c *driver.Claim)
		want   driver.Verdict
		commit bool
	}{
		{9, nil, driver.Acquired, true}, {9, nil, driver.Replay, false}, {8, nil, driver.Stale, false},
		{10, nil, driver.Acquired, false}, {10, nil, driver.Acquired, true}, {9, nil, driver.Stale, false},
		{10, func(c *driver.Claim) { c.Fingerprint = fpOther }, driver.Mismatch, false},
		{100, afterPrevious, driver.Busy, false},
		{100, func(c *driver.Claim) { afterPrevious(c); noWait(c) }, driver.Acquired, true},
		{99, nil, driver.Late, false}, {10, nil, driver.Stale, false}, {101, afterPrevious, driver.Acquired, true},
	} {
		ctx, cancel := b.call()
		c := driver.Claim{Key: key, Nonce: newNonce(), Fingerprint: fpSame, Lease: long, Version: driver.IntVersion(x.n)}
		if x.tweak != nil {
			x.tweak(&c)
		}
		tx, g, err := tr.Begin(ctx, c)
		b.returned("Begin", len(g), 1, err)
		if g[0].Verdict != x.want || g[0].Err != nil {
			t.Errorf("version %d in a transaction is %v (%v), wanted %v", x.n, g[0].Verdict, g[0].Err, x.want)
		}
		if g[0].Verdict == driver.Acquired {
			if g[0].Hold.Version != c.Version {
				t.Errorf("the hold of version %s names version %s", c.Version, g[0].Hold.Version)
			}
			if x.commit {
				err = tx.Commit(ctx, driver.Work{Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: keep}})
			} else {
				err = tx.Rollback(ctx)
			}
			if err != nil {
				t.Errorf("end of the transaction of version %d: %v", x.n, err)
			}
		} else if tx != nil {
			_ = tx.Rollback(ctx) // nothing was claimed in it
		}
		cancel()
	}
	if ins, ok := driver.As[driver.RecordInspector](s.Store); ok {
		ctx, cancel := b.call()
		defer cancel()
		r, _, err := ins.Record(ctx, key)
		w := &r.Watermark
		if err != nil || w.Applied != driver.IntVersion(101) || len(w.Skipped) != 1 || !w.PassedOver(driver.IntVersion(50)) || w.PassedOver(driver.IntVersion(10)) {
			t.Errorf("the record's watermark is %+v (%v)", w, err)
		}
	}
}
