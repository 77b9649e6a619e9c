package machine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

var errBoom = errors.New("boom")

func TestClaimsOnlyForFreeSlotsAndInBatches(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Concurrency = 2 })
	r.receive(message("1", "a"), message("2", "b"), message("3", "c"))
	if a := r.claim(nil); len(a.Claims) != 2 {
		t.Fatalf("claimed %d keys for 2 slots (law 1)", len(a.Claims))
	}
	r.none(machine.ActionClaim, "both slots are taken")
	r.ran("a", machine.Result{})
	if a := r.claim(nil); len(a.Claims) != 1 || a.Claims[0].Key.Raw != "c" {
		t.Fatalf("claimed %v for the slot that became free", a.Claims)
	}
	// While a finish is in flight the next ones gather.
	r.ran("b", machine.Result{})
	r.ran("c", machine.Result{})
	if n := r.has(machine.ActionFinish); n != 1 {
		t.Fatalf("%d finish flushes at once", n)
	}
	if a := r.finish(driver.Applied); len(a.Works) != 1 {
		t.Fatalf("first flush has %d works", len(a.Works))
	}
	if a := r.finish(driver.Applied); len(a.Works) != 2 {
		t.Fatalf("second flush has %d works, want the 2 that gathered", len(a.Works))
	}
}

func TestOneDeliveryFromFetchToSettle(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.ran("a", machine.Result{Value: []byte("done")})
	r.none(machine.ActionSettle, "nothing is acked before the record is complete (law 1)")
	a := r.finish(driver.Applied)
	if f := a.Works[0].Finish; f.Final != driver.Complete || string(f.Result) != "done" || f.Hold.Token != 1 {
		t.Fatalf("finish %+v", f)
	}
	if s := r.settle(driver.Applied).Settlements[0]; s.Action != driver.Ack || s.Receipt != "m-a" {
		t.Fatalf("settlement %+v", s)
	}
	if n := r.m.Counts(); n.Executed != 1 || n.Effects != 1 || r.m.InFlight() != 0 {
		t.Fatalf("counts %+v, in flight %d", n, r.m.InFlight())
	}
}

func TestFM16_BusyIsDeferredNeverAcked(t *testing.T) {
	for _, c := range []struct {
		redrives      bool
		count         int
		atLeast, most time.Duration
	}{
		{true, 1, 2 * time.Second, 3 * time.Second},
		{true, 3, 8 * time.Second, 12 * time.Second},
		{true, 50, time.Minute, time.Minute},
		{false, 3, 8 * time.Second, 9 * time.Second},
		{false, 50, 9 * time.Second, 9 * time.Second}, // a lease: the run may have ended long before
	} {
		r := newFixture(t, func(cfg *machine.Config) { cfg.Redrives = c.redrives })
		m := message("1", "a")
		m.Count = c.count
		r.receive(m)
		r.claim(func(_ string, g *driver.Grant) { g.Verdict, g.Wait = driver.Busy, 2*time.Second })
		if s := r.settle(driver.Applied).Settlements[0]; s.Action != driver.Defer || s.After < c.atLeast || s.After > c.most {
			t.Errorf("%+v: %v after %v, want a defer (law 6)", c, s.Action, s.After)
		}
	}
}

func TestFM31_UnknownClaimIsRepeatedWithItsNonce(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"))
	a := r.take(machine.ActionClaim)
	r.step(machine.Event{Kind: machine.Claimed, Items: a.Items, Err: errBoom})
	r.pass(time.Second)
	b := r.claim(nil)
	if a.Claims[0].Nonce != b.Claims[0].Nonce {
		t.Fatal("the claim was repeated with another nonce (law 5)")
	}
	r.ran("a", machine.Result{Class: machine.Failed, NotApplied: true, Err: errBoom})
	r.finish(driver.Applied)
	r.settle(driver.Applied)
	r.receive(message("1", "a"))
	if c := r.claim(nil); c.Claims[0].Nonce == a.Claims[0].Nonce {
		t.Fatal("a released nonce is spent (law 5)")
	}
}

