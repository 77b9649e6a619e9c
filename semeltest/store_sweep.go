package semeltest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// endedRecords makes n records that end with f; it sets f.Hold.
func endedRecords(t testing.TB, s driver.Store, n int, name string, f driver.Finish) []driver.Hold {
	t.Helper()
	holds := make([]driver.Hold, n)
	fs := make([]driver.Finish, n)
	for i, g := range mustClaim(t, s, keys(n, name+"-%d")...) {
		holds[i], fs[i] = g.Hold, f
		fs[i].Hold = g.Hold
	}
	mustFinish(t, s, driver.Applied, fs...)
	return holds
}

// sweepStep sweeps once, and checks what holds of every sweep.
func sweepStep(t testing.TB, sw driver.Sweeper, limit int) (driver.Swept, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got, more, err := sw.Sweep(ctx, 0, limit)
	if err != nil {
		t.Fatalf("sweep: %v", err)
	}
	if limit > 0 && got.Count() > limit {
		t.Errorf("a sweep with limit %d did %+v", limit, got)
	}
	if got.Lag < 0 {
		t.Errorf("a sweep reported the lag %v", got.Lag)
	}
	return got, more
}

// testFM41Sweep: a sweep purges exactly the records past their retention, in bounded steps, and reports its lag.
func testFM41Sweep(t testing.TB, s StoreSetup) {
	sw, ok := driver.As[driver.Sweeper](s.Store)
	if !ok {
		t.Log("left out: the store has no driver.Sweeper")
		return
	}
	b := newBench(t, s)
	began := b.clock()
	running := mustClaim(t, s.Store, driver.Key{Consumer: "suite", Raw: "running"})[0].Hold
	parked := endedRecords(t, s.Store, 1, "parked", driver.Finish{Final: driver.Park, Keep: short})[0]
	kept := endedRecords(t, s.Store, 3, "kept", driver.Finish{Final: driver.Complete, Result: []byte("stays"), Keep: keep})
	due := 0
	for i, f := range []driver.Finish{
		{Final: driver.Complete, Keep: short},
		{Final: driver.Fail, Keep: short},
		{Final: driver.Release, Ran: driver.NotApplied, Keep: short},
	} {
		endedRecords(t, s.Store, 7, fmt.Sprintf("due-%d", i), f)
		due += 7
	}
	later := endedRecords(t, s.Store, 1, "later", driver.Finish{Final: driver.Release, Ran: driver.NotApplied, RetryAfter: long, Keep: short})[0]
	b.wait()
	purged, lagged := 0, false
	for more := true; more; {
		var got driver.Swept
		got, more = sweepStep(t, sw, 4)
		if purged += got.Purged; got.Abandoned != 0 || purged > due {
			t.Fatalf("a sweep without a horizon returned %+v when %d of %d records were purged", got, purged, due)
		}
		if most := b.clock() - began; got.Lag > most {
			t.Errorf("a sweep reports a lag of %v; no record is older than %v", got.Lag, most)
		}
		if left := due - purged; left == 0 && got.Lag > 0 {
			t.Errorf("nothing is left, and a sweep reports a lag of %v", got.Lag)
		}
		lagged = lagged || got.Lag > 0
	}
	if purged != due {
		t.Errorf("%d of %d records were purged", purged, due)
	}
	if !lagged {
		t.Error("no sweep that had to leave records reported a lag")
	}
	if got, more := sweepStep(t, sw, 4); got != (driver.Swept{}) || more {
		t.Errorf("with nothing left to do a sweep returned %+v, more %v", got, more)
	}
	// Records that were not due are unchanged.
	mustFinish(t, s.Store, driver.Applied, driver.Finish{Hold: running, Final: driver.Complete, Keep: keep})
	mustFinish(t, s.Store, driver.Recovered, driver.Finish{Hold: parked, Final: driver.Complete, Keep: keep})
	for _, h := range kept {
		if g, err := s.Store.Claim(t.Context(), driver.Claim{Key: h.Key, Nonce: newNonce(), Lease: long}); err != nil ||
			g[0].Verdict != driver.Replay || string(g[0].Result) != "stays" {
			t.Errorf("a record within its retention returned %+v, %v", g, err)
		}
	}
	if g, err := s.Store.Claim(t.Context(), driver.Claim{Key: later.Key, Nonce: newNonce(), Lease: long}); err != nil ||
		g[0].Verdict != driver.Busy || g[0].Failures != 1 {
		t.Errorf("a record that waits for its retry, which its retention is counted from, returned %+v, %v", g, err)
	}
}

