// Package verdicttest builds runs by hand, for tests of their timelines and reports.
package verdicttest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

// Fixture builds a run by hand: times are milliseconds.
type Fixture struct {
	Result crew.Result
	Plan   plan.Plan
}

// New is a run in which nothing has happened.
func New(g plan.Guard) *Fixture {
	f := &Fixture{Plan: plan.Plan{Seed: 1, Guard: g}}
	f.Result.Began = time.UnixMicro(1_700_000_000_000_000)
	return f
}

// At adds an entry, ms milliseconds after the start.
func (f *Fixture) At(ms int, e eventlog.Entry) {
	e.At = f.Result.Began.Add(time.Duration(ms) * time.Millisecond).UnixMicro()
	f.Result.Entries = append(f.Result.Entries, e)
}

// Spawn starts a process.
func (f *Fixture) Spawn(ms, worker, life int) {
	f.At(ms, eventlog.Entry{Kind: eventlog.Spawn, Worker: worker, Life: life, PID: 100*worker + life})
}

// Gone ends it.
func (f *Fixture) Gone(ms, worker, life int, how string) {
	f.At(ms, eventlog.Entry{Kind: eventlog.Exit, Worker: worker, Life: life, Reason: how})
}

// Delivery is one received message; run and charge happen when their times are positive, settled too.
func (f *Fixture) Delivery(worker, life int, key, message string, received, run, charge, settled int) {
	e := eventlog.Entry{Worker: worker, Life: life, Key: key, Message: message}
	add := func(ms int, kind string, change func(*eventlog.Entry)) {
		n := e
		n.Kind = kind
		if change != nil {
			change(&n)
		}
		f.At(ms, n)
	}
	add(received, "received", func(n *eventlog.Entry) { n.VisibleMS = 2000; n.Count = 1 })
	if run > 0 {
		add(run, "started", nil)
	}
	if charge > 0 {
		add(charge, "ended", nil)
		f.Result.Effects = append(f.Result.Effects, place.Effect{
			ID: int64(len(f.Result.Effects) + 1), Key: key, Message: message, Amount: 100_000, Worker: worker, Life: life,
			PID: 100*worker + life, At: f.Result.Began.Add(time.Duration(charge) * time.Millisecond),
		})
	}
	if settled > 0 {
		add(settled, "settled", func(n *eventlog.Entry) { n.Action, n.Outcome = "ack", "applied" })
	}
}

// Scenario is the scenario of the fixture.
func Scenario() plan.Scenario {
	return plan.Scenario{
		Name:    "demo",
		Load:    plan.Load{Orders: 10, Retries: 1, Amount: 100_000, Currency: "JPY"},
		Workers: plan.Workers{Count: 2, Visibility: 2 * time.Second},
		Expect: map[plan.Guard]plan.Expect{
			plan.GuardOff: {Verdict: plan.Broken}, plan.GuardOn: {Verdict: plan.Held},
		},
	}
}

// Timeline judges the run and returns its timeline.
func (f *Fixture) Timeline(t *testing.T) verdict.RunTimeline {
	t.Helper()
	v := verdict.Verdict{Timeline: &verdict.Timeline{Scenario: Scenario()}}
	v.Add(Scenario(), f.Plan, f.Result)
	return v.Timeline.Runs[0]
}

// Broken is a run of the plain consumer with every cause of a second charge.
func Broken() *Fixture {
	f := New(plan.GuardOff)
	f.Spawn(0, 1, 1)
	f.Spawn(0, 2, 1)
	// killed after the effect, before the ack; then again by worker 2
	f.Delivery(1, 1, "order-0001", "m-0001-1", 100, 110, 120, 0)
	f.At(121, eventlog.Entry{Kind: eventlog.Struck, Worker: 1, Life: 1, Step: plan.AfterEffect, Key: "order-0001", Message: "m-0001-1"})
	f.Gone(125, 1, 1, "killed")
	f.Spawn(275, 1, 2)
	f.Delivery(2, 1, "order-0001", "m-0001-1", 2105, 2110, 2120, 2121)
	// worker 1 hangs with order 2 and has order 3 in its buffer; worker 2 gets both
	f.Delivery(1, 2, "order-0002", "m-0002-1", 300, 301, 2900, 2901)
	f.Delivery(1, 2, "order-0003", "m-0003-1", 300, 2902, 2950, 2951)
	f.Delivery(2, 1, "order-0002", "m-0002-1", 2310, 2320, 2330, 2331)
	f.Delivery(2, 1, "order-0003", "m-0003-1", 2310, 2332, 2340, 2341)
	// the producer's second copy
	f.Delivery(2, 1, "order-0004", "m-0004-1", 130, 131, 140, 141)
	f.Delivery(2, 1, "order-0004", "m-0004-2", 150, 151, 160, 161)
	// and one that is fine
	f.Delivery(2, 1, "order-0005", "m-0005-1", 170, 171, 180, 181)
	f.Gone(3000, 1, 2, "exited")
	f.Gone(3000, 2, 1, "exited")
	f.Sort()
	return f
}

// Sort orders the entries and the effects by time, as they are read.
func (f *Fixture) Sort() {
	slices.SortStableFunc(f.Result.Entries, func(a, b eventlog.Entry) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(f.Result.Effects, func(a, b place.Effect) int { return a.At.Compare(b.At) })
}