func TestFM34_StoreDownPausesPollingAndResumesHalfOpen(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"), message("2", "b"))
	a := r.take(machine.ActionClaim)
	r.step(machine.Event{Kind: machine.Claimed, Items: a.Items, Err: errBoom})
	r.receive() // the poll in flight returns nothing
	for range 5 {
		r.pass(4 * time.Second)
		p := r.take(machine.ActionClaim)
		if len(p.Claims) != 1 {
			t.Fatalf("the breaker is half open: %d claims", len(p.Claims))
		}
		r.step(machine.Event{Kind: machine.Claimed, Items: p.Items, Err: errBoom})
		r.none(machine.ActionReceive, "polling is paused (law 8)")
		for r.has(machine.ActionProlong) > 0 {
			v := r.take(machine.ActionProlong)
			out := make([]driver.Outcome, len(v.Items))
			for i := range out {
				out[i] = driver.Applied
			}
			r.step(machine.Event{Kind: machine.Prolonged, Items: v.Items, Outcomes: out, Sent: r.now})
		}
	}
	if r.m.InFlight() != 2 {
		t.Fatalf("%d in flight: deliveries are kept and their visibility renewed (law 8)", r.m.InFlight())
	}
	r.pass(4 * time.Second)
	r.claim(nil)
	r.claim(nil)
	if r.has(machine.ActionRun) != 2 || r.has(machine.ActionReceive) != 1 {
		t.Fatal("it did not resume")
	}
}

func TestFM35_NoResponseFinishIsRepeatedUntilTheLeaseEnds(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.ran("a", machine.Result{})
	first := r.take(machine.ActionFinish)
	hold := first.Works[0].Finish.Hold
	var last time.Duration
	for a := first; ; a = r.take(machine.ActionFinish) {
		if a.Works[0].Finish.Hold != hold || a.Works[0].Finish.Final != driver.Complete {
			t.Fatalf("the repeated write is another one: %+v", a.Works[0].Finish)
		}
		last = r.now
		r.step(machine.Event{Kind: machine.Finished, Items: a.Items, Err: errBoom})
		for r.has(machine.ActionExtend) > 0 {
			e := r.take(machine.ActionExtend)
			r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Sent: r.now, Err: errBoom})
		}
		if r.m.InFlight() == 0 {
			break
		}
		r.pass(3300 * time.Millisecond)
	}
	if last < time.Second+lease-guard {
		t.Fatalf("it gave up at %v, before its own deadline", last)
	}
	r.none(machine.ActionSettle, "the outcome is unknown: no ack, no release (law 4)")
	r.none(machine.ActionFinish, "the outcome is unknown: no ack, no release (law 4)")
	if n := r.m.Counts(); n.Fenced != 1 || n.Effects != 0 {
		t.Fatalf("counts %+v", n)
	}
}

func TestFM1_LostLeaseCancelsAndWritesNothing(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.pass(lease / 2)
	e := r.take(machine.ActionExtend)
	r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Outcomes: []driver.Outcome{driver.Lost}, Sent: r.now})
	if a := r.take(machine.ActionCancel); a.Cause != machine.CauseFenced {
		t.Fatalf("cause %d", a.Cause)
	}
	r.ran("a", machine.Result{})
	r.none(machine.ActionFinish, "the loser of a compare-and-swap writes nothing (law 2)")
	r.none(machine.ActionSettle, "the loser does not ack (law 2)")
	if r.m.InFlight() != 0 {
		t.Fatal("it is still in flight")
	}
}

// TestFM23_LoserReturnsMessageWithoutVisibility: no timeout takes the message from a loser whose broker has none (RabbitMQ, Kafka).
// So the loser returns it. It writes nothing, and does not ack.
func TestFM23_LoserReturnsMessageWithoutVisibility(t *testing.T) {
	r := newFixture(t, nil)
	m := message("1", "a")
	m.Visible = 0
	r.receive(m)
	r.claim(nil)
	r.pass(lease / 2)
	e := r.take(machine.ActionExtend)
	r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Outcomes: []driver.Outcome{driver.Lost}, Sent: r.now})
	r.none(machine.ActionSettle, "its handler still runs")
	r.ran("a", machine.Result{})
	r.none(machine.ActionFinish, "the loser of a compare-and-swap writes nothing (law 2)")
	if a := r.settle(driver.Applied); len(a.Settlements) != 1 || a.Settlements[0].Action != driver.Defer {
		t.Fatalf("settlements %+v", a.Settlements)
	}
	if n := r.m.Counts(); r.m.InFlight() != 0 || n.Fenced != 1 {
		t.Fatalf("%d in flight, counts %+v", r.m.InFlight(), n)
	}
}

