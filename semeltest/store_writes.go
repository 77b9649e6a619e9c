package semeltest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

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

// testFM61DeadLetterStore keeps dead letters of queues in other places, each under its queue's name.
func testFM61DeadLetterStore(t testing.TB, s StoreSetup) {
	keeper, ok := driver.As[driver.DeadLetterStore](s.Store)
	if !ok || keeper.DeadLetterQueue("kafka orders") == nil {
		t.Log("left out: the store keeps no dead letters of queues elsewhere")
		return
	}
	want := func(dlq driver.DeadLetterQueue, ids ...string) {
		t.Helper()
		ls, err := dlq.DeadLetters(t.Context(), 0)
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
