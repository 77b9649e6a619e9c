package semeltest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// testRecords lists records: oldest first, filtered, limited.
func testRecords(t testing.TB, s StoreSetup) {
	ins, ok := driver.As[driver.RecordInspector](s.Store)
	if !ok {
		t.Log("left out: the store has no driver.RecordInspector")
		return
	}
	pass := func() {
		if s.Advance != nil {
			s.Advance(time.Second)
		} else {
			time.Sleep(3 * time.Millisecond) // stores keep times in milliseconds at worst
		}
	}
	var held driver.Grant
	for i := range 6 {
		k := driver.Key{Consumer: fmt.Sprint("consumer-", i%2), Raw: fmt.Sprint(i)}
		g := mustClaim(t, s.Store, k)[0]
		if i%3 == 0 {
			mustFinish(t, s.Store, driver.Applied, complete(g))
		}
		if i == 1 {
			held = g
		}
		pass()
	}
	type listing struct {
		filter driver.RecordFilter
		want   []string
	}
	list := func(x listing) {
		t.Helper()
		rs, err := ins.Records(t.Context(), x.filter)
		var got []string
		for _, r := range rs {
			got = append(got, r.Key.Raw)
		}
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("records with %+v: keys %v, %v, wanted %v", x.filter, got, err, x.want)
		}
	}
	for _, x := range []listing{
		{driver.RecordFilter{}, []string{"0", "1", "2", "3", "4", "5"}},
		{driver.RecordFilter{Limit: 2}, []string{"0", "1"}},
		{driver.RecordFilter{Consumer: "consumer-1"}, []string{"1", "3", "5"}},
		{driver.RecordFilter{State: driver.Completed}, []string{"0", "3"}},
		{driver.RecordFilter{State: driver.InProgress, Consumer: "consumer-0", Limit: 1}, []string{"2"}},
		{driver.RecordFilter{State: driver.Uncertain}, nil},
		{driver.RecordFilter{Consumer: "nobody"}, nil},
	} {
		list(x)
	}
	mustFinish(t, s.Store, driver.Applied, complete(held))
	for _, x := range []listing{
		{driver.RecordFilter{Newest: true}, []string{"1", "5", "4", "3", "2", "0"}},
		{driver.RecordFilter{Newest: true, Limit: 2}, []string{"1", "5"}},
		{driver.RecordFilter{Newest: true, Consumer: "consumer-0", Limit: 2}, []string{"4", "2"}},
		{driver.RecordFilter{Newest: true, State: driver.Completed}, []string{"1", "3", "0"}},
		{driver.RecordFilter{Newest: true, State: driver.Uncertain}, nil},
	} {
		list(x)
	}
	if _, found, err := ins.Record(t.Context(), driver.Key{Consumer: "consumer-0", Raw: "1"}); found || err != nil {
		t.Errorf("record of a key of another consumer: found %v, %v", found, err)
	}
	testScan(t, s.Store)
}

