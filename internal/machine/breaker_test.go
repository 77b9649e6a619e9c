package machine_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

var gone = machine.Result{Class: machine.Unavailable, Err: errBoom}

// breaking is a fixture whose breaker opens after n outages in a row, for 10 s to 40 s.
func breaking(t *testing.T, n int, change func(*machine.Config)) *fixture {
	return newFixture(t, func(c *machine.Config) {
		c.Breaker = machine.BreakerConfig{Failures: n, OpenMin: 10 * time.Second, OpenMax: 40 * time.Second}
		c.Trace = traceAll
		if change != nil {
			change(c)
		}
	})
}

// quiet completes heartbeats, the actions that follow from time alone.
func (r *fixture) heartbeats() {
	r.t.Helper()
	for r.has(machine.ActionExtend) > 0 {
		e := r.take(machine.ActionExtend)
		r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Outcomes: applied(len(e.Items)), Sent: r.now})
	}
	for r.has(machine.ActionProlong) > 0 {
		e := r.take(machine.ActionProlong)
		r.step(machine.Event{Kind: machine.Prolonged, Items: e.Items, Outcomes: applied(len(e.Items)), Sent: r.now})
	}
}

func applied(n int) []driver.Outcome {
	out := make([]driver.Outcome, n)
	for i := range out {
		out[i] = driver.Applied
	}
	return out
}

// live lets time pass second by second, with heartbeats.
func (r *fixture) live(d time.Duration) {
	r.t.Helper()
	for end := r.now + d; r.now < end; {
		r.pass(min(time.Second, end-r.now))
		r.heartbeats()
	}
}

// open is how many trace events of a kind there are.
func (r *fixture) notes(k machine.TraceKind) (n int) {
	for i := range r.open {
		if r.open[i].Kind == machine.ActionTrace && r.open[i].TraceEvent.Kind == k {
			n++
		}
	}
	return n
}

// TestUnavailableSpendsNoAttempt: neither attempt nor failure is counted, the doubt stays unless nothing was applied.
func TestUnavailableSpendsNoAttempt(t *testing.T) {
	for _, c := range []struct {
		policy     driver.Takeover
		notApplied bool
		final      driver.Final
		ran        driver.Ran
	}{
		{driver.Resume, false, driver.Release, driver.MaybeApplied},
		{driver.Resume, true, driver.Release, driver.NotApplied},
		{driver.Once, false, driver.Park, driver.Unstarted},
		{driver.Once, true, driver.Release, driver.NotApplied},
	} {
		r := breaking(t, 5, func(cfg *machine.Config) { cfg.Takeover, cfg.MaxAttempts = c.policy, 1 })
		r.begin("a")
		res := gone
		res.NotApplied = c.notApplied
		r.ran("a", res)
		f := r.finish(driver.Applied).Works[0].Finish
		if f.Final != c.final || f.Ran != c.ran || (f.Final == driver.Release && !f.Refund) {
			t.Errorf("%+v: finish %+v", c, f)
		}
		s := r.settle(driver.Applied).Settlements[0]
		if want := driver.Defer; c.final == driver.Release && s.Action != want {
			t.Errorf("%+v: settled with %v", c, s.Action)
		}
	}
}

// TestBreakerOpensAndOneMessageTries: deliveries that have not started are returned, running handlers go on, polling pauses.
// Then one message runs: a failure opens the breaker for twice as long, a success closes it.
func TestBreakerOpensAndOneMessageTries(t *testing.T) {
	r := breaking(t, 2, func(c *machine.Config) { c.Concurrency = 3 })
	r.warm()
	r.receive(message("1", "a"), message("2", "b"), message("3", "c"), message("4", "d"), message("5", "e"))
	r.claim(nil)
	r.ran("a", gone)
	if r.notes(machine.TracePaused) != 0 {
		t.Fatal("one outage opened a breaker that takes two")
	}
	late := r.take(machine.ActionClaim) // for the slot that became free: under way when the breaker opens
	r.ran("b", gone)
	if r.notes(machine.TracePaused) != 1 {
		t.Fatal("it is not open")
	}
	r.step(machine.Event{Kind: machine.Claimed, Items: late.Items, Grants: []driver.Grant{r.acquired(late.Claims[0])}, Sent: r.now})
	if n := r.has(machine.ActionRun); n != 1 {
		t.Fatalf("%d handlers run: only the one from before", n)
	}
	returned := 0
	for r.m.InFlight() > 1 {
		r.live(100 * time.Millisecond)
		for r.has(machine.ActionFinish) > 0 {
			for _, w := range r.finish(driver.Applied).Works {
				if f := w.Finish; f.Final != driver.Release || (f.Ran != driver.Unstarted && !f.Refund) {
					t.Fatalf("finish %+v", f)
				}
			}
		}
		for r.has(machine.ActionSettle) > 0 {
			for _, s := range r.settle(driver.Applied).Settlements {
				if returned++; s.Action != driver.Defer || (s.Receipt != "1" && s.After < 5*time.Second) {
					t.Fatalf("settled %+v: it would be redelivered at once", s)
				}
			}
		}
	}
	if returned != 4 {
		t.Fatalf("%d returned", returned)
	}
	if r.has(machine.ActionReceive) > 0 {
		r.receive(message("6", "f")) // a poll that was under way when it opened
		if s := r.settle(driver.Applied).Settlements[0]; s.Action != driver.Defer {
			t.Fatalf("%+v", s)
		}
	}
	r.live(8 * time.Second)
	r.none(machine.ActionReceive, "polling is paused")
	r.ran("c", machine.Result{}) // the one from before says nothing new, and completes
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Complete {
		t.Fatalf("finish %+v", f)
	}
	r.settle(driver.Applied)
	r.none(machine.ActionReceive, "still open")

	r.tries(gone, 2*time.Second)
	r.live(18 * time.Second)
	r.none(machine.ActionReceive, "twice as long")
	r.tries(gone, 6*time.Second)
	r.live(38 * time.Second)
	r.none(machine.ActionReceive, "and twice as long again")
	r.tries(machine.Result{Class: machine.Failed, Err: errBoom}, 8*time.Second) // its own failure: the downstream responded
	if r.notes(machine.TraceResumed) != 1 || r.notes(machine.TracePaused) != 3 {
		t.Fatalf("resumed %d times, paused %d", r.notes(machine.TraceResumed), r.notes(machine.TracePaused))
	}
	if a := r.take(machine.ActionReceive); a.Max < 2 {
		t.Fatalf("it fetches %d: closed is closed", a.Max)
	}
}

