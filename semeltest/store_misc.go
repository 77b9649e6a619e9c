package semeltest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// testFM32Repeats repeats every write, as a caller does that got no response. The write is applied once and returns the
// same result.
func testFM32Repeats(t testing.TB, s StoreSetup) {
	b := newBench(t, s)
	var cells []*cell
	for _, f := range finals() {
		for _, late := range []bool{false, true} {
			c := b.newCell(fmt.Sprintf("%s repeated, late %v", f.name, late))
			c.fp = fpSame
			again, write := claimAgain(), finishWith(f.Finish)
			again.checked, write.checked = true, true
			c.steps = []step{claimFor(long), again, again, extendMine(), extendMine()}
			if late {
				c.steps = []step{claimFor(short), barrier}
			}
			c.steps = append(c.steps, write, write, write)
			cells = append(cells, c)
		}
	}
	b.run(cells)
	b.bad.report(t)
}

// testFM12Tokens purges the record with the greatest token again and again: no later claim gets a token twice, and late
// writes of purged attempts are lost.
func testFM12Tokens(t testing.TB, s StoreSetup) {
	sw, ok := driver.As[driver.Sweeper](s.Store)
	if !ok {
		t.Log("left out: the store has no driver.Sweeper")
		return
	}
	b := newBench(t, s)
	k := keys(1, "purged-%d")[0]
	var old []driver.Hold
	for round := range 5 {
		g := mustClaim(t, s.Store, k)[0]
		for _, h := range old {
			if g.Hold.Token <= h.Token {
				t.Errorf("token %d was handed out after token %d: it restarts after a purge", g.Hold.Token, h.Token)
			}
			h := driver.Hold{Key: k, Generation: g.Hold.Generation, Epoch: h.Epoch, Token: h.Token, Nonce: h.Nonce}
			mustFinish(t, s.Store, driver.Lost, driver.Finish{Hold: h, Final: driver.Complete, Keep: keep})
			if out, err := s.Store.Extend(t.Context(), long, h); err != nil || out[0] != driver.Lost {
				t.Errorf("extension by a purged attempt returned %v, %v, wanted lost", out, err)
			}
		}
		old = append(old, g.Hold)
		final := []driver.Final{driver.Complete, driver.Release, driver.Fail}[round%3]
		mustFinish(t, s.Store, driver.Applied, driver.Finish{Hold: g.Hold, Final: final, Ran: driver.NotApplied, Keep: short})
		b.wait()
		got, more, err := sw.Sweep(t.Context(), 0, 100)
		if err != nil || more || got != (driver.Swept{Purged: 1}) {
			t.Fatalf("sweep returned %+v, more %v, %v; wanted one record purged", got, more, err)
		}
	}
}

// testFM12TxTokens does the same with transactions in between: a number that was drawn before the record was locked
// may be smaller than one that the purged record had (protocol section 2, NEXT).
func testFM12TxTokens(t testing.TB, s StoreSetup) {
	sw, sweeps := driver.As[driver.Sweeper](s.Store)
	tr, ok := transactor(t, s)
	if !ok || !sweeps {
		return
	}
	b := newBench(t, s)
	k := keys(1, "purged-%d")[0]
	last := uint64(0)
	for round := range 6 {
		var g driver.Grant
		f := driver.Finish{Final: driver.Complete, Keep: short}
		if round%2 == 1 {
			tx, _, gs := begin(t, tr, k)
			g, f.Hold = gs[0], gs[0].Hold
			if err := tx.Commit(t.Context(), driver.Work{Finish: f}); err != nil {
				t.Fatalf("commit: %v", err)
			}
		} else {
			g = mustClaim(t, s.Store, k)[0]
			f.Hold = g.Hold
			mustFinish(t, s.Store, driver.Applied, f)
		}
		if g.Hold.Token <= last {
			t.Errorf("round %d: token %d was handed out after token %d of the same key", round, g.Hold.Token, last)
		}
		last = g.Hold.Token
		b.wait()
		if _, _, err := sw.Sweep(t.Context(), 0, 100); err != nil {
			t.Fatalf("sweep: %v", err)
		}
	}
}

