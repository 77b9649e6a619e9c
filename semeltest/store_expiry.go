package semeltest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file tests EXPIRED records (driver.LongTerm): how records expire at the end of their retention if their consumer has
// a long-term period, and which operations they allow then.

// period is the long-term period of these cases: longer than everything else.
const period = 400 * 24 * time.Hour

func expiryCases() []suiteCase[StoreSetup] {
	var all []suiteCase[StoreSetup]
	for _, c := range []struct {
		name string
		run  func(b *expiryBench)
	}{
		{"FM41 expired cells", testFM41ExpiredCells},
		{"FM41 long-term periods", testFM41Periods},
		{"FM41 expired records are purged", testFM41ExpiredPurged},
		{"FM41 expiry while records are redriven", testFM41ExpiryRace},
		{"FM41 expiry in transactions", testFM41ExpiredTx},
		{"expiry takes what belongs to the record", testExpiryTakes},
	} {
		all = append(all, suiteCase[StoreSetup]{c.name, func(t testing.TB, s StoreSetup) {
			lt, ok := driver.As[driver.LongTerm](s.Store)
			sw, sweeps := driver.As[driver.Sweeper](s.Store)
			if !ok || !sweeps {
				t.Log("left out: the store has no driver.LongTerm, or no driver.Sweeper")
				return
			}
			b := &expiryBench{bench: newBench(t, s), lt: lt, sw: sw}
			c.run(b)
			b.bad.report(t)
		}})
	}
	return all
}

// expiryBench is one case on one store.
type expiryBench struct {
	*bench
	lt driver.LongTerm
	sw driver.Sweeper
}

func (b *expiryBench) register(consumer string, d time.Duration) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	if err := b.lt.SetLongTerm(ctx, consumer, d); err != nil {
		b.t.Fatalf("SetLongTerm: %v", err)
	}
}

// sweepAll sweeps until there is no more, and sums up.
func (b *expiryBench) sweepAll(limit int) (sum driver.Swept) {
	b.t.Helper()
	for more := true; more; {
		var s driver.Swept
		s, more = sweepStep(b.t, b.sw, limit)
		if more && s.Count() == 0 {
			b.t.Fatalf("Sweep did nothing and says that there is more")
		}
		sum.Add(s)
	}
	sum.Lag = 0
	return sum
}

func (b *expiryBench) wantSwept(want driver.Swept) {
	b.t.Helper()
	if got := b.sweepAll(0); got != want {
		b.t.Fatalf("swept %+v, wanted %+v", got, want)
	}
}

// verdict claims a key as a new delivery.
func (b *expiryBench) verdict(k driver.Key) driver.Grant {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	g, err := b.Store.Claim(ctx, driver.Claim{Key: k, Nonce: newNonce(), Lease: long})
	if err != nil || len(g) != 1 || g[0].Err != nil {
		b.t.Fatalf("claim of %v: %+v, %v", k, g, err)
	}
	return g[0]
}

// testFM41ExpiredCells sweeps records of every state past their retention, and tries every operation on those that expired.
func testFM41ExpiredCells(b *expiryBench) {
	b.longTerm = period
	b.register("suite", period)
	_, operator := driver.As[driver.Operator](b.Store)
	var cells []*cell
	under := map[*cell]step{}
	for _, r := range recipes() {
		if r.operator && !operator {
			continue
		}
		for _, o := range b.operations() {
			for _, p := range []driver.Takeover{driver.Resume, driver.Once} {
				c := b.newCell(fmt.Sprintf("%s, expired, under %v: %s", r.name, p, o.name))
				c.policy, c.keep = p, short
				if !r.bare {
					c.fp = fpSame
				}
				c.steps = append(append(c.steps, r.steps...), barrier)
				under[c] = o.step
				cells = append(cells, c)
			}
			if !r.expires {
				break // no operation applies to it: one cell shows that it stays, or goes
			}
		}
	}
	cells = b.sampled(cells)
	b.run(cells)
	b.wait()
	b.sweep(b.sw, cells, 0)
	b.sweep(b.sw, cells, 0) // there is nothing left to do
	expired := 0
	for _, c := range cells {
		if c.steps = nil; c.model.State == driver.Expired {
			expired++
			c.keep = keep
			s := under[c]
			s.checked = true
			c.steps = []step{s, claimAs(driver.Resume)}
		}
	}
	b.run(cells)
	b.t.Logf("%d records swept, %d operations on expired ones compared", len(cells), expired)
}