// testUncertain lists the UNCERTAIN records, which metrics count: they are in the list however they became uncertain, until
// the doubt is resolved.
func testUncertain(t testing.TB, s StoreSetup) {
	ins, ok := driver.As[driver.RecordInspector](s.Store)
	if !ok {
		t.Log("left out: the store has no driver.RecordInspector")
		return
	}
	b := newBench(t, s)
	expect := func(when, consumer string, want ...string) {
		t.Helper()
		rs, err := ins.Records(t.Context(), driver.RecordFilter{Consumer: consumer, State: driver.Uncertain, Limit: 10})
		var got []string
		for _, r := range rs {
			got = append(got, r.Key.Raw)
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("uncertain records %s: keys %v, %v, wanted %v", when, got, err, want)
		}
	}
	key := func(consumer, raw string) driver.Key { return driver.Key{Consumer: consumer, Raw: raw} }
	var late, resolved driver.Hold
	for _, x := range []struct {
		consumer, raw string
		hold          *driver.Hold
	}{{"a", "late", &late}, {"a", "resolved", &resolved}, {"b", "other", new(driver.Hold)}} {
		g := mustClaim(t, s.Store, key(x.consumer, x.raw))[0]
		*x.hold = g.Hold
		mustFinish(t, s.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: driver.Park, Reason: "no response"})
	}
	mustFinish(t, s.Store, driver.Applied, complete(mustClaim(t, s.Store, key("a", "done"))[0]))
	abandoned := driver.Claim{Key: key("a", "taken"), Nonce: newNonce(), Lease: short, Takeover: driver.Once}
	for _, want := range []driver.Verdict{driver.Acquired, driver.Parked} {
		gs, err := s.Store.Claim(t.Context(), abandoned)
		if err != nil || gs[0].Verdict != want {
			t.Fatalf("%v, %v, wanted %v", gs, err, want)
		}
		b.wait()
		abandoned.Nonce = newNonce()
	}
	expect("after runs were parked", "a", "late", "resolved", "taken")
	expect("of all consumers", "", "late", "other", "resolved", "taken")

	mustFinish(t, s.Store, driver.Recovered, driver.Finish{Hold: late, Final: driver.Complete, Keep: keep})
	expect("after one was completed late", "a", "resolved", "taken")
	if op, ok := driver.As[driver.Operator](s.Store); ok {
		_, o, err := op.Operate(t.Context(), driver.Operation{
			Kind: driver.Resolve, Key: resolved.Key, Token: resolved.Token, Generation: resolved.Generation,
			As: driver.FailedState, Keep: keep, By: "suite",
		})
		if err != nil || o != driver.Applied {
			t.Fatal(o, err)
		}
		expect("after another was resolved", "a", "taken")
	}
	expect("of a consumer that has nothing to do with it", "b", "other")
}

// scanned is more than one page of any store.
const scanned = 2345

// testScan scans more records than a store reads at once: each is returned once, in any order.
func testScan(t testing.TB, s driver.Store) {
	scan, ok := driver.As[driver.RecordScanner](s)
	if !ok {
		t.Log("left out: the store has no driver.RecordScanner")
		return
	}
	all, some := map[driver.Key]int{}, map[driver.Key]int{}
	var done []driver.Grant
	for i := 0; i < scanned; i += 335 {
		keys := make([]driver.Key, 335)
		for j := range keys {
			keys[j] = driver.Key{Consumer: "scanned", Tenant: fmt.Sprint(i % 2), Raw: fmt.Sprint(i + j)}
			all[keys[j]] = 1
		}
		g := mustClaim(t, s, keys...)
		done = append(done, g[:7]...)
	}
	for _, g := range done {
		mustFinish(t, s, driver.Applied, complete(g))
		some[g.Hold.Key] = 1
	}
	for _, x := range []struct {
		filter driver.RecordFilter
		want   map[driver.Key]int
	}{
		{driver.RecordFilter{Consumer: "scanned"}, all},
		{driver.RecordFilter{Consumer: "scanned", State: driver.Completed}, some},
		{driver.RecordFilter{Consumer: "nobody"}, map[driver.Key]int{}},
	} {
		got := map[driver.Key]int{}
		err := scan.ScanRecords(t.Context(), x.filter, func(r driver.Record) error {
			got[r.Key]++
			return nil
		})
		if err != nil || !maps.Equal(got, x.want) {
			t.Errorf("scan of records with %+v: %d keys, %v, wanted %d keys, each once", x.filter, len(got), err, len(x.want))
		}
	}
	testScanEnds(t, scan)
}

// testScanEnds ends scans early, by the limit and by an error.
func testScanEnds(t testing.TB, scan driver.RecordScanner) {
	for _, limit := range []int{1, 1000, scanned - 1} {
		n := 0
		err := scan.ScanRecords(t.Context(), driver.RecordFilter{Consumer: "scanned", Limit: limit}, func(driver.Record) error {
			n++
			return nil
		})
		if err != nil || n != limit {
			t.Errorf("scan of %d records: %d came, %v", limit, n, err)
		}
	}
	n, enough := 0, errors.New("enough")
	err := scan.ScanRecords(t.Context(), driver.RecordFilter{}, func(driver.Record) error {
		n++
		return enough
	})
	if n != 1 || !errors.Is(err, enough) {
		t.Errorf("scan that is ended by the first record: %d came, %v", n, err)
	}
}
