package semeltest

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// auditCases test the operators' audit log that a driver.AuditLog keeps.
func auditCases() []suiteCase[StoreSetup] {
	with := func(f func(b *auditBench)) func(testing.TB, StoreSetup) {
		return func(t testing.TB, s StoreSetup) {
			log, ok := driver.As[driver.AuditLog](s.Store)
			op, operates := driver.As[driver.Operator](s.Store)
			if !ok || !operates {
				t.Log("left out: the store is no driver.AuditLog")
				return
			}
			b := &auditBench{bench: newBench(t, s), log: log, op: op}
			f(b)
			b.bad.report(t)
		}
	}
	return []suiteCase[StoreSetup]{
		{"audit log, an entry for every change", with(testAuditEntries)},
		{"audit log, filters", with(testAuditFilters)},
		{"audit log goes with its record", with(testAuditPurged)},
		{"audit log, refused requests", with(testRefusals)},
	}
}

// auditBench operates on one store, and keeps the entries that its audit log must have.
type auditBench struct {
	*bench
	log  driver.AuditLog
	op   driver.Operator
	want []driver.AuditEntry
}

// apply carries out an operation on a record, and adds the entry that it must leave. It returns the record afterwards.
func (b *auditBench) apply(before driver.Record, op driver.Operation, want driver.Outcome, leaves bool) driver.Record {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	op.Key, op.Keep = before.Key, keep
	after, o, err := b.op.Operate(ctx, op)
	if err != nil || o != want {
		b.t.Fatalf("%v of key %q returned %v, %v; wanted %v", op.Kind, op.Key.Raw, o, err, want)
	}
	if leaves {
		b.want = append(b.want, op.Entry(before, after, after.UpdatedAt))
	}
	return after
}

// again carries out an operation that leaves an entry, and repeats it: that leaves none.
func (b *auditBench) again(before driver.Record, op driver.Operation) driver.Record {
	b.t.Helper()
	op.Token, op.Generation = before.Token, before.Generation
	after := b.apply(before, op, driver.Applied, true)
	b.apply(before, op, driver.Applied, false)
	return after
}

// ended makes a record whose attempt ended with final.
func (b *auditBench) ended(k driver.Key, final driver.Final) driver.Record {
	b.t.Helper()
	g := mustClaim(b.t, b.Store, k)[0]
	if final != 0 {
		mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: final, Ran: driver.MaybeApplied, Keep: keep})
	}
	return driver.Record{Key: k, State: [...]driver.State{
		driver.InProgress, driver.Completed, driver.FailedState, driver.Released, driver.Uncertain,
	}[final], Generation: 1, Token: g.Hold.Token}
}

// check compares a list with the expected entries that which selects; nil selects all.
func (b *auditBench) check(what string, f driver.AuditFilter, which func(i int, e *driver.AuditEntry) bool) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	got, err := b.log.Audit(ctx, f)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	var want []driver.AuditEntry
	for i := range b.want {
		if which == nil || which(i, &b.want[i]) {
			want = append(want, b.want[i])
		}
	}
	if len(got) != len(want) {
		b.bad.add("%s: %d entries, wanted %d", what, len(got), len(want))
		return
	}
	for i := range got {
		for _, d := range diffEntry(got[i], want[i]) {
			b.bad.add("%s: entry %d (%v of %q): %s", what, i, want[i].Kind, want[i].Key.Raw, d)
		}
	}
}

func diffEntry(got, want driver.AuditEntry) differ {
	var d differ
	off := got.At.Sub(want.At).Abs()
	d.eq("at", off < time.Millisecond, got.At, want.At)
	d.eq("by", got.By == want.By, got.By, want.By)
	d.eq("kind", got.Kind == want.Kind, got.Kind, want.Kind)
	d.eq("key", got.Key == want.Key, got.Key, want.Key)
	d.eq("generation", got.Generation == want.Generation, got.Generation, want.Generation)
	d.eq("token", got.Token == want.Token, got.Token, want.Token)
	d.eq("from", got.From == want.From, got.From, want.From)
	d.eq("to", got.To == want.To, got.To, want.To)
	d.eq("reason", got.Reason == want.Reason, got.Reason, want.Reason)
	d.eq("verified", got.Verified == want.Verified, got.Verified, want.Verified)
	d.eq("renewed", got.Renewed == want.Renewed, got.Renewed, want.Renewed)
	return d
}