// testFM41Periods: the longest period counts, 0 ends it, and it applies to one consumer.
func testFM41Periods(b *expiryBench) {
	for _, d := range []time.Duration{48 * time.Hour, period, 24 * time.Hour} {
		b.register("kept", d)
	}
	b.register("ended", time.Hour)
	b.register("ended", 0)
	b.register("never", 0)
	ctx, cancel := b.call()
	defer cancel()
	if all, err := b.lt.LongTerms(ctx); err != nil || len(all) != 1 || all["kept"] != period {
		b.bad.add("LongTerms returned %v, %v; wanted %v of one consumer", all, err, period)
	}
	for _, consumer := range []string{"kept", "ended", "never"} {
		k := driver.Key{Consumer: consumer, Tenant: "t", Raw: "k"}
		g := mustClaim(b.t, b.Store, k)[0]
		mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: driver.Complete, Result: []byte("r"), Keep: short})
	}
	b.wait()
	if got, more := sweepStep(b.t, b.sw, 2); got.Count() != 2 || !more {
		b.bad.add("a sweep with limit 2 returned %+v, more %v", got, more)
	}
	b.sweepAll(2)
	for consumer, want := range map[string]driver.Verdict{"kept": driver.Late, "ended": driver.Acquired, "never": driver.Acquired} {
		if g := b.verdict(driver.Key{Consumer: consumer, Tenant: "t", Raw: "k"}); g.Verdict != want {
			b.bad.add("a late duplicate of consumer %q returned %v, wanted %v", consumer, g.Verdict, want)
		}
	}
}

// testFM41ExpiredPurged: an expired record is purged after its period, and not before. Its token is not used again.
func testFM41ExpiredPurged(b *expiryBench) {
	b.register("suite", period)
	last := map[driver.Key]uint64{}
	for _, h := range endedRecords(b.t, b.Store, 5, "kept", driver.Finish{Final: driver.Complete, Keep: short}) {
		last[h.Key] = h.Token
	}
	b.wait()
	b.wantSwept(driver.Swept{Expired: 5})
	b.wait()
	b.wantSwept(driver.Swept{})
	if b.Advance == nil { // with a real clock the period is short
		b.register("suite", 0)
		b.register("suite", 10*short)
		for _, h := range endedRecords(b.t, b.Store, 5, "short", driver.Finish{Final: driver.Complete, Keep: short}) {
			last[h.Key] = h.Token
		}
		b.wait()
		first := b.sweepAll(0)
		for range 10 {
			b.wait()
		}
		if rest := b.sweepAll(0); first.Count() == 0 || first.Purged+rest.Purged != 5 {
			b.bad.add("swept %+v, and %+v after the period; wanted 5 purged", first, rest)
		}
	} else {
		b.Advance(period - time.Hour)
		b.wantSwept(driver.Swept{})
		b.Advance(2 * time.Hour)
		b.wantSwept(driver.Swept{Purged: 5})
	}
	fresh := 0
	for k, token := range last {
		g := b.verdict(k)
		if g.Verdict == driver.Late && b.Advance == nil {
			continue
		}
		fresh++
		if g.Verdict != driver.Acquired || g.Hold.Token <= token {
			b.bad.add("key %q after its purge: %v with token %d, the last one was %d", k.Raw, g.Verdict, g.Hold.Token, token)
		}
	}
	if fresh != 5 {
		b.bad.add("%d keys are new after their period, wanted 5", fresh)
	}
}

