package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

func batchMode(c *machine.Config) { openMode(c); c.Batched = true }

// keysOf are the keys of an action's items.
func keysOf(a machine.Action) string {
	keys := make([]string, len(a.Items))
	for i, it := range a.Items {
		keys[i] = it.Key.Raw
	}
	return strings.Join(keys, " ")
}

// call takes the open call of the batch handler, which has to be of these keys.
func (r *fixture) call(keys string) machine.Action {
	r.t.Helper()
	a := r.take(machine.ActionRun)
	if got := keysOf(a); got != keys {
		r.t.Fatalf("called with %q, wanted %q", got, keys)
	}
	return a
}

// fails completes a call with a failure that names no culprit. The transaction is rolled back.
func (r *fixture) fails(keys string) {
	r.t.Helper()
	a := r.call(keys)
	r.step(machine.Event{Kind: machine.Ran, Item: a.Item, Items: a.Items, Result: machine.Result{Class: machine.Failed, Err: errBoom}})
	r.rolledBack()
}

func (r *fixture) rolledBack() {
	r.t.Helper()
	a := r.take(machine.ActionRollback)
	r.step(machine.Event{Kind: machine.RolledBack, Lane: a.Lane})
}

// returns completes a call with success and commits it.
func (r *fixture) returns(keys string) {
	r.t.Helper()
	a := r.call(keys)
	r.step(machine.Event{Kind: machine.Ran, Item: a.Item, Items: a.Items, Results: make([]machine.Result, len(a.Items))})
	c := r.take(machine.ActionCommit)
	if got := keysOf(c); got != keys {
		r.t.Fatalf("commits %q, wanted %q", got, keys)
	}
	r.step(machine.Event{Kind: machine.Committed, Lane: c.Lane, Items: c.Items})
}

func deadLetters(keys string) (as []machine.Arrival) {
	for _, k := range strings.Fields(keys) {
		as = append(as, message("m-"+k, k))
	}
	return as
}

func TestFM60_HalvesAreTakenInOrderOfDelivery(t *testing.T) {
	r := newFixture(t, batchMode)
	r.receive(deadLetters("h g f e d c b a")...)
	for _, x := range []struct {
		keys  string
		fails bool
	}{
		{"h g f e d c b a", true}, // c is to blame
		{"h g f e", false},
		{"d c", true}, // the half of those that are left
		{"d", false},
		{"c", true}, // alone: its failure is its own
		{"b a", false},
	} {
		r.beginTx(nil)
		if x.fails {
			r.fails(x.keys)
		} else {
			r.returns(x.keys)
		}
	}
	if a := r.claim(nil); len(a.Claims) != 1 || a.Claims[0].Key.Raw != "c" {
		t.Fatalf("claimed %+v", a.Claims)
	}
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || f.Ran != driver.NotApplied {
		t.Fatalf("finish %+v", f)
	}
	if n := r.m.Counts(); n.Effects != 7 || n.Executed != 8 || n.Retried != 1 {
		t.Fatalf("counts %+v", n)
	}
}

// One call, one claim round trip, one commit; the collected effects go with the first work.
func TestBatchCommitsTogether(t *testing.T) {
	r := newFixture(t, batchMode)
	r.receive(deadLetters("a b c")...)
	r.beginTx(nil)
	a := r.call("a b c")
	effects := new(int)
	r.step(machine.Event{
		Kind: machine.Ran, Item: a.Item, Items: a.Items, Result: machine.Result{Effects: effects},
		Results: []machine.Result{{Value: []byte("1")}, {Class: machine.Dropped, Err: errBoom}, {Value: []byte("3")}},
	})
	w := r.take(machine.ActionCommit).Works
	if len(w) != 3 || w[0].Effects != effects || w[1].Effects != nil || w[2].Effects != nil {
		t.Fatalf("works %+v", w)
	}
	if string(w[0].Finish.Result) != "1" || w[1].Finish.Reason != "dropped: boom" || string(w[2].Finish.Result) != "3" {
		t.Fatalf("works %+v", w)
	}
}

func TestNamedCulpritsAreSetAside(t *testing.T) {
	r := newFixture(t, batchMode)
	r.receive(deadLetters("a b c d")...)
	r.beginTx(nil)
	a := r.call("a b c d")
	bad := machine.Result{Class: machine.Failed, Err: errBoom}
	r.step(machine.Event{Kind: machine.Ran, Item: a.Item, Items: a.Items, Results: []machine.Result{{}, bad, {}, bad}})
	r.rolledBack()
	if c := r.claim(nil); len(c.Claims) != 2 {
		t.Fatalf("claimed %+v", c.Claims)
	}
	r.beginTx(nil)
	r.returns("a c")
}