// tries waits at most d for the breaker to be half open, and runs one message.
func (r *fixture) tries(res machine.Result, within time.Duration) {
	r.t.Helper()
	r.live(within)
	a := r.take(machine.ActionReceive)
	if a.Max != 1 {
		r.t.Fatalf("%d are fetched to try with", a.Max)
	}
	r.step(machine.Event{Kind: machine.Received, Arrivals: []machine.Arrival{message("t1", "try"), message("t2", "other")}, Sent: r.now})
	if c := r.claim(nil); len(c.Claims) != 1 || c.Claims[0].Key.Raw != "try" {
		r.t.Fatalf("claimed %+v", c.Claims)
	}
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "t2" || s[0].Action != driver.Defer {
		r.t.Fatalf("settled %+v: one tries, the other comes later", s)
	}
	r.none(machine.ActionReceive, "nothing else is fetched while it tries")
	r.ran("try", res)
	r.finish(driver.Applied)
	r.settle(driver.Applied)
}

// TestBreakerStaysHalfOpenUntilARunEnds: a duplicate, a busy key and a cancelled run do not count.
func TestBreakerStaysHalfOpenUntilARunEnds(t *testing.T) {
	r := breaking(t, 1, nil)
	r.begin("a")
	r.ran("a", gone)
	r.finish(driver.Applied)
	r.settle(driver.Applied)
	if r.has(machine.ActionReceive) > 0 {
		r.receive()
	}
	r.live(12 * time.Second)
	for _, v := range []driver.Verdict{driver.Replay, driver.Busy} {
		r.receive(message("m", "k"))
		r.claim(func(_ string, g *driver.Grant) { g.Verdict, g.Wait = v, time.Second })
		r.settle(driver.Applied)
	}
	if l := r.m.Load(); l.Breaker != "half-open" {
		t.Fatalf("%+v", l)
	}
	r.receive(message("m", "k"))
	r.claim(nil)
	e := r.now
	for r.has(machine.ActionCancel) == 0 && r.now < e+time.Minute {
		r.pass(time.Second) // no extension gets a response
	}
	r.ran("k", machine.Result{Class: machine.Failed, Err: errBoom})
	if l := r.m.Load(); l.Breaker != "half-open" {
		t.Fatalf("%+v", l)
	}
	r.receive(message("n", "l"))
	r.claim(nil)
	r.ran("l", machine.Result{})
	if l := r.m.Load(); l.Breaker != "closed" {
		t.Fatalf("%+v", l)
	}
}

// TestBreakerByRatio: half of the runs within a window, at least ten of them.
func TestBreakerByRatio(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) {
		c.Breaker = machine.BreakerConfig{Ratio: 0.5, Least: 10, Window: 20 * time.Second, OpenMin: time.Second, OpenMax: time.Second}
	})
	one := func(res machine.Result) {
		r.begin("a")
		r.ran("a", res)
		r.finish(driver.Applied)
		r.settle(driver.Applied)
	}
	for range 30 {
		one(machine.Result{})
	}
	r.live(25 * time.Second) // all that is forgotten
	for i := range 9 {
		if one(gone); r.m.Load().Open {
			t.Fatalf("open after %d runs", i+1)
		}
	}
	if one(gone); !r.m.Load().Open {
		t.Fatal("ten of ten, and it is not open")
	}
}

