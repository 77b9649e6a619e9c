package semeltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// mustClaim claims keys with new nonces and fails unless all are acquired.
func mustClaim(t testing.TB, s driver.Store, keys ...driver.Key) []driver.Grant {
	t.Helper()
	g := claimKeys(t, s, keys...)
	for i := range g {
		if g[i].Verdict != driver.Acquired {
			t.Fatalf("claim of key %q returned %v, wanted acquired", keys[i].Raw, g[i].Verdict)
		}
	}
	return g
}

func claimKeys(t testing.TB, s driver.Store, keys ...driver.Key) []driver.Grant {
	t.Helper()
	cs := make([]driver.Claim, len(keys))
	for i, k := range keys {
		cs[i] = driver.Claim{Key: k, Nonce: newNonce(), Lease: long}
	}
	g, err := s.Claim(t.Context(), cs...)
	if err != nil || len(g) != len(cs) {
		t.Fatalf("claim of %d keys returned %d grants and %v", len(cs), len(g), err)
	}
	for i := range g {
		if g[i].Err != nil {
			t.Fatalf("claim of key %q: %v", keys[i].Raw, g[i].Err)
		}
	}
	return g
}

func mustFinish(t testing.TB, s driver.Store, want driver.Outcome, fs ...driver.Finish) {
	t.Helper()
	out, err := s.Finish(t.Context(), fs...)
	if err != nil || len(out) != len(fs) {
		t.Fatalf("finish of %d items returned %d outcomes and %v", len(fs), len(out), err)
	}
	for i := range out {
		if out[i] != want {
			t.Fatalf("finish (%v) of key %q returned %v, wanted %v", fs[i].Final, fs[i].Hold.Key.Raw, out[i], want)
		}
	}
}

func complete(g driver.Grant) driver.Finish {
	return driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep, Result: []byte(g.Hold.Key.Raw)}
}

func keys(n int, format string) []driver.Key {
	all := make([]driver.Key, n)
	for i := range all {
		all[i] = driver.Key{Consumer: "suite", Raw: fmt.Sprintf(format, i)}
	}
	return all
}

// testBatches mixes verdicts and outcomes in one call: each result has the place of its request.
func testBatches(t testing.TB, s StoreSetup) {
	ks := keys(40, "mixed-%d")
	first := mustClaim(t, s.Store, ks...)
	finals := []driver.Final{driver.Complete, driver.Fail, driver.Release, driver.Park}
	var fs []driver.Finish
	for i, g := range first {
		if i%5 < len(finals) {
			fs = append(fs, driver.Finish{Hold: g.Hold, Final: finals[i%5], Keep: keep, Ran: driver.NotApplied, Result: []byte(ks[i].Raw)})
		}
	}
	mustFinish(t, s.Store, driver.Applied, fs...)
	wanted := []driver.Verdict{driver.Replay, driver.Failed, driver.Acquired, driver.Parked, driver.Busy}
	for i, g := range claimKeys(t, s.Store, ks...) {
		if g.Verdict != wanted[i%5] || g.Hold.Key != ks[i] {
			t.Errorf("item %d (key %q) returned %v for key %q, wanted %v", i, ks[i].Raw, g.Verdict, g.Hold.Key.Raw, wanted[i%5])
		}
		if g.Verdict == driver.Replay && string(g.Result) != ks[i].Raw {
			t.Errorf("item %d: result %q, wanted %q", i, g.Result, ks[i].Raw)
		}
	}
	again := make([]driver.Finish, len(first))
	for i, g := range first {
		again[i] = complete(g)
	}
	out, err := s.Store.Finish(t.Context(), again...)
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	results := []driver.Outcome{driver.Applied, driver.Lost, driver.Lost, driver.Recovered, driver.Applied}
	for i, o := range out {
		if o != results[i%5] {
			t.Errorf("item %d: complete returned %v, wanted %v", i, o, results[i%5])
		}
	}
}