// A batch whose shared effects are refused is halved. One whose refusal names an item by its own work is not.
func TestRefusedCommitOfABatch(t *testing.T) {
	for _, shared := range []bool{true, false} {
		r := newFixture(t, batchMode)
		r.receive(deadLetters("a b c d")...)
		r.beginTx(nil)
		a := r.call("a b c d")
		res := machine.Result{}
		if shared {
			res.Effects = new(int)
		}
		r.step(machine.Event{Kind: machine.Ran, Item: a.Item, Items: a.Items, Result: res, Results: make([]machine.Result, 4)})
		c := r.take(machine.ActionCommit)
		r.step(machine.Event{Kind: machine.Committed, Items: c.Items, Err: &driver.ItemError{Index: 0, Err: errBoom}})
		if shared {
			r.beginTx(nil)
			r.returns("a b")
			continue
		}
		r.claim(nil)
		r.finish(driver.Applied)
		r.beginTx(nil)
		r.returns("b c d")
	}
}

// A refusal without a culprit is found by halving, also if handlers run one by one.
func TestRefusalWithoutANameIsHalved(t *testing.T) {
	r := newFixture(t, openMode)
	r.receive(deadLetters("a b c d")...)
	refused := func(keys string) {
		r.beginTx(nil)
		for _, k := range strings.Fields(keys) {
			r.ran(k, machine.Result{})
		}
		c := r.take(machine.ActionCommit)
		if got := keysOf(c); got != keys {
			t.Fatalf("committed %q, wanted %q", got, keys)
		}
		r.step(machine.Event{Kind: machine.Committed, Items: c.Items, Err: &driver.ItemError{Index: -1, Err: errBoom}})
	}
	refused("a b c d")
	refused("a b")
	refused("a")
	if a := r.claim(nil); len(a.Claims) != 1 || a.Claims[0].Key.Raw != "a" {
		t.Fatalf("claimed %+v: a was alone", a.Claims)
	}
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || f.Ran != driver.NotApplied {
		t.Fatalf("finish %+v", f)
	}
	if b := r.beginTx(nil); len(b.Claims) != 3 {
		t.Fatalf("begun with %+v: the rest together", b.Claims)
	}
}

// A transaction that is refused again and again without a culprit becomes smaller: it was open for longer than the store
// allows, or others write its rows all the time.
func TestRefusedTransactionsBecomeSmaller(t *testing.T) {
	r := newFixture(t, openMode)
	r.receive(deadLetters("a b c d")...)
	commit := func(keys string, err error) {
		t.Helper()
		r.pass(500 * time.Millisecond)
		r.beginTx(nil)
		for _, k := range strings.Fields(keys) {
			r.ran(k, machine.Result{})
		}
		c := r.take(machine.ActionCommit)
		if got := keysOf(c); got != keys {
			t.Fatalf("committed %q, wanted %q", got, keys)
		}
		r.step(machine.Event{Kind: machine.Committed, Items: c.Items, Err: err})
	}
	commit("a b c d", driver.ErrNotCommitted)
	commit("a b c d", driver.ErrNotCommitted)
	commit("a b", driver.ErrNotCommitted)
	commit("a", driver.ErrNotCommitted)
	commit("a", nil)
	commit("b", nil)
	commit("c d", nil)
}

// Members of a group run in one batch. If a claim is not acquired, those behind it do not run.
func TestFM60_GroupInOneBatch(t *testing.T) {
	r := newFixture(t, batchMode)
	r.receive(grouped("1", "a", "g"), message("2", "x"), grouped("3", "b", "g"), grouped("4", "c", "g"))
	r.beginTx(nil)
	r.returns("a x b c")

	r = newFixture(t, batchMode)
	r.receive(grouped("1", "a", "g"), message("2", "x"), grouped("3", "b", "g"), grouped("4", "c", "g"))
	r.beginTx(func(key string, g *driver.Grant) {
		if key == "b" {
			g.Verdict, g.Wait = driver.Busy, time.Second
		}
	})
	r.rolledBack() // c's claim was won, and c must not run
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "4" || s[0].Action != driver.Defer {
		t.Fatalf("settled %+v", s)
	}
	r.beginTx(nil)
	r.returns("a x")
}