// testAuditEntries does everything that an operator can do. Each change leaves one entry with the state before it. A
// repetition or a refusal leaves none.
func testAuditEntries(b *auditBench) {
	ks := keys(9, "audit-%d")
	b.again(b.ended(ks[0], driver.Park), driver.Operation{Kind: driver.Resolve, As: driver.Completed, By: "ann", Reason: "it is in the ledger"})
	b.again(b.ended(ks[1], driver.Park), driver.Operation{Kind: driver.Resolve, As: driver.FailedState, By: "bob"})
	b.again(b.ended(ks[2], driver.Park), driver.Operation{Kind: driver.Resolve, As: driver.Released, By: "b\x00\xffö'; --", Reason: "r\x00\xffö"})
	b.again(b.ended(ks[3], driver.Fail), driver.Operation{Kind: driver.Redrive, By: "ann", Verified: true, Reason: "hinted"})
	b.again(b.ended(ks[4], driver.Complete), driver.Operation{Kind: driver.Redrive, By: "ann", NewGeneration: true})
	failed := b.again(b.ended(ks[5], driver.Fail), driver.Operation{Kind: driver.Discard, By: "ann"})
	b.again(failed, driver.Operation{Kind: driver.Redrive})
	b.again(b.ended(ks[6], 0), driver.Operation{Kind: driver.ForceRelease, By: "ann", Reason: "it hangs"})
	b.again(b.ended(ks[8], driver.Complete), driver.Operation{Kind: driver.Reopen, By: "ann", Reason: "the file was lost"})
	completed := b.ended(ks[7], driver.Complete)
	b.apply(completed, driver.Operation{Kind: driver.Discard, By: "eve"}, driver.Lost, false)
	b.apply(completed, driver.Operation{Kind: driver.Redrive, NewGeneration: true, Token: completed.Token + 1, By: "eve"}, driver.Lost, false)
	b.apply(driver.Record{Key: driver.Key{Raw: "no such key"}}, driver.Operation{Kind: driver.Discard, By: "eve"}, driver.Lost, false)
	b.check("the whole log", driver.AuditFilter{}, nil)
}

// testAuditFilters lists parts of an audit log.
func testAuditFilters(b *auditBench) {
	ks := append(keys(2, "filter-%d"), driver.Key{Consumer: "other", Tenant: "t", Raw: "filter-0"}, driver.Key{Consumer: "other", Raw: "filter-0"})
	var since time.Time
	for round := range 3 {
		for _, k := range ks {
			if round > 0 {
				b.again(b.reopened(k), driver.Operation{Kind: driver.Discard, By: "ann"})
				continue
			}
			b.again(b.ended(k, driver.Fail), driver.Operation{Kind: driver.Redrive, By: "ann"})
		}
		b.wait()
		if round == 1 {
			since = b.want[len(b.want)-1].At.Add(time.Microsecond)
		}
	}
	n := len(b.want)
	b.check("all", driver.AuditFilter{}, nil)
	b.check("the latest", driver.AuditFilter{Limit: 5}, func(i int, _ *driver.AuditEntry) bool { return i >= n-5 })
	b.check("more than there are", driver.AuditFilter{Limit: n + 1}, nil)
	b.check("since the second round", driver.AuditFilter{Since: since}, func(_ int, e *driver.AuditEntry) bool { return e.At.After(since) })
	b.check("since now", driver.AuditFilter{Since: b.want[n-1].At.Add(time.Hour)}, func(int, *driver.AuditEntry) bool { return false })
	b.check("of a consumer", driver.AuditFilter{Consumer: "other"}, func(_ int, e *driver.AuditEntry) bool { return e.Key.Consumer == "other" })
	for _, k := range ks {
		b.check("of a key", driver.AuditFilter{Key: k}, func(_ int, e *driver.AuditEntry) bool { return e.Key == k })
	}
	last := 0
	for i := range b.want {
		if b.want[i].Key == ks[1] {
			last = i
		}
	}
	b.check("the latest of a key", driver.AuditFilter{Key: ks[1], Limit: 1, Consumer: "suite"}, func(i int, _ *driver.AuditEntry) bool { return i == last })
	b.check("of a key that nobody touched", driver.AuditFilter{Key: driver.Key{Raw: "untouched"}}, func(int, *driver.AuditEntry) bool { return false })
}