// testFM41SweepOfOneConsumer: a horizon applies to the consumers that a sweep names. Abandoned claims of other consumers
// stay, however many there are.
func testFM41SweepOfOneConsumer(t testing.TB, s StoreSetup) {
	sw, ok := driver.As[driver.Sweeper](s.Store)
	if !ok {
		t.Log("left out: the store has no driver.Sweeper")
		return
	}
	b := newBench(t, s)
	const mine, others = "mine", 20
	claims := []driver.Claim{{Key: driver.Key{Consumer: mine, Raw: "k"}, Nonce: newNonce(), Lease: short}}
	for i := range others {
		k := driver.Key{Consumer: "other", Raw: fmt.Sprint("k", i)}
		claims = append(claims, driver.Claim{Key: k, Nonce: newNonce(), Lease: short})
	}
	grants, err := s.Store.Claim(t.Context(), claims...)
	if err != nil {
		t.Fatal(err)
	}
	b.wait()
	sweep := func(consumers ...string) (parked int) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for more := true; more; {
			got, again, err := sw.Sweep(ctx, time.Millisecond, 4, consumers...)
			if err != nil {
				t.Fatalf("sweep: %v", err)
			}
			parked, more = parked+got.Abandoned, again
		}
		return parked
	}
	if n := sweep("nobody", mine); n != 1 {
		t.Errorf("a sweep of one consumer parked %d claims, wanted its own", n)
	}
	const late = others / 2
	for i, want := range [late]driver.Outcome{driver.Recovered} {
		if i > 0 {
			want = driver.Applied // it was not parked
		}
		mustFinish(t, s.Store, want, driver.Finish{Hold: grants[i].Hold, Final: driver.Complete, Keep: keep})
	}
	if n, want := sweep(), others+1-late; n != want {
		t.Errorf("a sweep of all consumers parked %d claims, wanted %d", n, want)
	}
}

// testFM41SweepRace: records past their retention are redriven while sweeps go on. Redriven records are there afterwards,
// because the deleting statement checks again.
func testFM41SweepRace(t testing.TB, s StoreSetup) {
	sw, sweeps := driver.As[driver.Sweeper](s.Store)
	op, operates := driver.As[driver.Operator](s.Store)
	if !sweeps || !operates {
		t.Log("left out: the store has no driver.Sweeper or no driver.Operator")
		return
	}
	b := newBench(t, s)
	const n = 60
	failed := endedRecords(t, s.Store, n, "redriven", driver.Finish{Final: driver.Fail, Keep: short})
	b.wait()
	beside := b.sweepBeside()
	reopened := map[driver.Key]bool{}
	for i := len(failed) - 1; i >= 0; i-- { // most sweeps begin with the oldest
		beside.meet(i)
		h := failed[i]
		_, out, err := op.Operate(t.Context(), driver.Operation{
			Kind: driver.Redrive, Key: h.Key, Token: h.Token, Generation: h.Generation, Keep: keep, By: "suite",
		})
		if err != nil {
			t.Errorf("redrive: %v", err)
		}
		reopened[h.Key] = out == driver.Applied
	}
	beside.end()
	for more := true; more; {
		_, more = sweepStep(t, sw, 0)
	}
	survivors := 0
	for k, is := range reopened {
		g := mustClaim(t, s.Store, k)[0]
		if is {
			survivors++
		}
		if is && g.Hold.Generation != 2 {
			t.Errorf("key %q was redriven, and a sweep purged it all the same: it begins anew (%+v)", k.Raw, g.Hold)
		}
		if !is && g.Hold.Generation != 1 {
			t.Errorf("key %q was purged, and is in generation %d", k.Raw, g.Hold.Generation)
		}
	}
	t.Logf("%d of %d records were redriven before they were purged", survivors, n)
}

// sweeping runs sweeps concurrently with a case.
type sweeping struct {
	wg     sync.WaitGroup
	last   atomic.Int64 // how long the last sweep took, in ns
	done   chan struct{}
	ended  chan struct{}
	begins chan struct{}
}

// sweepBeside sweeps one record at a time, each time that meet is called, until end is called.
func (b *bench) sweepBeside() *sweeping {
	s := &sweeping{done: make(chan struct{}), ended: make(chan struct{}), begins: make(chan struct{})}
	sw := as[driver.Sweeper](b.Store)
	s.wg.Go(func() {
		defer close(s.ended)
		for {
			select {
			case s.begins <- struct{}{}:
			case <-s.done:
				return
			}
			at := time.Now()
			if _, _, err := sw.Sweep(b.t.Context(), 0, 1); err != nil {
				b.t.Errorf("sweep: %v", err)
				return
			}
			s.last.Store(int64(time.Since(at)))
		}
	})
	return s
}

// meet waits until a sweep begins, and for another part of it each time.
func (s *sweeping) meet(i int) {
	select {
	case <-s.begins:
	case <-s.ended:
	}
	time.Sleep(time.Duration(s.last.Load()) * time.Duration(i%8) / 8) // nothing depends on it
}

func (s *sweeping) end() {
	close(s.done)
	s.wg.Wait()
}

// clock returns an upper bound of the time that has passed for the store.
func (b *bench) clock() time.Duration {
	if b.Advance != nil {
		return time.Duration(b.now.UnixNano())
	}
	return time.Since(suiteBegan)
}

var suiteBegan = time.Now()
