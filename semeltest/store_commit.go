package semeltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// committer returns the store's driver.Committer; ok is false when there is none.
func committer(t testing.TB, s StoreSetup) (driver.Committer, bool) {
	t.Helper()
	c, ok := driver.As[driver.Committer](s.Store)
	if !ok {
		t.Log("left out: the store is no driver.Committer")
		return nil, false
	}
	switch {
	case s.Ledger != nil, s.Queue != nil && c.Joins(s.Queue):
		return c, true
	case s.Queue == nil:
		t.Fatal("the store is a driver.Committer: give the suite a StoreSetup.Ledger, so that it can count effects, or if it writes " +
			"none a StoreSetup.Queue")
	}
	t.Log("left out: the store does not join StoreSetup.Queue, and StoreSetup.Ledger is nil")
	return nil, false
}

// effects returns the store's driver.Committer if it writes effects.
func effects(t testing.TB, s StoreSetup) (driver.Committer, bool) {
	t.Helper()
	c, ok := committer(t, s)
	if ok && s.Ledger == nil {
		t.Log("left out: StoreSetup.Ledger is nil")
		return nil, false
	}
	return c, ok
}

// work completes a grant with one effect named after its key; a nil Ledger has no effects.
func (l *Ledger) work(c driver.Committer, g driver.Grant) driver.Work {
	if l == nil {
		return driver.Work{Finish: complete(g)}
	}
	buf := l.Buffer(c)
	l.Add(buf, g.Hold.Key.Raw)
	return driver.Work{Finish: complete(g), Effects: buf}
}

// counts compares the committed effects of keys with n.
func (l *Ledger) counts(t testing.TB, want int, ks ...driver.Key) {
	t.Helper()
	if l == nil {
		return
	}
	for _, k := range ks {
		if n, err := l.Count(t.Context(), k.Raw); err != nil || n != want {
			t.Errorf("key %q has %d effects (%v), wanted %d", k.Raw, n, err, want)
		}
	}
}

func mustCommit(t testing.TB, c driver.Committer, w []driver.Work, want ...driver.Outcome) {
	t.Helper()
	out, err := c.Commit(t.Context(), w...)
	if err != nil || len(out) != len(w) {
		t.Fatalf("commit of %d works returned %d outcomes and %v", len(w), len(out), err)
	}
	for i := range out {
		if x := want[i%len(want)]; out[i] != x {
			t.Errorf("commit of item %d (key %q) returned %v, wanted %v", i, w[i].Finish.Hold.Key.Raw, out[i], x)
		}
	}
}

// testCommitGuarded commits works with different holds: each item is all or nothing, guarded by its own hold.
func testCommitGuarded(t testing.TB, s StoreSetup) {
	c, ok := committer(t, s)
	if !ok {
		return
	}
	ks := keys(8, "guarded-%d")
	gs := mustClaim(t, s.Store, ks...)
	w := make([]driver.Work, len(ks))
	for i, g := range gs {
		w[i] = s.Ledger.work(c, g)
	}
	release := driver.Finish{Hold: gs[1].Hold, Final: driver.Release, Ran: driver.NotApplied, Keep: keep}
	mustFinish(t, s.Store, driver.Applied, release, driver.Finish{Hold: gs[2].Hold, Final: driver.Park, Keep: keep}, complete(gs[3]))
	mustClaim(t, s.Store, ks[1])        // 1: another claimer's now
	w[4].Finish.Hold.Nonce = newNonce() // 4: my token, another nonce
	w[5].Finish.Hold.Token++            // 5: my nonce, another token
	w[6].Finish.Final, w[6].Effects = driver.Fail, nil
	w[7].Finish.Hold.Generation++
	mustCommit(t, c, w, driver.Applied, driver.Lost, driver.Recovered, driver.Applied, driver.Lost, driver.Lost, driver.Applied, driver.Lost)
	s.Ledger.counts(t, 1, ks[0], ks[2])
	s.Ledger.counts(t, 0, ks[1], ks[3], ks[4], ks[5], ks[6], ks[7]) // 3 had been completed without effects before
	want := []driver.Verdict{driver.Replay, driver.Busy, driver.Replay, driver.Replay, driver.Busy, driver.Busy, driver.Failed, driver.Busy}
	for i, g := range claimKeys(t, s.Store, ks...) {
		if g.Verdict != want[i] {
			t.Errorf("claim of key %q returned %v afterwards, wanted %v", ks[i].Raw, g.Verdict, want[i])
		}
	}
	if c.Offers(new(int)) || c.Offers(nil) {
		t.Error("Offers says yes to *int or nil")
	}
}

