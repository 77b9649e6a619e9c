package semeltest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

func transactor(t testing.TB, s StoreSetup) (driver.Transactor, bool) {
	t.Helper()
	tr, ok := driver.As[driver.Transactor](s.Store)
	if !ok {
		t.Log("left out: the store is no driver.Transactor")
		return nil, false
	}
	if _, ok := driver.As[driver.Committer](s.Store); !ok {
		t.Fatal("the store is a driver.Transactor and no driver.Committer: it must be both")
	}
	if s.Ledger == nil || s.Ledger.AddTx == nil {
		t.Fatal("the store is a driver.Transactor: give the suite a StoreSetup.Ledger with AddTx")
	}
	return tr, true
}

// begin claims keys in a transaction and fails unless all are acquired.
func begin(t testing.TB, tr driver.Transactor, ks ...driver.Key) (driver.Tx, []driver.Claim, []driver.Grant) {
	t.Helper()
	cs := make([]driver.Claim, len(ks))
	for i, k := range ks {
		cs[i] = driver.Claim{Key: k, Nonce: newNonce(), Lease: long}
	}
	tx, gs, err := tr.Begin(t.Context(), cs...)
	if err != nil || len(gs) != len(cs) || tx == nil {
		t.Fatalf("begin with %d claims returned %d grants, tx %v, %v", len(cs), len(gs), tx, err)
	}
	for i, g := range gs {
		if g.Verdict != driver.Acquired {
			t.Fatalf("begin: key %q returned %v, wanted acquired", ks[i].Raw, g.Verdict)
		}
	}
	return tx, cs, gs
}

func (l *Ledger) addTx(t testing.TB, tx driver.Tx, ks ...driver.Key) {
	t.Helper()
	for _, k := range ks {
		if err := l.AddTx(t.Context(), tx, k.Raw); err != nil {
			t.Fatalf("effect for key %q in the transaction: %v", k.Raw, err)
		}
	}
}

// testFM72Rollback rolls back, and commits only some of the items: an item that did not run leaves no record.
func testFM72Rollback(t testing.TB, s StoreSetup) {
	tr, ok := transactor(t, s)
	if !ok {
		return
	}
	ks := keys(4, "rollback-%d")
	tx, _, _ := begin(t, tr, ks...)
	s.Ledger.addTx(t, tx, ks...)
	for range 2 {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatalf("rollback: %v", err)
		}
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("a commit after the rollback returned no error")
	}
	s.Ledger.counts(t, 0, ks...)
	tx, _, gs := begin(t, tr, ks...)
	for i, g := range gs {
		if g.Attempt != 1 || g.Unknown {
			t.Errorf("key %q: attempt %d, unknown %v after the rollback, wanted a first attempt", ks[i].Raw, g.Attempt, g.Unknown)
		}
	}
	s.Ledger.addTx(t, tx, ks[0], ks[2])
	if err := tx.Commit(t.Context(), driver.Work{Finish: complete(gs[0])}, driver.Work{Finish: complete(gs[2])}); err != nil {
		t.Fatalf("commit: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Errorf("rollback after the commit: %v", err)
	}
	s.Ledger.counts(t, 1, ks[0], ks[2])
	s.Ledger.counts(t, 0, ks[1], ks[3])
	want := []driver.Verdict{driver.Replay, driver.Acquired, driver.Replay, driver.Acquired}
	for i, g := range claimKeys(t, s.Store, ks...) {
		if g.Verdict != want[i] {
			t.Errorf("claim of key %q returned %v after the commit, wanted %v", ks[i].Raw, g.Verdict, want[i])
		}
	}
}