// TestFM33_NothingElseReturnsADelivery: RabbitMQ and Kafka deliver a message again only when its consumer returns it or ends.
func TestFM33_NothingElseReturnsADelivery(t *testing.T) {
	r := newFixture(t, nil)
	kept := message("1", "a")
	kept.Visible = 0
	r.receive(kept)
	r.claim(nil)
	r.ran("a", machine.Result{})
	for range 20 { // no write gets a response
		if r.has(machine.ActionFinish) > 0 {
			r.step(machine.Event{Kind: machine.Finished, Items: r.take(machine.ActionFinish).Items, Err: errBoom})
		}
		for r.has(machine.ActionExtend) > 0 {
			r.step(machine.Event{Kind: machine.Extended, Items: r.take(machine.ActionExtend).Items, Sent: r.now, Err: errBoom})
		}
		if r.has(machine.ActionSettle) > 0 {
			break
		}
		r.pass(3300 * time.Millisecond)
	}
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Action != driver.Defer || s[0].Receipt != "1" {
		t.Fatalf("settled %+v", s)
	}
	r.none(machine.ActionFinish, "the outcome is unknown: no release (law 4)")
	if n := r.m.Counts(); n.Fenced != 1 || n.Effects != 0 || r.m.InFlight() != 0 {
		t.Fatalf("counts %+v, %d in flight", n, r.m.InFlight())
	}
}

// TestFM46_SettlementWithoutVisibilityIsRepeated: dead letters of RabbitMQ and Kafka are in a store, which can be down for longer than
// a few tries take. No visibility timeout redelivers the message meanwhile. A worker that stops gives up: its connection ends.
func TestFM46_SettlementWithoutVisibilityIsRepeated(t *testing.T) {
	r := newFixture(t, nil)
	m := message("1", "a")
	m.Visible, m.KeyErr = 0, errBoom
	r.receive(m)
	for range 20 {
		if a := r.settle(driver.Unknown); a.Settlements[0].Action != driver.Dead {
			t.Fatalf("settlement %+v", a.Settlements[0])
		}
		r.pass(4 * time.Second)
	}
	stopping := message("2", "b")
	stopping.Visible, stopping.KeyErr = 0, errBoom
	r.settle(driver.Applied)
	if n := r.m.Counts(); r.m.InFlight() != 0 || n.SettleFails != 0 || n.Rejected != 1 {
		t.Fatalf("%d in flight, counts %+v", r.m.InFlight(), n)
	}
	r.receive(stopping)
	for range 10 {
		r.settle(driver.Unknown)
		r.pass(4 * time.Second)
	}
	r.step(machine.Event{Kind: machine.Drain})
	if r.settle(driver.Unknown); r.m.InFlight() != 0 || r.m.Counts().SettleFails != 1 {
		t.Fatalf("%d in flight, counts %+v", r.m.InFlight(), r.m.Counts())
	}
}

func TestFM9_LeaseIsBelievedFromBeforeTheRequest(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"))
	a := r.take(machine.ActionClaim)
	sent := r.now
	r.now += 4 * time.Second
	r.step(machine.Event{Kind: machine.Claimed, Items: a.Items, Grants: []driver.Grant{r.acquired(a.Claims[0])}, Sent: sent})
	if d := r.take(machine.ActionRun).Job.Deadline; d != sent+lease-guard {
		t.Fatalf("deadline %v, want %v (law 7)", d, sent+lease-guard)
	}
	// No extension gets a response: at its own deadline the machine stops the run.
	r.pass(lease)
	if c := r.take(machine.ActionCancel); c.Cause != machine.CauseFenced {
		t.Fatalf("cause %d", c.Cause)
	}
}

func TestFM36_SlowClaimIsReturnedUnstarted(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"))
	a := r.take(machine.ActionClaim)
	sent := r.now
	r.now += lease
	r.step(machine.Event{Kind: machine.Claimed, Items: a.Items, Grants: []driver.Grant{r.acquired(a.Claims[0])}, Sent: sent})
	r.none(machine.ActionRun, "its deadline has passed")
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || f.Ran != driver.Unstarted {
		t.Fatalf("finish %+v", f)
	}
}

func TestFM8_MaxRuntimeEndsTheExtensions(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.MaxRuntime = 20 * time.Second })
	r.begin("a")
	extended := time.Duration(0)
	for range 60 {
		r.pass(time.Second)
		for r.has(machine.ActionExtend) > 0 {
			e := r.take(machine.ActionExtend)
			extended = r.now
			r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Outcomes: []driver.Outcome{driver.Applied}, Sent: r.now})
		}
	}
	if c := r.take(machine.ActionCancel); c.Cause != machine.CauseTimeout {
		t.Fatalf("cause %d", c.Cause)
	}
	if extended < 15*time.Second || extended > 22*time.Second {
		t.Fatalf("last extension at %v, the run may take 20 s", extended)
	}
	r.none(machine.ActionFinish, "a key is never released while its handler runs (law 11)")
}

