package semeltest

import (
	"slices"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// caseCases test the list of records that need a person, which a driver.CaseLister keeps.
func caseCases() []suiteCase[StoreSetup] {
	with := func(f func(b *caseBench)) func(testing.TB, StoreSetup) {
		return func(t testing.TB, s StoreSetup) {
			list, ok := driver.As[driver.CaseLister](s.Store)
			if !ok {
				t.Log("left out: the store is no driver.CaseLister")
				return
			}
			f(&caseBench{bench: newBench(t, s), list: list})
		}
	}
	return []suiteCase[StoreSetup]{
		{"cases open and close", with(testCasesClose)},
		{"cases by page", with(testCasesPaged)},
		{"cases go with their record", with(testCasesPurged)},
		{"FM82 a case that cannot be read", with(testCasesUnreadable)},
	}
}

type caseBench struct {
	*bench
	list driver.CaseLister
}

// end makes the record of a key, and ends its run.
func (b *caseBench) end(k driver.Key, f driver.Finish) driver.Hold {
	b.t.Helper()
	f.Hold = mustClaim(b.t, b.Store, k)[0].Hold
	mustFinish(b.t, b.Store, driver.Applied, f)
	return f.Hold
}

// page lists one page.
func (b *caseBench) page(f driver.CaseFilter) (keys []string, next driver.Cursor) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	rs, next, err := b.list.Cases(ctx, f)
	if err != nil {
		b.t.Fatalf("list cases %+v: %v", f, err)
	}
	for i := range rs {
		if r := &rs[i]; !r.Case() || f.State != driver.Absent && r.State != f.State || r.Token == 0 || r.UpdatedAt.IsZero() {
			b.t.Errorf("cases %+v: they have record %+v", f, *r)
		}
		keys = append(keys, rs[i].Key.Consumer+"/"+rs[i].Key.Raw)
	}
	if len(keys) > f.Limit {
		b.t.Errorf("cases %+v: %d in a page", f, len(keys))
	}
	return keys, next
}

// all lists every page, and compares the keys.
func (b *caseBench) all(what string, f driver.CaseFilter, want ...string) {
	b.t.Helper()
	var got []string
	for range len(want) + 3 {
		keys, next := b.page(f)
		got = append(got, keys...)
		if f.After = next; next == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("cases %s: %q, wanted %q", what, got, want)
	}
}

func (b *caseBench) count(consumer string, state driver.State, most, want int) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	if n, err := b.list.CountCases(ctx, consumer, state, most); err != nil || n != want {
		b.t.Errorf("%d cases of consumer %q in state %v up to %d, %v; wanted %d", n, consumer, state, most, err, want)
	}
}

var (
	failed = driver.Finish{Final: driver.Fail, Ran: driver.NotApplied, Keep: keep, Reason: "refused"}
	parked = driver.Finish{Final: driver.Park, Reason: "no response"}
)

// testCasesClose ends cases in each way but the removal of the record.
func testCasesClose(b *caseBench) {
	key := func(raw string) driver.Key { return driver.Key{Consumer: "a", Raw: raw} }
	done := failed
	done.Final = driver.Complete
	b.end(key("done"), done)
	holds := map[string]driver.Hold{}
	for raw, f := range map[string]driver.Finish{
		"discarded": failed, "redriven": failed, "fails again": failed, "late": parked, "resolved": parked, "resolved as failed": parked,
	} {
		holds[raw] = b.end(key(raw), f)
	}
	b.count("a", driver.FailedState, 10, 3)
	b.count("a", driver.Uncertain, 10, 3)
	late := done
	late.Hold = holds["late"]
	mustFinish(b.t, b.Store, driver.Recovered, late)
	b.count("a", driver.Uncertain, 10, 2)
	op, ok := driver.As[driver.Operator](b.Store)
	if !ok {
		b.t.Log("left out: the store is no driver.Operator")
		return
	}
	operate := func(raw string, kind driver.OperationKind, to driver.State) {
		b.t.Helper()
		h := holds[raw]
		_, o, err := op.Operate(b.t.Context(), driver.Operation{
			Kind: kind, Key: h.Key, Token: h.Token, Generation: h.Generation, As: to, By: "test", Reason: "seen", Keep: keep,
		})
		if err != nil || o != driver.Applied {
			b.t.Fatalf("%v of key %q: %v, %v", kind, raw, o, err)
		}
	}
	operate("discarded", driver.Discard, driver.Absent)
	operate("resolved", driver.Resolve, driver.Completed)
	operate("resolved as failed", driver.Resolve, driver.FailedState)
	for _, raw := range []string{"redriven", "fails again"} {
		operate(raw, driver.Redrive, driver.Absent)
	}
	b.all("after operations", driver.CaseFilter{Limit: 10})
	b.end(key("redriven"), done)
	b.wait()
	b.end(key("fails again"), failed)
	b.all("after a second failure", driver.CaseFilter{Limit: 10}, "a/fails again")
	b.count("", driver.Absent, 10, 1)
}