func testThousandKeys(t testing.TB, s StoreSetup) {
	ks := keys(1000, "thousand-%d")
	g := mustClaim(t, s.Store, ks...)
	holds := make([]driver.Hold, len(g))
	fs := make([]driver.Finish, len(g))
	for i := range g {
		holds[i], fs[i] = g[i].Hold, complete(g[i])
	}
	out, err := s.Store.Extend(t.Context(), long, holds...)
	if err != nil || len(out) != len(holds) {
		t.Fatalf("extend of %d returned %d and %v", len(holds), len(out), err)
	}
	for i := range out {
		if out[i] != driver.Applied {
			t.Fatalf("extend of item %d returned %v", i, out[i])
		}
	}
	mustFinish(t, s.Store, driver.Applied, fs...)
	for i, r := range claimKeys(t, s.Store, ks...) {
		if r.Verdict != driver.Replay || string(r.Result) != ks[i].Raw {
			t.Fatalf("item %d returned %v with result %q, wanted replay with %q", i, r.Verdict, r.Result, ks[i].Raw)
		}
	}
}

func testEmptyCalls(t testing.TB, s StoreSetup) {
	if g, err := s.Store.Claim(t.Context()); err != nil || len(g) != 0 {
		t.Errorf("claim of nothing returned %v, %v", g, err)
	}
	if o, err := s.Store.Extend(t.Context(), long); err != nil || len(o) != 0 {
		t.Errorf("extend of nothing returned %v, %v", o, err)
	}
	if o, err := s.Store.Finish(t.Context()); err != nil || len(o) != 0 {
		t.Errorf("finish of nothing returned %v, %v", o, err)
	}
}

// testFM13OneAcquires lets many callers claim the same keys at once: exactly one acquires each.
func testFM13OneAcquires(t testing.TB, s StoreSetup) {
	const claimers, n = 8, 25
	ks := keys(n, "raced-%d")
	var mu sync.Mutex
	acquired := map[driver.Key]int{}
	together(t, claimers, func(int) error {
		for _, k := range ks {
			g, err := retryClaim(t.Context(), s.Store, driver.Claim{Key: k, Nonce: newNonce(), Lease: long})
			if err != nil {
				return err
			}
			mu.Lock()
			if g.Verdict == driver.Acquired {
				acquired[k]++
			} else if g.Verdict != driver.Busy {
				t.Errorf("key %q: a loser got %v, wanted busy", k.Raw, g.Verdict)
			}
			mu.Unlock()
		}
		return nil
	})
	for _, k := range ks {
		if acquired[k] != 1 {
			t.Errorf("key %q was acquired %d times, wanted once", k.Raw, acquired[k])
		}
	}
}