// testFM69Conflicts begins on keys that have records already: the claim table decides, not the mere presence of a row.
func testFM69Conflicts(t testing.TB, s StoreSetup) {
	tr, ok := transactor(t, s)
	if !ok {
		return
	}
	b := newBench(t, s)
	ks := keys(7, "conflict-%d")
	fin := func(g driver.Grant, f driver.Final, after time.Duration) driver.Finish {
		return driver.Finish{Hold: g.Hold, Final: f, Ran: driver.NotApplied, RetryAfter: after, Keep: keep, Reason: own + "before"}
	}
	gs := mustClaim(t, s.Store, ks[:6]...)
	mustFinish(t, s.Store, driver.Applied, fin(gs[0], driver.Complete, 0), fin(gs[1], driver.Fail, 0), fin(gs[2], driver.Park, 0),
		fin(gs[3], driver.Release, retry), fin(gs[4], driver.Release, 0))
	if g, err := s.Store.Claim(t.Context(), driver.Claim{Key: ks[6], Nonce: newNonce(), Lease: short}); err != nil || g[0].Verdict != driver.Acquired {
		t.Fatalf("claim: %v, %v", g, err)
	}
	b.wait()
	cs := make([]driver.Claim, len(ks))
	for i, k := range ks {
		cs[i] = driver.Claim{Key: k, Nonce: newNonce(), Lease: long}
	}
	tx, got, err := tr.Begin(t.Context(), cs...)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	want := []driver.Verdict{
		driver.Replay, driver.Failed, driver.Parked, driver.Busy, driver.Acquired, driver.Busy, driver.Acquired,
	}
	for i, g := range got {
		if g.Verdict != want[i] {
			t.Fatalf("claim of key %q returned %v, wanted %v", ks[i].Raw, g.Verdict, want[i])
		}
	}
	if got[4].Attempt != 2 || !got[6].Unknown || got[6].Takeovers != 1 {
		t.Errorf("retry: attempt %d; takeover: unknown %v, takeovers %d", got[4].Attempt, got[6].Unknown, got[6].Takeovers)
	}
	s.Ledger.addTx(t, tx, ks[4], ks[6])
	if err := tx.Commit(t.Context(), driver.Work{Finish: complete(got[4])}, driver.Work{Finish: complete(got[6])}); err != nil {
		t.Fatalf("commit: %v", err)
	}
	s.Ledger.counts(t, 1, ks[4], ks[6])
	if tx, got, err := tr.Begin(t.Context(), cs[:3]...); err != nil || got[0].Verdict != driver.Replay {
		t.Errorf("begin without anything to acquire returned %v, %v", got, err)
	} else if tx != nil {
		_ = tx.Rollback(t.Context())
	}
}

// testFM70CommitRepeated repeats the claims while the transaction is open and after its commit: a duplicate never
// acquires, and the same nonce finds its own record.
func testFM70CommitRepeated(t testing.TB, s StoreSetup) {
	tr, ok := transactor(t, s)
	if !ok {
		return
	}
	ks := keys(3, "again-%d")
	tx, cs, gs := begin(t, tr, ks...)
	s.Ledger.addTx(t, tx, ks...)
	verdicts := make(chan driver.Verdict, 2)
	go duplicateClaim(t, s.Store, ks[0], verdicts)
	go duplicateBegin(t, tr, ks[1], verdicts)
	waiting := 2
	for moment := time.After(50 * time.Millisecond); waiting > 0 && moment != nil; {
		select {
		case v := <-verdicts:
			if waiting--; v == driver.Acquired || v == driver.Replay {
				t.Fatalf("a duplicate got %v while the transaction is open", v)
			}
		case <-moment:
			moment = nil
		}
	}
	w := make([]driver.Work, len(gs))
	for i, g := range gs {
		w[i] = driver.Work{Finish: complete(g)}
	}
	if err := tx.Commit(t.Context(), w...); err != nil {
		t.Fatalf("commit: %v", err)
	}
	for range waiting {
		if v := <-verdicts; v == driver.Acquired {
			t.Errorf("a duplicate acquired a committed key")
		}
	}
	again, err := s.Store.Claim(t.Context(), cs...)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	for i, g := range again {
		if g.Verdict != driver.Replay || g.Hold.Nonce != cs[i].Nonce || g.Hold.Token != gs[i].Hold.Token {
			t.Errorf("the claim of key %q repeated returned %v by %+v, wanted replay by its own attempt", ks[i].Raw, g.Verdict, g.Hold)
		}
	}
	if tx, again, err := tr.Begin(t.Context(), cs...); err != nil || again[0].Verdict != driver.Replay {
		t.Errorf("begin repeated returned %v, %v, wanted replay", again, err)
	} else if tx != nil {
		_ = tx.Rollback(t.Context())
	}
	s.Ledger.counts(t, 1, ks...)
}

// duplicateClaim claims a key that a transaction holds. It may get Busy, or wait for the transaction; 0 = no verdict.
func duplicateClaim(t testing.TB, to driver.Store, k driver.Key, verdict chan<- driver.Verdict) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	g, _ := retryClaim(ctx, to, driver.Claim{Key: k, Nonce: newNonce(), Lease: long})
	verdict <- g.Verdict
}