// testCommitRepeated repeats a commit, as a caller does that got no response.
func testCommitRepeated(t testing.TB, s StoreSetup) {
	c, ok := committer(t, s)
	if !ok {
		return
	}
	ks := keys(20, "repeated-%d")
	gs := mustClaim(t, s.Store, ks...)
	for range 3 {
		w := make([]driver.Work, len(gs))
		for i, g := range gs {
			w[i] = s.Ledger.work(c, g)
		}
		mustCommit(t, c, w, driver.Applied)
	}
	s.Ledger.counts(t, 1, ks...)
	if out, err := c.Commit(t.Context()); err != nil || len(out) != 0 {
		t.Errorf("commit of nothing returned %v, %v", out, err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	k := driver.Key{Consumer: "suite", Raw: "done"}
	g := mustClaim(t, s.Store, k)[0]
	if _, err := c.Commit(done, s.Ledger.work(c, g)); errors.Is(err, driver.ErrNotCommitted) {
		s.Ledger.counts(t, 0, k)
	}
	mustCommit(t, c, []driver.Work{s.Ledger.work(c, g)}, driver.Applied)
	s.Ledger.counts(t, 1, k)
}

// testCommitRefused lets one item's effects be refused, at each place of the batch: nothing of the call is committed,
// and the error names the item.
func testCommitRefused(t testing.TB, s StoreSetup) {
	c, ok := effects(t, s)
	if !ok {
		return
	}
	for _, culprit := range []int{0, 3, 6} {
		ks := keys(7, fmt.Sprintf("refused-%d", culprit)+"-%d")
		gs := mustClaim(t, s.Store, ks...)
		var w, good []driver.Work
		for i, g := range gs {
			x := s.Ledger.work(c, g)
			if i == culprit {
				s.Ledger.Refuse(x.Effects)
			} else {
				good = append(good, s.Ledger.work(c, g))
			}
			w = append(w, x)
		}
		var item *driver.ItemError
		if out, err := c.Commit(t.Context(), w...); !errors.As(err, &item) || item.Index != culprit {
			t.Fatalf("commit with item %d refused returned %v and %v, wanted an ItemError that names it", culprit, out, err)
		}
		s.Ledger.counts(t, 0, ks...)
		for i, g := range claimKeys(t, s.Store, ks...) {
			if g.Verdict != driver.Busy {
				t.Errorf("claim of key %q returned %v after the refused commit, wanted busy: it is still claimed", ks[i].Raw, g.Verdict)
			}
		}
		mustCommit(t, c, good, driver.Applied)
		for i, k := range ks {
			s.Ledger.counts(t, map[bool]int{true: 0, false: 1}[i == culprit], k)
		}
		mustFinish(t, s.Store, driver.Applied, driver.Finish{Hold: gs[culprit].Hold, Final: driver.Fail, Keep: keep})
	}
}

// joined sends n messages to the queue in the same database and receives them.
func joined(t testing.TB, s StoreSetup, n int) (driver.Committer, []driver.Delivery, bool) {
	t.Helper()
	c, ok := committer(t, s)
	if !ok {
		return nil, nil, false
	}
	if s.Queue == nil {
		t.Log("left out: StoreSetup.Queue is nil")
		return nil, nil, false
	}
	if !c.Joins(s.Queue) {
		t.Fatal("the store does not join StoreSetup.Queue")
	}
	if c.Joins(struct{ driver.Queue }{s.Queue}) {
		t.Error("the store says that it joins a queue of a foreign type")
	}
	if c.Joins(&settleLog{Queue: s.Queue}) {
		t.Error("the store says that it joins a queue whose Settle is overridden")
	}
	if !c.Joins(&settleLog{Queue: s.Queue, passes: []driver.Interface{driver.InterfaceOf[driver.Settler]()}}) {
		t.Error("the store does not join its queue behind a wrapper that leaves Settle alone: use driver.Settles")
	}
	var ms []driver.Message
	for i := range n {
		ms = append(ms, driver.Message{ID: fmt.Sprintf("joined-%d", i), Body: []byte("body")})
	}
	if err := as[driver.Sender](s.Queue).Send(t.Context(), ms...); err != nil {
		t.Fatalf("send: %v", err)
	}
	return c, receiveAll(t, s.Queue, n), true
}

// receiveAll receives n messages, and fails when they do not come in time.
func receiveAll(t testing.TB, q driver.Queue, n int) []driver.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all []driver.Delivery
	for len(all) < n {
		d, err := q.Receive(ctx, n-len(all))
		all = append(all, d...)
		if err != nil {
			t.Fatalf("received %d messages of %d: %v", len(all), n, err)
		}
	}
	return all
}

// testCommitAcks lets acks commit with the records: with the item or not at all. An old receipt is no error.
func testCommitAcks(t testing.TB, s StoreSetup) {
	c, ds, ok := joined(t, s, 4)
	if !ok {
		return
	}
	ks := make([]driver.Key, len(ds))
	for i, d := range ds {
		ks[i] = driver.Key{Consumer: "joined", Raw: d.ID}
	}
	gs := mustClaim(t, s.Store, ks...)
	// 1: the message was delivered again meanwhile. 2: the hold is lost. 3: a failure with its dead letter.
	settle(t, s.Queue, driver.Settlement{Receipt: ds[1].Receipt, Action: driver.Defer})
	again := receiveAll(t, s.Queue, 1)[0]
	w := make([]driver.Work, len(ds))
	for i := range ds {
		w[i] = s.Ledger.work(c, gs[i])
		w[i].Ack = &driver.Settlement{Receipt: ds[i].Receipt}
	}
	w[2].Finish.Hold.Nonce = newNonce()
	deadLetters := s.Queue.Features().DeadLetters
	w[3].Finish.Final, w[3].Effects = driver.Fail, nil
	if deadLetters {
		w[3].Ack.Action = driver.Dead
		w[3].Ack.DeadLetter = &driver.DeadLetter{ID: "joined-dead-letter", Kind: driver.DeadLetterFailed, Key: ks[3], Message: ds[3].Message}
	}
	mustCommit(t, c, w, driver.Applied, driver.Applied, driver.Lost, driver.Applied)
	s.Ledger.counts(t, 1, ks[0], ks[1])
	s.Ledger.counts(t, 0, ks[2], ks[3])
	if dlq, ok := driver.As[driver.DeadLetterQueue](s.Queue); ok && deadLetters {
		if l, found, err := dlq.DeadLetter(t.Context(), "joined-dead-letter"); err != nil || !found || l.Key != ks[3] {
			t.Errorf("the dead letter of the failed item: found %v, %v, %+v", found, err, l.Key)
		}
	}
	// Two messages are left: that of the old receipt, with its new receiver, and that of the lost item.
	settle(t, s.Queue, driver.Settlement{Receipt: again.Receipt}, driver.Settlement{Receipt: ds[2].Receipt})
	if qi, ok := driver.As[driver.QueueInspector](s.Queue); ok {
		if st, err := qi.Stats(t.Context()); err != nil || !st.Empty() {
			t.Errorf("the queue holds %+v (%v), wanted nothing", st, err)
		}
	}
}

// settle wants every item Applied.
func settle(t testing.TB, q driver.Queue, ss ...driver.Settlement) {
	t.Helper()
	out, err := q.Settle(t.Context(), ss...)
	if err != nil || len(out) != len(ss) {
		t.Fatalf("settle of %d items returned %v and %v", len(ss), out, err)
	}
	for i, o := range out {
		if o != driver.Applied {
			t.Fatalf("settle (%v) of item %d returned %v, wanted applied", ss[i].Action, i, o)
		}
	}
}

// testCommitEmits emits messages with works: they are sent once when the item wins, and not at all otherwise.
func testCommitEmits(t testing.TB, s StoreSetup) {
	c, ok := committer(t, s)
	if !ok {
		return
	}
	ks := keys(3, "emits-%d")
	gs := mustClaim(t, s.Store, ks...)
	name := "nowhere"
	if s.Queue != nil {
		name = s.Queue.Features().Name
	}
	make3 := func() []driver.Work {
		w := make([]driver.Work, len(gs))
		for i, g := range gs {
			w[i] = s.Ledger.work(c, g)
			w[i].Emit = []driver.Message{{ID: "emitted-by-" + ks[i].Raw, Queue: name, Body: []byte("emitted")}}
		}
		return w
	}
	if !s.Store.Features().Emits {
		if _, err := c.Commit(t.Context(), make3()...); !unsupported(err) {
			t.Errorf("commit with emitted messages returned %v, wanted ErrUnsupported", err)
		}
		s.Ledger.counts(t, 0, ks...)
		return
	}
	if s.Queue == nil {
		t.Log("left out: StoreSetup.Queue is nil")
		return
	}
	refused := make3()
	s.Ledger.Refuse(refused[2].Effects)
	if _, err := c.Commit(t.Context(), refused...); err == nil {
		t.Error("a commit with refused effects returned no error")
	}
	for range 2 {
		w := make3()
		w[1].Finish.Hold.Nonce = newNonce()
		mustCommit(t, c, w, driver.Applied, driver.Lost, driver.Applied)
	}
	for _, d := range receiveAll(t, s.Queue, 2) {
		if string(d.Body) != "emitted" || d.ID == "emitted-by-"+ks[1].Raw {
			t.Errorf("received message %q with body %q", d.ID, d.Body)
		}
		settle(t, s.Queue, driver.Settlement{Receipt: d.Receipt})
	}
	nothing(t, s.Queue)
}

// nothing wants that no message can be received now.
func nothing(t testing.TB, q driver.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	if d, _ := q.Receive(ctx, 1); len(d) > 0 {
		t.Fatalf("received message %q, wanted nothing", d[0].ID)
	}
}