// together runs f n times at once.
func together(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// retryClaim repeats a claim that definitely was not committed, with the same nonce, as the engine does.
func retryClaim(ctx context.Context, s driver.Store, c driver.Claim) (driver.Grant, error) {
	for {
		g, err := s.Claim(ctx, c)
		if err == nil {
			err = g[0].Err
		}
		if err == nil {
			return g[0], nil
		}
		if !errors.Is(err, driver.ErrNotCommitted) {
			return driver.Grant{}, fmt.Errorf("claim key %q: %w", c.Key.Raw, err)
		}
	}
}

// testFM45OppositeOrders writes the same keys in opposite orders: no caller may deadlock or get an error that is not
// ErrNotCommitted.
func testFM45OppositeOrders(t testing.TB, s StoreSetup) {
	ks := keys(60, "crossed-%d")
	together(t, 4, func(i int) error {
		for range 10 {
			cs := make([]driver.Claim, len(ks))
			for j, k := range ks {
				at := j
				if i%2 == 1 {
					at = len(ks) - 1 - j
				}
				cs[at] = driver.Claim{Key: k, Nonce: newNonce(), Lease: long}
			}
			g, err := s.Store.Claim(t.Context(), cs...)
			if err != nil && !errors.Is(err, driver.ErrNotCommitted) {
				return fmt.Errorf("claim in opposite orders: %w", err)
			}
			var fs []driver.Finish
			for _, x := range g {
				if x.Verdict == driver.Acquired {
					fs = append(fs, driver.Finish{Hold: x.Hold, Final: driver.Release, Ran: driver.NotApplied, Keep: keep})
				}
			}
			if _, err := s.Store.Finish(t.Context(), fs...); err != nil && !errors.Is(err, driver.ErrNotCommitted) {
				return fmt.Errorf("finish in opposite orders: %w", err)
			}
		}
		return nil
	})
}

// testTokensIncrease has many callers claim and release one key: tokens strictly increase in the order of the runs (I3).
func testTokensIncrease(t testing.TB, s StoreSetup) {
	k := keys(1, "contended-%d")[0]
	var mu sync.Mutex // held from claim to release: the order of the runs
	var last uint64
	together(t, 6, func(int) error {
		for range 20 {
			mu.Lock()
			g, err := retryClaim(t.Context(), s.Store, driver.Claim{Key: k, Nonce: newNonce(), Lease: long})
			if err == nil && g.Verdict != driver.Acquired {
				err = fmt.Errorf("a released key returned %v", g.Verdict)
			}
			if err == nil && g.Hold.Token <= last {
				err = fmt.Errorf("token %d after token %d", g.Hold.Token, last)
			}
			if err == nil {
				last = g.Hold.Token
				_, err = s.Store.Finish(t.Context(), driver.Finish{Hold: g.Hold, Final: driver.Release, Keep: keep})
			}
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// testFM54LookAlikes claims keys that a careless concatenation would make equal.
func testFM54LookAlikes(t testing.TB, s StoreSetup) {
	distinct(t, s.Store, []driver.Key{
		{Consumer: "a", Tenant: "b", Raw: "c"}, {Consumer: "a", Tenant: "", Raw: "bc"}, {Consumer: "ab", Tenant: "", Raw: "c"},
		{Consumer: "", Tenant: "ab", Raw: "c"}, {Consumer: "a|b", Tenant: "", Raw: "c"}, {Consumer: "a", Tenant: "b|c", Raw: ""},
		{Consumer: "a", Tenant: "b", Raw: "C"}, {Consumer: "A", Tenant: "b", Raw: "c"}, {Consumer: "a", Tenant: "b", Raw: "c "},
		{Consumer: "a", Tenant: "b", Raw: " c"}, {Consumer: "a/b", Tenant: "c", Raw: "d"}, {Consumer: "a", Tenant: "b/c", Raw: "d"},
		{Consumer: "a:b", Tenant: "c", Raw: "d"}, {Consumer: "a", Tenant: "b:c", Raw: "d"}, {Consumer: "a", Tenant: "b", Raw: "c:d"},
	})
}

// testFM55HostileKeys claims keys that a text column or a protocol may choke on; they are compared byte by byte.
func testFM55HostileKeys(t testing.TB, s StoreSetup) {
	raws := []string{
		"\x00", "a\x00", "a\x00b", "a", "\x01\x02\x1f\x7f", "\xff\xfe not utf-8", "\xff", "tab\tnewline\r\n", `back\slash`,
		"'; DROP TABLE records; --", `"quoted"`, "%s%d%n", "$1", "?", "|", "||", "{}", "[]", "null", "0", "-1", "1e9",
		"e\u0301", "\u00e9", "\u200b", "\u202e right to left", "日本語", "\U0001F9FE", "İ", "ı", "ß", "SS", "ss",
		strings.Repeat("x", 1024), strings.Repeat("x", 1023) + "y", strings.Repeat("日", 341),
	}
	var ks []driver.Key
	for _, r := range raws {
		ks = append(ks, driver.Key{Consumer: "hostile", Raw: r}, driver.Key{Consumer: "hostile", Tenant: r, Raw: "x"})
	}
	distinct(t, s.Store, ks)
}

// distinct claims each key alone and in one call: every key finds its own record and no other.
func distinct(t testing.TB, s driver.Store, ks []driver.Key) {
	t.Helper()
	for i, k := range ks {
		g := claimKeys(t, s, k)[0]
		if g.Verdict != driver.Acquired || g.Hold.Key != k {
			t.Fatalf("key %+q: claim returned %v for key %+q, wanted acquired", k, g.Verdict, g.Hold.Key)
		}
		f := complete(g)
		f.Result = fmt.Appendf(nil, "result %d", i)
		mustFinish(t, s, driver.Applied, f)
	}
	for i, g := range claimKeys(t, s, ks...) {
		if want := fmt.Sprintf("result %d", i); g.Verdict != driver.Replay || string(g.Result) != want {
			t.Errorf("key %+q: claim returned %v with %q, wanted replay with %q", ks[i], g.Verdict, g.Result, want)
		}
		if ins, ok := driver.As[driver.RecordInspector](s); ok {
			if r, found, err := ins.Record(t.Context(), ks[i]); err != nil || !found || r.Key != ks[i] {
				t.Errorf("key %+q: record has key %+q (found %v, %v)", ks[i], r.Key, found, err)
			}
		}
	}
}