// testCasesPaged lists many cases of two consumers.
func testCasesPaged(b *caseBench) {
	var a, all, uncertain []string
	for i, raw := range []string{"k1", "k0\x00\xffö'; --", "k3", "k2", "k4", "k9", "k8"} {
		k, f := driver.Key{Consumer: "a", Raw: raw}, failed
		if i%3 == 1 {
			k.Consumer = "b"
		}
		if i%2 == 1 {
			f = parked
		}
		b.end(k, f)
		b.wait() // the next one has a later time
		name := k.Consumer + "/" + raw
		if all = append(all, name); k.Consumer == "a" {
			a = append(a, name)
		}
		if f.Final == driver.Park {
			uncertain = append(uncertain, name)
		}
	}
	for limit := 1; limit <= len(all)+1; limit++ {
		b.all("by page", driver.CaseFilter{Limit: limit}, all...)
		b.all("of one consumer", driver.CaseFilter{Consumer: "a", Limit: limit}, a...)
		b.all("in one state", driver.CaseFilter{State: driver.Uncertain, Limit: limit}, uncertain...)
	}
	newest := slices.Clone(all)
	slices.Reverse(newest)
	b.all("newest first", driver.CaseFilter{Newest: true, Limit: 2}, newest...)
	b.count("", driver.Absent, 10, len(all))
	b.count("", driver.FailedState, 2, 2)
	b.count("nobody", driver.Absent, 10, 0)
	if _, next := b.page(driver.CaseFilter{Limit: len(all)}); next != "" {
		b.t.Errorf("the last page has the next cursor %q", next)
	}
	for _, f := range []driver.CaseFilter{{}, {Limit: 1, State: driver.Completed}, {Limit: 1, After: "no cursor"}} {
		if rs, _, err := b.list.Cases(b.t.Context(), f); err == nil {
			b.t.Errorf("cases %+v: %d records, and no error", f, len(rs))
		}
	}
	// A case that was the last of its page is closed before the next page is read.
	first, next := b.page(driver.CaseFilter{Limit: 1})
	if op, ok := driver.As[driver.Operator](b.Store); ok && slices.Equal(first, all[:1]) {
		_, o, err := op.Operate(b.t.Context(), driver.Operation{Kind: driver.Erase, Key: driver.Key{Consumer: "a", Raw: "k1"}, By: "test"})
		if unsupported(err) {
			return
		}
		if err != nil || o != driver.Applied {
			b.t.Fatalf("erase: %v, %v", o, err)
		}
		b.all("behind an erased one", driver.CaseFilter{Limit: 2, After: next}, all[1:]...)
		b.all("after an erasure", driver.CaseFilter{Limit: 10}, all[1:]...)
		b.count("", driver.Absent, 10, len(all)-1)
	}
}

// testCasesPurged ends cases by the end of their retention, and opens one by a sweep.
func testCasesPurged(b *caseBench) {
	sw, ok := driver.As[driver.Sweeper](b.Store)
	if !ok {
		b.t.Log("left out: the store is no driver.Sweeper")
		return
	}
	gone, expires := failed, failed
	gone.Keep, expires.Keep = short, short
	want := driver.Swept{Purged: 1, Abandoned: 1}
	if lt, ok := driver.As[driver.LongTerm](b.Store); ok {
		if err := lt.SetLongTerm(b.t.Context(), "expires", keep); err != nil {
			b.t.Fatal(err)
		}
		b.end(driver.Key{Consumer: "expires", Raw: "expired"}, expires)
		want.Expired = 1
	}
	b.end(driver.Key{Raw: "gone"}, gone)
	b.end(driver.Key{Raw: "stays"}, failed)
	c := driver.Claim{Key: driver.Key{Raw: "abandoned"}, Nonce: newNonce(), Lease: short}
	if gs, err := b.Store.Claim(b.t.Context(), c); err != nil || gs[0].Verdict != driver.Acquired {
		b.t.Fatal(gs, err)
	}
	b.wait()
	b.wait()
	got, _, err := sw.Sweep(b.t.Context(), short, 100)
	if err != nil || got.Purged != want.Purged || got.Expired != want.Expired || got.Abandoned != want.Abandoned {
		b.t.Fatalf("sweep returned %+v, %v; wanted %+v", got, err, want)
	}
	b.all("after a sweep", driver.CaseFilter{Limit: 10}, "/stays", "/abandoned")
	b.count("", driver.Absent, 10, 2)
}

// testCasesUnreadable damages the record of one case at each position of a page: the others are listed.
func testCasesUnreadable(b *caseBench) {
	if b.Damage == nil {
		b.t.Log("left out: StoreSetup.Damage is nil")
		return
	}
	var all []string
	for _, raw := range []string{"k0", "k1", "k2", "k3", "k4"} {
		b.end(driver.Key{Raw: raw}, parked)
		b.wait()
		all = append(all, "/"+raw)
	}
	for _, at := range []int{2, 3, 0} { // the middle of five, the end of four, the beginning of three
		b.Damage(b.t, driver.Key{Raw: all[at][1:]})
		all = slices.Delete(all, at, at+1)
		newest := slices.Clone(all)
		slices.Reverse(newest)
		for _, limit := range []int{1, 2, 10} {
			b.all("that can be read", driver.CaseFilter{Limit: limit}, all...)
			b.all("that can be read, newest first", driver.CaseFilter{Newest: true, Limit: limit}, newest...)
		}
	}
}
