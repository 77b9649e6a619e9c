package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// fixture builds a run by hand: times are milliseconds.
type fixture struct {
	began time.Time
	res   result
	plan  Plan
}

func newFixture(g Guard) *fixture {
	f := &fixture{began: time.UnixMicro(1_700_000_000_000_000), plan: Plan{Seed: 1, Guard: g}}
	f.res.began = f.began
	return f
}

func (f *fixture) at(ms int, e Entry) {
	e.At = f.began.Add(time.Duration(ms) * time.Millisecond).UnixMicro()
	f.res.entries = append(f.res.entries, e)
}

func (f *fixture) spawn(ms, worker, life int) {
	f.at(ms, Entry{Kind: noteSpawn, Worker: worker, Life: life, PID: 100*worker + life})
}

func (f *fixture) gone(ms, worker, life int, how string) {
	f.at(ms, Entry{Kind: noteExit, Worker: worker, Life: life, Reason: how})
}

// delivery is one received message; run and charge happen when their times are positive, settled too.
func (f *fixture) delivery(worker, life int, key, message string, received, run, charge, settled int) {
	e := Entry{Worker: worker, Life: life, Key: key, Message: message}
	add := func(ms int, kind string, change func(*Entry)) {
		n := e
		n.Kind = kind
		if change != nil {
			change(&n)
		}
		f.at(ms, n)
	}
	add(received, "received", func(n *Entry) { n.VisibleMS = 2000; n.Count = 1 })
	if run > 0 {
		add(run, "started", nil)
	}
	if charge > 0 {
		add(charge, "ended", nil)
		f.res.effects = append(f.res.effects, Effect{
			ID: int64(len(f.res.effects) + 1), Key: key, Message: message, Amount: 100_000, Worker: worker, Life: life,
			PID: 100*worker + life, At: f.began.Add(time.Duration(charge) * time.Millisecond),
		})
	}
	if settled > 0 {
		add(settled, "settled", func(n *Entry) { n.Action, n.Outcome = "ack", "applied" })
	}
}

func (f *fixture) tell(t *testing.T) Tale {
	t.Helper()
	s := testScenario(t, 10, 2, 2)
	f.res.run = Run{Scenario: "demo", Guard: f.plan.Guard, Currency: "JPY", Verdict: Broken}
	return tell(s, f.plan, f.res)
}

// broken is a run of the plain consumer with every cause of a second charge.
func broken() *fixture {
	f := newFixture(GuardOff)
	f.spawn(0, 1, 1)
	f.spawn(0, 2, 1)
	// killed after the effect, before the ack; then again by worker 2
	f.delivery(1, 1, "order-0001", "m-0001-1", 100, 110, 120, 0)
	f.at(121, Entry{Kind: noteKilled, Worker: 1, Life: 1, Step: AfterEffect, Key: "order-0001", Message: "m-0001-1"})
	f.gone(125, 1, 1, "killed")
	f.spawn(275, 1, 2)
	f.delivery(2, 1, "order-0001", "m-0001-1", 2105, 2110, 2120, 2121)
	// worker 1 hangs with order 2 and has order 3 in its buffer; worker 2 gets both
	f.delivery(1, 2, "order-0002", "m-0002-1", 300, 301, 2900, 2901)
	f.delivery(1, 2, "order-0003", "m-0003-1", 300, 2902, 2950, 2951)
	f.delivery(2, 1, "order-0002", "m-0002-1", 2310, 2320, 2330, 2331)
	f.delivery(2, 1, "order-0003", "m-0003-1", 2310, 2332, 2340, 2341)
	// the producer's second copy
	f.delivery(2, 1, "order-0004", "m-0004-1", 130, 131, 140, 141)
	f.delivery(2, 1, "order-0004", "m-0004-2", 150, 151, 160, 161)
	// and one that is fine
	f.delivery(2, 1, "order-0005", "m-0005-1", 170, 171, 180, 181)
	f.gone(3000, 1, 2, "exited")
	f.gone(3000, 2, 1, "exited")
	sortEntries(f)
	return f
}

func sortEntries(f *fixture) {
	e := f.res.entries
	for i := 1; i < len(e); i++ { // insertion: stable
		for j := i; j > 0 && e[j].At < e[j-1].At; j-- {
			e[j], e[j-1] = e[j-1], e[j]
		}
	}
	ef := f.res.effects // the ledger numbers its rows in order of time
	for i := 1; i < len(ef); i++ {
		for j := i; j > 0 && ef[j].At.Before(ef[j-1].At); j-- {
			ef[j], ef[j-1] = ef[j-1], ef[j]
		}
	}
}