// testFM41ExpiryRace: failed records are redriven while sweeps expire them. In either order each of them is open
// afterwards, because the write that expires a record checks it again.
func testFM41ExpiryRace(b *expiryBench) {
	op, ok := driver.As[driver.Operator](b.Store)
	if !ok {
		b.t.Log("left out: the store has no driver.Operator")
		return
	}
	b.register("suite", period)
	const n = 60
	failed := endedRecords(b.t, b.Store, n, "reopened", driver.Finish{Final: driver.Fail, Keep: short})
	b.wait()
	stop := b.sweepBeside()
	for i := len(failed) - 1; i >= 0; i-- { // most sweeps begin with the oldest
		stop.meet(i)
		h := failed[i]
		_, out, err := op.Operate(b.t.Context(), driver.Operation{
			Kind: driver.Redrive, Key: h.Key, Token: h.Token, Generation: h.Generation, Keep: keep, By: "suite",
		})
		if err != nil || out != driver.Applied {
			b.bad.add("redrive of key %q returned %v, %v", h.Key.Raw, out, err)
		}
	}
	stop.end()
	b.sweepAll(0)
	for _, h := range failed {
		if g := b.verdict(h.Key); g.Verdict != driver.Acquired || g.Hold.Generation != 2 {
			b.bad.add("key %q was redriven, and a sweep ended it all the same: %v, generation %d", h.Key.Raw, g.Verdict, g.Hold.Generation)
		}
	}
}

// testFM41ExpiredTx: in an open transaction an expired key is late too, and the others run.
func testFM41ExpiredTx(b *expiryBench) {
	tr, ok := transactor(b.t, b.StoreSetup)
	if !ok {
		return
	}
	b.register("suite", period)
	h := endedRecords(b.t, b.Store, 1, "expired", driver.Finish{Final: driver.Complete, Keep: short})[0]
	b.wait()
	b.wantSwept(driver.Swept{Expired: 1})
	fresh := keys(1, "fresh-%d")[0]
	ctx, cancel := b.call()
	defer cancel()
	tx, gs, err := tr.Begin(ctx, driver.Claim{Key: h.Key, Nonce: newNonce(), Lease: long, Fingerprint: fpOther},
		driver.Claim{Key: fresh, Nonce: newNonce(), Lease: long})
	if err != nil || gs[0].Verdict != driver.Late || gs[1].Verdict != driver.Acquired || gs[0].Reason == "" {
		b.t.Fatalf("Begin returned %+v, %v", gs, err)
	}
	err = tx.Commit(ctx, driver.Work{Finish: driver.Finish{Hold: gs[1].Hold, Final: driver.Complete, Keep: keep}})
	if err != nil {
		b.t.Fatalf("commit: %v", err)
	}
	for k, want := range map[driver.Key]driver.Verdict{h.Key: driver.Late, fresh: driver.Replay} {
		if g := b.verdict(k); g.Verdict != want {
			b.bad.add("key %q after the transaction: %v, wanted %v", k.Raw, g.Verdict, want)
		}
	}
	tx, gs, err = tr.Begin(ctx, driver.Claim{Key: h.Key, Nonce: newNonce(), Lease: long})
	if err != nil || gs[0].Verdict != driver.Late {
		b.bad.add("a transaction of an expired key alone: %+v, %v", gs, err)
	}
	if tx != nil {
		if err := tx.Rollback(ctx); err != nil {
			b.bad.add("rollback: %v", err)
		}
	}
}