// duplicateBegin does the same in its own transaction.
func duplicateBegin(t testing.TB, tr driver.Transactor, k driver.Key, verdict chan<- driver.Verdict) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tx, g, err := tr.Begin(ctx, driver.Claim{Key: k, Nonce: newNonce(), Lease: long})
	if tx != nil {
		_ = tx.Rollback(ctx)
	}
	if err != nil {
		verdict <- 0
		return
	}
	verdict <- g[0].Verdict
}

// testTxJoins commits an ack and an emitted message with a transaction, and rolls others back.
func testTxJoins(t testing.TB, s StoreSetup) {
	tr, ok := transactor(t, s)
	if !ok {
		return
	}
	_, ds, ok := joined(t, s, 2)
	if !ok {
		return
	}
	work := func(g driver.Grant, d driver.Delivery) driver.Work {
		w := driver.Work{Finish: complete(g), Ack: &driver.Settlement{Receipt: d.Receipt}}
		if s.Store.Features().Emits {
			w.Emit = []driver.Message{{ID: "emitted-for-" + d.ID, Queue: s.Queue.Features().Name}}
		}
		return w
	}
	ks := []driver.Key{{Consumer: "joined", Raw: ds[0].ID}, {Consumer: "joined", Raw: ds[1].ID}}
	tx, _, gs := begin(t, tr, ks[0])
	s.Ledger.addTx(t, tx, ks[0])
	if err := tx.Commit(t.Context(), work(gs[0], ds[0])); err != nil {
		t.Fatalf("commit: %v", err)
	}
	tx, _, gs = begin(t, tr, ks[1])
	s.Ledger.addTx(t, tx, ks[1])
	foreign := work(gs[0], ds[1])
	foreign.Finish.Hold.Key.Raw = "nobody claimed this"
	if err := tx.Commit(t.Context(), work(gs[0], ds[1]), foreign); err == nil {
		t.Error("a commit with the work of a key that the transaction does not hold returned no error")
	}
	s.Ledger.counts(t, 1, ks[0])
	s.Ledger.counts(t, 0, ks[1])
	left := []driver.Settlement{{Receipt: ds[1].Receipt}} // still in flight
	if s.Store.Features().Emits {
		d := receiveAll(t, s.Queue, 1)[0]
		if d.ID != "emitted-for-"+ds[0].ID {
			t.Errorf("received %q, wanted what the committed work emitted", d.ID)
		}
		left = append(left, driver.Settlement{Receipt: d.Receipt})
	}
	settle(t, s.Queue, left...)
	if qi, ok := driver.As[driver.QueueInspector](s.Queue); ok {
		if st, err := qi.Stats(t.Context()); err != nil || !st.Empty() {
			t.Errorf("the queue holds %+v (%v), wanted nothing", st, err)
		}
	}
}

// testTxLateWrite lets the interrupted holder of a key complete it while a transaction takes it over: one of the two
// wins, and the record is the winner's.
func testTxLateWrite(t testing.TB, s StoreSetup) {
	tr, ok := transactor(t, s)
	if !ok {
		return
	}
	b := newBench(t, s)
	k := keys(1, "late-%d")[0]
	g, err := retryClaim(t.Context(), s.Store, driver.Claim{Key: k, Nonce: newNonce(), Lease: short})
	if err != nil || g.Verdict != driver.Acquired {
		t.Fatalf("claim: %v, %v", g.Verdict, err)
	}
	b.wait()
	tx, _, gs := begin(t, tr, k)
	s.Ledger.addTx(t, tx, k)
	late := make(chan driver.Outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		f := complete(g)
		f.Result = []byte("late")
		out, err := s.Store.Finish(ctx, f)
		if err != nil || len(out) != 1 {
			late <- driver.Unknown
			return
		}
		late <- out[0]
	}()
	time.Sleep(30 * time.Millisecond)
	err = tx.Commit(t.Context(), driver.Work{Finish: complete(gs[0])})
	o := <-late
	switch {
	case err == nil && o == driver.Applied:
		t.Error("both the late holder and the transaction completed the key")
	case err == nil:
		s.Ledger.counts(t, 1, k)
	case errors.Is(err, driver.ErrNotCommitted):
		s.Ledger.counts(t, 0, k)
	default:
		t.Errorf("commit: %v, wanted nil or ErrNotCommitted", err)
	}
	after := claimKeys(t, s.Store, k)[0]
	want := map[bool]string{true: k.Raw, false: "late"}[err == nil]
	if after.Verdict != driver.Replay || string(after.Result) != want {
		t.Errorf("claim of the key returned %v with result %q, wanted replay with %q", after.Verdict, after.Result, want)
	}
}