func TestTimeoutIsAFailure(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Timeout = 2 * time.Second })
	r.begin("a")
	r.pass(2 * time.Second)
	if c := r.take(machine.ActionCancel); c.Cause != machine.CauseTimeout {
		t.Fatalf("cause %d", c.Cause)
	}
	r.ran("a", machine.Result{Class: machine.Failed, Err: errBoom})
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Release || f.Ran != driver.MaybeApplied || f.Refund {
		t.Fatalf("finish %+v", f)
	}
}

func TestFM58_ResultThatIsTooLargeIsNotStored(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.ran("a", machine.Result{Value: make([]byte, 9)})
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Complete || f.Result != nil || f.Reason == "" {
		t.Fatalf("finish %+v", f)
	}
}

func TestBackoffStaysInItsBounds(t *testing.T) {
	for _, spread := range []byte{0, 0x80, 0xff} {
		for failures := range 70 {
			r := newFixture(t, func(c *machine.Config) {
				c.MaxAttempts = 100
				c.Nonce = func() driver.Nonce { return driver.Nonce{1, 14: spread, 15: spread} }
			})
			r.receive(message("1", "a"))
			r.claim(func(_ string, g *driver.Grant) { g.Failures = failures })
			r.ran("a", machine.Result{Class: machine.Failed, Err: errBoom})
			f := r.finish(driver.Applied).Works[0].Finish
			most := r.cfg.BackoffMax
			if failures < 3 {
				most = 2 * r.cfg.BackoffMin << failures
			}
			least := max(most/2, r.cfg.BackoffMin)
			if f.RetryAfter < least || f.RetryAfter > most || (f.RetryAfter == least) != (spread == 0) {
				t.Errorf("after %d failures: %v, want %v to %v", failures, f.RetryAfter, least, most)
			}
			if s := r.settle(driver.Applied).Settlements[0]; s.Action != driver.Retry || s.After != f.RetryAfter {
				t.Errorf("settlement %+v", s)
			}
		}
	}
}

func TestLastAttemptBecomesALetter(t *testing.T) {
	r := newFixture(t, nil)
	r.receive(message("1", "a"))
	r.claim(func(_ string, g *driver.Grant) { g.Failures = 2 })
	r.ran("a", machine.Result{Class: machine.Failed, Err: errBoom})
	if f := r.finish(driver.Applied).Works[0].Finish; f.Final != driver.Fail {
		t.Fatalf("finish %+v", f)
	}
	s := r.settle(driver.Applied).Settlements[0]
	if s.Action != driver.Dead || s.DeadLetter.ID != driver.DeadLetterID(driver.DeadLetterFailed, s.DeadLetter.Key, 1, "") {
		t.Fatalf("settlement %+v", s)
	}
}

func TestFM27_UnstartedDeliveryPastItsVisibilityIsDropped(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Concurrency, c.Extends = 1, false })
	r.receive(message("1", "a"), message("2", "b"))
	r.claim(nil)
	r.pass(visible)
	if r.m.InFlight() != 1 {
		t.Fatalf("%d in flight: the one that waits has expired", r.m.InFlight())
	}
	r.open = nil
	r.step(machine.Event{})
	r.none(machine.ActionSettle, "nothing is written for it")
}

func TestRecoveredCompletionClosesItsDeadLetter(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.ran("a", machine.Result{})
	a := r.finish(driver.Recovered)
	s := r.settle(driver.Applied).Settlements[0]
	if want := driver.DeadLetterID(driver.DeadLetterUncertain, a.Works[0].Finish.Hold.Key, 1, ""); s.Action != driver.Ack || s.Close != want {
		t.Fatalf("settlement %+v (late truth wins)", s)
	}
}

// FM19: an ack that never gets a response is repeated, then given up and counted. The record replays the redelivery.
func TestFM19_SettlingGivesUp(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.ran("a", machine.Result{})
	r.finish(driver.Applied)
	tries := 0
	for ; r.m.InFlight() > 0 && tries < 100; tries++ {
		r.settle(driver.Unknown)
		r.pass(4 * time.Second)
	}
	if c := r.m.Counts(); r.m.InFlight() != 0 || tries < 2 || c.SettleFails != 1 || c.Effects != 1 {
		t.Fatalf("%d in flight after %d tries, %+v", r.m.InFlight(), tries, c)
	}
}