// testExpiryTakes: journal, audit entries and duplicates of a record go when it expires. Others' stay.
func testExpiryTakes(b *expiryBench) {
	b.register("suite", period)
	ctx, cancel := b.call()
	defer cancel()
	steps, hasSteps := driver.As[driver.StepStore](b.Store)
	audit, hasAudit := driver.As[driver.AuditLog](b.Store)
	op, operates := driver.As[driver.Operator](b.Store)
	dups, hasDups := driver.As[driver.DuplicateLog](b.Store)
	ks := keys(2, "belongs-%d")
	holds := make([]driver.Hold, 2)
	for i, k := range ks {
		g := mustClaim(b.t, b.Store, k)[0]
		mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: driver.Fail, Keep: keep})
		if operates {
			_, o, err := op.Operate(ctx, driver.Operation{Kind: driver.Redrive, Key: k, Token: g.Hold.Token, Generation: 1, Keep: keep, By: "ann"})
			if err != nil || o != driver.Applied {
				b.t.Fatalf("redrive: %v, %v", o, err)
			}
			g = mustClaim(b.t, b.Store, k)[0]
		}
		holds[i] = g.Hold
		if hasSteps && operates {
			if o, err := steps.WriteSteps(ctx, g.Hold, driver.StepWrite{Kind: driver.FinishStep, Name: "pay"}); err != nil || o != driver.Applied {
				b.t.Fatalf("WriteSteps: %v, %v", o, err)
			}
		}
		if !operates {
			continue
		}
		f := driver.Finish{Hold: g.Hold, Final: driver.Complete, Result: bytes.Repeat([]byte("r"), 100), Keep: keep}
		if i == 0 {
			f.Keep = short
		}
		mustFinish(b.t, b.Store, driver.Applied, f)
		if hasDups {
			if err := dups.AddDuplicates(ctx, driver.Duplicate{Key: k, MessageID: "m", At: time.Now(), Decision: "replayed"}); err != nil {
				b.t.Fatalf("AddDuplicates: %v", err)
			}
		}
	}
	if !operates {
		b.t.Log("left out: the store has no driver.Operator")
		return
	}
	b.wait()
	b.wantSwept(driver.Swept{Expired: 1})
	for i, k := range ks {
		if hasSteps {
			rows, err := steps.Steps(ctx, holds[i])
			b.wantLeft("steps", i, len(rows), err)
		}
		if hasAudit {
			es, err := audit.Audit(ctx, driver.AuditFilter{Key: k})
			b.wantLeft("audit entries", i, len(es), err)
		}
		if hasDups {
			n, _, err := dups.Duplicates(ctx, k)
			b.wantLeft("duplicates", i, int(n), err)
		}
	}
}

func (b *expiryBench) wantLeft(what string, i, n int, err error) {
	if err != nil || n != i {
		b.bad.add("record %d has %d %s after the expiry of record 0, wanted %d (%v)", i, n, what, i, err)
	}
}

// testErase: an erased key begins anew under a greater token. Its audit entries are deleted, and one entry stays that does
// not name the key.
func testErase(t testing.TB, s StoreSetup) {
	op, ok := driver.As[driver.Operator](s.Store)
	if !ok {
		t.Log("left out: the store has no driver.Operator")
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	k := keys(1, "erased-%d")[0]
	if _, _, err := op.Operate(ctx, driver.Operation{Kind: driver.Erase, Key: k}); unsupported(err) {
		t.Log("left out: ", err)
		return
	}
	last := driver.Hold{}
	for round := range 4 {
		g := mustClaim(t, s.Store, k)[0]
		if g.Hold.Token <= last.Token || g.Hold.Generation != 1 {
			t.Fatalf("round %d: token %d, generation %d after token %d", round, g.Hold.Token, g.Hold.Generation, last.Token)
		}
		last = g.Hold
		erase := func(want driver.Outcome) {
			t.Helper()
			r, o, err := op.Operate(ctx, driver.Operation{Kind: driver.Erase, Key: k, By: "ann", Reason: "asked for"})
			if err != nil || o != want || o == driver.Applied && r.State != driver.Absent {
				t.Fatalf("round %d: erase returned %+v, %v, %v", round, r, o, err)
			}
		}
		erase(driver.Lost) // in progress
		mustFinish(t, s.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: driver.Fail, Keep: keep})
		_, o, err := op.Operate(ctx, driver.Operation{Kind: driver.Discard, Key: k, Token: g.Hold.Token, Generation: 1, By: "bob"})
		if err != nil || o != driver.Applied {
			t.Fatalf("discard: %v, %v", o, err)
		}
		erase(driver.Applied)
		erase(driver.Lost) // there is none any more
		mustFinish(t, s.Store, driver.Lost, driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep})
		if log, ok := driver.As[driver.AuditLog](s.Store); ok {
			es, err := log.Audit(ctx, driver.AuditFilter{Consumer: k.Consumer})
			if err != nil || len(es) != round+1 {
				t.Fatalf("round %d: %d audit entries, %v", round, len(es), err)
			}
			if e := es[round]; e.Kind != driver.Erase || e.Key.Raw != "" || e.By != "ann" || e.From != driver.FailedState || e.To != driver.Absent {
				t.Fatalf("round %d: the audit entry is %+v", round, e)
			}
		}
	}
}