// TestOneMessageOutlivesALongOutage: hundreds of deliveries, a single attempt allowed, and the message is still there.
func TestOneMessageOutlivesALongOutage(t *testing.T) {
	r := breaking(t, 1, func(c *machine.Config) { c.MaxAttempts = 1 })
	m := message("1", "a")
	for i := range 300 {
		m.Count = i + 1
		r.receive(m)
		r.claim(func(_ string, g *driver.Grant) { g.Unknown = i > 0 })
		r.ran("a", gone)
		if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || !f.Refund {
			t.Fatalf("outage %d: %+v", i, f)
		}
		r.settle(driver.Applied)
		if r.has(machine.ActionReceive) > 0 {
			r.receive()
		}
		r.live(46 * time.Second)
		r.open = r.only(machine.ActionReceive)
	}
}

// only is the open actions of one kind.
func (r *fixture) only(k machine.ActionKind) (out []machine.Action) {
	for _, a := range r.open {
		if a.Kind == k {
			out = append(out, a)
		}
	}
	return out
}

// TestProbeThatCannotAskIsNoDoubt: while the downstream is down the probe cannot find out whether the effect happened. The
// key is not parked.
func TestProbeThatCannotAskIsNoDoubt(t *testing.T) {
	r := breaking(t, 1, func(c *machine.Config) { c.Takeover, c.Probes = driver.Probe, true })
	r.receive(message("1", "a"))
	r.claim(func(_ string, g *driver.Grant) { g.Unknown = true })
	res := gone
	res.Probe = machine.ProbeUnknown
	if a := r.ran("a", res); !a.Job.Probe {
		t.Fatal("it was not probed")
	}
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || f.Ran != driver.Unstarted {
		t.Fatalf("finish %+v", f)
	}
	if !r.m.Load().Open {
		t.Fatal("the breaker is not open")
	}
}

// TestOutageInABatch: an outage is the failure of no member. No culprit is looked for, and no attempt is spent.
func TestOutageInABatch(t *testing.T) {
	r := breaking(t, 1, func(c *machine.Config) { c.Mode, c.Batched = machine.Open, true })
	r.receive(message("1", "a"), message("2", "b"), message("3", "c"))
	b := r.take(machine.ActionBegin)
	grants := make([]driver.Grant, len(b.Claims))
	for i, c := range b.Claims {
		grants[i] = r.acquired(c)
	}
	r.step(machine.Event{Kind: machine.Begun, Items: b.Items, Claims: b.Claims, Grants: grants, Sent: r.now})
	n := len(grants)
	a := r.take(machine.ActionRun)
	res := gone
	res.NotApplied = true
	r.step(machine.Event{Kind: machine.Ran, Item: a.Item, Items: a.Items, Result: res})
	r.take(machine.ActionRollback)
	r.step(machine.Event{Kind: machine.RolledBack})
	if !r.m.Load().Open {
		t.Fatal("the breaker is not open")
	}
	if c := r.claim(nil); len(c.Claims) != n { // failures are recorded although it is open: that needs no run
		t.Fatalf("%d of %d are recorded", len(c.Claims), n)
	}
	works := r.finish(driver.Applied).Works
	for _, w := range works {
		if f := w.Finish; f.Final != driver.Release || !f.Refund || f.Ran != driver.NotApplied {
			t.Fatalf("finish %+v", f)
		}
	}
	if len(works) != n {
		t.Fatalf("%d of %d were released", len(works), n)
	}
	r.none(machine.ActionBegin, "it is open")
}

// TestBreakerReturnsAtOnce: a delivery that waits for a slot when the breaker opens is returned in the same step, unclaimed.
func TestBreakerReturnsAtOnce(t *testing.T) {
	r := breaking(t, 1, func(c *machine.Config) { c.Concurrency = 1 })
	r.warm()
	r.receive(message("1", "a"), message("2", "b"), message("3", "c"))
	r.claim(nil)
	r.ran("a", gone)
	if s := r.settle(driver.Applied).Settlements; len(s) != 2 || s[0].Action != driver.Defer || s[1].After < 10*time.Second {
		t.Fatalf("settled %+v", s)
	}
	r.none(machine.ActionClaim, "it is open")
}

// TestRunsFromBeforeDoNotCount: only the trial decides, however the runs end that began before the breaker opened.
func TestRunsFromBeforeDoNotCount(t *testing.T) {
	for _, res := range []machine.Result{{}, gone} {
		r := breaking(t, 1, nil)
		r.warm()
		r.receive(message("1", "a"), message("2", "old"))
		r.claim(nil)
		r.ran("a", gone)
		r.finish(driver.Applied)
		r.settle(driver.Applied)
		if r.has(machine.ActionReceive) > 0 {
			r.receive()
		}
		r.live(12 * time.Second)
		r.receive(message("3", "try"))
		r.claim(nil)
		r.ran("old", res)
		if l := r.m.Load(); l.Breaker != "half-open" {
			t.Fatalf("%v after an old run ended with class %d", l.Breaker, res.Class)
		}
		r.ran("try", machine.Result{})
		if l := r.m.Load(); l.Breaker != "closed" {
			t.Fatalf("%+v", l)
		}
	}
}