func TestTellFindsTheCauseOfEverySecondCharge(t *testing.T) {
	tale := broken().tell(t)
	want := map[string]struct {
		cause DoubleCause
		why   string
	}{
		"order-0001": {CauseKilled, "worker 1 was killed after the effect, before the ack"},
		"order-0002": {CauseOverrun, "worker 1 took 2.6 s"},
		"order-0003": {CauseOverrun, "it waited in the buffer of worker 1 for 2.6 s"},
		"order-0004": {CauseProducer, "the producer sent it twice"},
	}
	if len(tale.Doubles) != len(want) {
		t.Errorf("%d doubled orders, want %d", len(tale.Doubles), len(want))
	}
	for _, d := range tale.Doubles {
		w := want[d.Key]
		if d.Cause != w.cause || !strings.HasPrefix(d.Why, w.why) || d.Charges != 2 {
			t.Errorf("%s: %s, %q, %d charges", d.Key, d.Cause, d.Why, d.Charges)
		}
	}
}

func TestTellDrawsProcessesKillsAndFlow(t *testing.T) {
	tale := broken().tell(t)
	if len(tale.Lanes) != 2 || len(tale.Lanes[0].Processes) != 2 || len(tale.Lanes[1].Processes) != 1 {
		t.Fatalf("lanes %+v", tale.Lanes)
	}
	first := tale.Lanes[0].Processes[0]
	if !first.Killed || first.PID != 101 || first.Step != AfterEffect || !first.Spans[0].Cut || first.Spans[0].Settled {
		t.Errorf("the killed process: %+v, %+v", first, first.Spans[0])
	}
	if len(tale.Kills) != 1 || tale.Kills[0].Charges != 2 || tale.Kills[0].InHand != 1 || tale.Kills[0].Key != "order-0001" {
		t.Errorf("kills %+v", tale.Kills)
	}
	if tale.Flow != (Flow{Charged: 5, Doubled: 4}) {
		t.Errorf("flow %+v", tale.Flow)
	}
	if tale.Lanes[0].Processes[1].Rows != 2 {
		t.Errorf("two deliveries at once in %d rows", tale.Lanes[0].Processes[1].Rows)
	}
}

func TestAboutTellsAnOrderInOrder(t *testing.T) {
	tale := broken().tell(t)
	var b strings.Builder
	last := -1.0
	for _, l := range tale.About("order-0001") {
		if l.AtMS < last {
			t.Errorf("out of order at %.0f ms", l.AtMS)
		}
		last = l.AtMS
		fmt.Fprintf(&b, "%s\n", l.Text)
	}
	for _, want := range []string{
		"worker 1 (pid 101) receives m-0001-1", "charged\n", "worker 1 (pid 101) is killed before the ack is seen",
		"worker 2 (pid 201) receives m-0001-1", "charged again: charge 2", "acked",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

func TestTellGuarded(t *testing.T) {
	f := newFixture(GuardOn)
	f.spawn(0, 1, 1)
	f.delivery(1, 1, "order-0001", "m-1", 10, 11, 30, 31)
	f.at(20, Entry{Kind: "extended", Worker: 1, Life: 1, Key: "order-0001", Message: "m-1", VisibleMS: 2000, Outcome: "applied"})
	f.at(32, Entry{Kind: "decided", Worker: 1, Life: 1, Key: "order-0001", Message: "m-1", Decision: "executed"})
	f.delivery(1, 1, "order-0001", "m-2", 40, 0, 0, 42)
	f.at(41, Entry{
		Kind: "decided", Worker: 1, Life: 1, Key: "order-0001", Message: "m-2", Decision: "replayed", Cause: "producer_duplicate",
	})
	// committed, and killed before the answer: not lost, not doubled
	f.delivery(1, 1, "order-0002", "m-3", 50, 51, 60, 61)
	f.at(62, Entry{Kind: noteKilled, Worker: 1, Life: 1, Step: AfterCommit, Key: "order-0002", Message: "m-3"})
	f.gone(63, 1, 1, "killed")
	sortEntries(f)
	tale := f.tell(t)
	if tale.Flow != (Flow{Charged: 2, Skipped: 1}) || len(tale.Doubles) != 0 {
		t.Errorf("flow %+v, doubles %+v", tale.Flow, tale.Doubles)
	}
	spans := tale.history.spans
	if len(spans) != 3 || len(spans[0].Beats) != 1 || spans[0].VisibleUntil != 2020 || !spans[2].Cut {
		t.Errorf("spans %+v %+v", *spans[0], *spans[2])
	}
	story := fmt.Sprint(tale.About("order-0001"))
	if !strings.Contains(story, "duplicate skipped and acked: the producer sent it twice, and it is done") {
		t.Error(story)
	}
}

func TestPackBoundsTheRows(t *testing.T) {
	var spans []*Span
	for i := range 3 * maxRows {
		spans = append(spans, &Span{From: float64(i), To: 1000})
	}
	if n := pack(spans); n != maxRows {
		t.Errorf("%d rows", n)
	}
	for _, s := range spans {
		if s.Row < 0 || s.Row >= maxRows {
			t.Errorf("row %d", s.Row)
		}
	}
}