// reopened makes a key fail once more. A redrive of one that had failed leaves its own entry.
func (b *auditBench) reopened(k driver.Key) driver.Record {
	b.t.Helper()
	ins, ok := driver.As[driver.RecordInspector](b.Store)
	if !ok {
		b.t.Fatal("the store is no driver.RecordInspector")
	}
	r, _, err := ins.Record(b.t.Context(), k)
	if err != nil {
		b.t.Fatal(err)
	}
	if r.State == driver.FailedState {
		b.again(r, driver.Operation{Kind: driver.Redrive, By: "ann"})
	}
	g := mustClaim(b.t, b.Store, k)[0]
	mustFinish(b.t, b.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: driver.Fail, Ran: driver.NotApplied, Keep: keep})
	return driver.Record{Key: k, State: driver.FailedState, Generation: g.Hold.Generation, Token: g.Hold.Token}
}

// testAuditPurged purges a record: its entries go, those of others stay.
func testAuditPurged(b *auditBench) {
	sw, ok := driver.As[driver.Sweeper](b.Store)
	if !ok {
		b.t.Log("left out: the store has no driver.Sweeper")
		return
	}
	ks := keys(2, "gone-%d")
	for _, k := range ks {
		r := b.again(b.ended(k, driver.Park), driver.Operation{Kind: driver.Resolve, As: driver.Released, By: "ann"})
		g := mustClaim(b.t, b.Store, r.Key)[0]
		f := driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep}
		if k == ks[0] {
			f.Keep = short
		}
		mustFinish(b.t, b.Store, driver.Applied, f)
	}
	b.wait()
	if got, _, err := sw.Sweep(b.t.Context(), 0, 100); err != nil || got.Purged != 1 {
		b.t.Fatalf("sweep returned %+v, %v; wanted one record purged", got, err)
	}
	b.check("after the purge", driver.AuditFilter{}, func(i int, _ *driver.AuditEntry) bool { return i == 1 })
	b.check("of the purged key", driver.AuditFilter{Key: ks[0]}, func(int, *driver.AuditEntry) bool { return false })
}

// testRefusals stores refused requests: one entry for each ID, the latest, which no key has.
func testRefusals(b *auditBench) {
	log, ok := driver.As[driver.RefusalLog](b.Store)
	if !ok {
		b.t.Log("left out: the store is no driver.RefusalLog")
		return
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	refuse := func(id, by, reason string) driver.AuditEntry {
		b.t.Helper()
		e := driver.AuditEntry{At: at, By: by, Kind: driver.Refuse, Key: driver.Key{Consumer: "c"}, Reason: reason}
		ctx, cancel := b.call()
		defer cancel()
		if err := log.LogRefusal(ctx, id, e); err != nil {
			b.t.Fatalf("log refusal %s: %v", id, err)
		}
		return e
	}
	refuse("1", "ana", "POST /key")
	other := refuse("2", "", "POST /discard")
	again := refuse("1", "ana", "POST /key, 2 times")
	b.want = []driver.AuditEntry{other, again}
	b.check("refused requests", driver.AuditFilter{}, nil)
	b.check("refused requests of a consumer", driver.AuditFilter{Consumer: "c"}, nil)
	b.check("refused requests of another consumer", driver.AuditFilter{Consumer: "d"}, func(int, *driver.AuditEntry) bool { return false })
}