// A member that fails stops its group, also its members in later halves.
func TestFM60_CulpritStopsItsGroupInLaterHalves(t *testing.T) {
	r := newFixture(t, batchMode)
	r.receive(grouped("1", "a", "g"), grouped("2", "b", "g"), grouped("3", "c", "g"), message("4", "x"))
	r.beginTx(nil)
	r.fails("a b c x")
	r.beginTx(nil)
	r.fails("a b")
	r.beginTx(nil)
	r.fails("a")
	r.claim(nil) // a's failure
	r.finish(driver.Applied)
	r.beginTx(nil)
	r.returns("x")
	var back []any
	for r.has(machine.ActionSettle) > 0 {
		for _, s := range r.settle(driver.Applied).Settlements {
			if s.Action == driver.Defer {
				back = append(back, s.Receipt)
			}
		}
	}
	if len(back) != 2 || back[0] != "2" || back[1] != "3" {
		t.Fatalf("returned %v: b and c are behind a", back)
	}
	if n := r.m.Counts(); n.Effects != 1 || n.Retried != 1 || n.Returned != 2 || r.m.InFlight() != 0 {
		t.Fatalf("counts %+v, %d in flight", n, r.m.InFlight())
	}
}

// A redelivery is not in line: it runs alone, and those behind it wait for it.
func TestGroupWaitsForItsRedelivery(t *testing.T) {
	r := newFixture(t, batchMode)
	again := grouped("2", "b", "g")
	again.Count = 2
	r.receive(grouped("1", "a", "g"), again, grouped("3", "c", "g"), grouped("4", "d", "g"))
	r.beginTx(nil)
	r.returns("a")
	r.settle(driver.Applied)
	r.claim(nil) // b, durably
	r.beginTx(nil)
	r.returns("b")
	r.settle(driver.Applied)
	r.beginTx(nil)
	r.returns("c d")
}

func TestLocalDuplicateInAGroupWaits(t *testing.T) {
	r := newFixture(t, batchMode)
	r.receive(grouped("1", "a", "g"), grouped("2", "a", "g"), grouped("3", "b", "g"))
	r.beginTx(nil)
	r.returns("a")
	r.settle(driver.Applied)
	r.beginTx(func(key string, g *driver.Grant) {
		if key == "a" {
			g.Verdict = driver.Replay
		}
	})
	r.returns("b")
}

// The half that runs has a claim that is not acquired. Those behind it are in the queue, and must not begin either.
func TestFM60_LoserOfAHalfStopsThoseInTheQueue(t *testing.T) {
	r := newFixture(t, batchMode)
	r.receive(grouped("1", "a", "g"), grouped("2", "b", "g"), grouped("3", "c", "g"), grouped("4", "d", "g"))
	r.beginTx(nil)
	r.fails("a b c d")
	r.beginTx(func(_ string, g *driver.Grant) { g.Verdict, g.Reason = driver.Failed, "elsewhere" })
	r.none(machine.ActionBegin, "c and d stand behind a")
	r.settle(driver.Applied)
	if s := r.settle(driver.Applied).Settlements; len(s) != 3 {
		t.Fatalf("settled %+v: b, c and d are returned", s)
	}
}

// An item whose visibility ended while it waited in a transaction is dropped, not begun again.
func TestFM27_VisibilityEndsDuringATransaction(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { batchMode(c); c.Extends = false })
	r.receive(deadLetters("a b")...)
	r.beginTx(nil)
	r.pass(2 * visible)
	r.fails("a b")
	r.none(machine.ActionBegin, "somebody else has them by now")
	if r.m.InFlight() != 0 {
		t.Fatalf("%d in flight", r.m.InFlight())
	}
}

// A member is not behind a predecessor that committed and is not acked yet: its failure is its own, and stops the rest.
func TestFM60_CulpritAfterOneThatIsNotAckedYet(t *testing.T) {
	r := newFixture(t, batchMode)
	r.receive(grouped("1", "a", "g"), grouped("2", "b", "g"), grouped("3", "c", "g"), grouped("4", "d", "g"))
	r.beginTx(nil)
	r.fails("a b c d")
	r.beginTx(nil)
	r.returns("a b")
	r.beginTx(nil)
	r.fails("c")
	r.none(machine.ActionBegin, "d stands behind c")
	if a := r.claim(nil); len(a.Claims) != 1 || a.Claims[0].Key.Raw != "c" {
		t.Fatalf("claimed %+v: c's failure is recorded", a.Claims)
	}
}