// testDoneContext calls with a context that is done: each call returns at once with an error or with definite results,
// and a call without a result can be repeated.
func testDoneContext(t testing.TB, s StoreSetup) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	c := driver.Claim{Key: keys(1, "done-%d")[0], Nonce: newNonce(), Lease: long}
	if g, err := s.Store.Claim(done, c); err == nil && (len(g) != 1 || g[0].Err == nil && g[0].Verdict != driver.Acquired) {
		t.Errorf("claim with a done context returned %+v without an error", g)
	}
	g, err := retryClaim(t.Context(), s.Store, c)
	if err != nil || g.Verdict != driver.Acquired {
		t.Fatalf("the claim repeated returned %v, %v, wanted acquired", g.Verdict, err)
	}
	if out, err := s.Store.Extend(done, long, g.Hold); err == nil && (len(out) != 1 || out[0] != driver.Applied && out[0] != driver.Unknown) {
		t.Errorf("extend with a done context returned %v without an error", out)
	}
	f := complete(g)
	if out, err := s.Store.Finish(done, f); err == nil && (len(out) != 1 || out[0] != driver.Applied && out[0] != driver.Unknown) {
		t.Errorf("finish with a done context returned %v without an error", out)
	}
	mustFinish(t, s.Store, driver.Applied, f)
	if g := claimKeys(t, s.Store, c.Key)[0]; g.Verdict != driver.Replay {
		t.Errorf("claim of the key returned %v afterwards, wanted replay", g.Verdict)
	}
}

// testFM58Results stores results of many sizes, up to the limit that the store declares. The store returns them byte for
// byte.
func testFM58Results(t testing.TB, s StoreSetup) {
	sizes := []int{0, 1, 255, 256, 64 << 10, 1 << 20}
	if m := s.Store.Features().MaxResult; m > 0 {
		sizes = append(sizes, m)
	}
	for i, n := range sizes {
		if m := s.Store.Features().MaxResult; n > 4<<20 || m > 0 && n > m {
			continue
		}
		k := driver.Key{Consumer: "results", Raw: fmt.Sprint(i)}
		f := complete(mustClaim(t, s.Store, k)[0])
		f.Result = make([]byte, n)
		for j := range f.Result {
			f.Result[j] = byte(j * 7)
		}
		mustFinish(t, s.Store, driver.Applied, f)
		if g := claimKeys(t, s.Store, k)[0]; !bytes.Equal(g.Result, f.Result) {
			t.Errorf("a result of %d bytes was returned as %d bytes, or changed", n, len(g.Result))
		}
	}
}

// testDeliveryIDs gives one key more deliveries than a record keeps.
func testDeliveryIDs(t testing.TB, s StoreSetup) {
	b := newBench(t, s)
	c := b.newCell("many deliveries")
	release := finishWith(driver.Finish{Final: driver.Release, Ran: driver.NotApplied})
	release.checked = true
	for i := range 2*driver.MaxDeliveries + 3 {
		for _, id := range []int{i, i, 0, i / 2} {
			c.steps = append(c.steps, step{make: func(c *cell) request {
				return request{claim: &driver.Claim{
					Key: c.key, Nonce: newNonce(), Lease: long, DeliveryID: fmt.Sprintf("delivery-%d", id),
				}}
			}}, release)
		}
	}
	b.run([]*cell{c})
	b.bad.report(t)
}

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

// testUncertain lists the records that are UNCERTAIN, which metrics count: those that become so by any way are in the list,
// and are gone from it when the doubt is resolved.
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

// testFM61DeadLetterStore keeps dead letters of queues that are elsewhere, each under its queue's name.
func testFM61DeadLetterStore(t testing.TB, s StoreSetup) {
	keeper, ok := driver.As[driver.DeadLetterStore](s.Store)
	if !ok {
		t.Log("left out: the store is no driver.DeadLetterStore")
		return
	}
	want := func(box driver.DeadLetterQueue, ids ...string) {
		t.Helper()
		ls, err := box.DeadLetters(t.Context(), 0)
		var got []string
		for _, l := range ls {
			got = append(got, l.ID)
		}
		if err != nil || !slices.Equal(got, ids) {
			t.Fatalf("the dead letters are %v (%v), wanted %v", got, err, ids)
		}
	}
	orders, bills := keeper.DeadLetterQueue("kafka orders"), keeper.DeadLetterQueue("kafka bills")
	want(orders)
	for _, id := range []string{"a", "b", "a"} { // the same one twice is one
		l := driver.DeadLetter{ID: id, Kind: driver.DeadLetterFailed, Message: driver.Message{ID: "m-" + id, Queue: "kafka orders", Body: []byte(id)}}
		if err := orders.PutDeadLetter(t.Context(), l); err != nil {
			t.Fatalf("write dead letter %s: %v", id, err)
		}
	}
	want(orders, "a", "b")
	want(bills)
	if err := bills.DeleteDeadLetter(t.Context(), "a"); err != nil {
		t.Errorf("delete a dead letter that is not there: %v", err)
	}
	l, ok, err := keeper.DeadLetterQueue("kafka orders").DeadLetter(t.Context(), "a")
	if err != nil || !ok || l.Message.ID != "m-a" || string(l.Message.Body) != "a" || l.DeadAt.IsZero() {
		t.Errorf("the store returned dead letter a as %+v, %v, %v", l, ok, err)
	}
	if err := orders.DeleteDeadLetter(t.Context(), "a"); err != nil {
		t.Errorf("delete dead letter: %v", err)
	}
	want(orders, "b")
}
