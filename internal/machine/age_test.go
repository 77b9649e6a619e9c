package machine_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// aged is a message of the given age.
func aged(id, key string, age time.Duration) machine.Arrival {
	a := message(id, key)
	a.Age = age
	return a
}

func grant(change func(*driver.Grant)) func(string, *driver.Grant) {
	return func(_ string, g *driver.Grant) {
		if change != nil {
			change(g)
		}
	}
}

// TestS206_TooOldAMessageBecomesADeadLetterUnstarted: only a key that was not begun may be too old. Any other goes on.
func TestS206_TooOldAMessageBecomesADeadLetterUnstarted(t *testing.T) {
	const most = time.Hour
	for name, c := range map[string]struct {
		id     string
		age    time.Duration
		change func(*driver.Grant)
		old    bool
	}{
		"old":              {age: most + 1, old: true},
		"not yet":          {age: most},
		"from the future":  {age: -time.Hour},
		"unknown":          {age: machine.UnknownAge},
		"tried before":     {age: 2 * most, change: func(g *driver.Grant) { g.Attempt = 2 }},
		"failed before":    {age: 2 * most, change: func(g *driver.Grant) { g.Failures = 1 }},
		"in doubt":         {age: 2 * most, change: func(g *driver.Grant) { g.Unknown = true }},
		"taken over":       {age: 2 * most, change: func(g *driver.Grant) { g.Takeovers = 1 }},
		"reopened":         {age: 2 * most, change: func(g *driver.Grant) { g.Hold.Generation = 2 }},
		"sent by a person": {id: driver.RedriveID("x"), age: 2 * most},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, func(c *machine.Config) { c.MaxAge = most })
			id := c.id
			if id == "" {
				id = "1"
			}
			r.receive(aged(id, "a", c.age))
			r.claim(grant(c.change))
			if !c.old {
				r.take(machine.ActionRun)
				return
			}
			r.none(machine.ActionRun, "it is too old")
			f := r.finish(driver.Applied).Works[0].Finish
			if f.Final != driver.Fail || f.Ran != driver.Unstarted {
				t.Fatalf("finished %+v", f)
			}
			s := r.settle(driver.Applied).Settlements[0]
			if s.Action != driver.Dead || s.DeadLetter == nil || s.DeadLetter.Kind != driver.DeadLetterFailed || s.DeadLetter.ID == "" {
				t.Fatalf("settled %+v", s)
			}
			if n := r.m.Counts(); n.Rejected != 1 || n.Executed != 0 {
				t.Fatalf("counts %+v", n)
			}
		})
	}
}

// TestS206_CompletedKeysAreNeverTooOld: a late duplicate of a completed key is replayed from its record.
func TestS206_CompletedKeysAreNeverTooOld(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.MaxAge = time.Hour })
	r.receive(aged("1", "a", 3*time.Hour))
	r.claim(grant(func(g *driver.Grant) { g.Verdict = driver.Replay }))
	if s := r.settle(driver.Applied).Settlements[0]; s.Action != driver.Ack {
		t.Fatalf("settled %+v", s)
	}
}

// TestS206_WithoutAKeyTheFirstDeliveryDecides: without a record, an earlier delivery may have run.
func TestS206_WithoutAKeyTheFirstDeliveryDecides(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.MaxAge = time.Hour })
	first, again := aged("1", "", 2*time.Hour), aged("2", "", 2*time.Hour)
	first.KeyErr, first.Unkeyed, again.KeyErr, again.Unkeyed = errBoom, true, errBoom, true
	again.Count = 2
	r.receive(first, again)
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "1" || s[0].Action != driver.Dead {
		t.Fatalf("settled %+v", s)
	}
	if a := r.take(machine.ActionRun); a.Item.ID != "2" {
		t.Fatalf("ran %s", a.Item.ID)
	}
}

// TestNoLeaseReachesBeyondUntil: a process that is frozen then could not renew it.
func TestNoLeaseReachesBeyondUntil(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Until = 13 * time.Second })
	r.receive(message("1", "a"))
	c := r.take(machine.ActionClaim)
	if got := c.Claims[0].Lease; got != lease {
		t.Fatalf("a lease of %v, and there is time for %v", got, lease)
	}
	r.open = append(r.open, c)
	r.claim(nil)
	for r.has(machine.ActionExtend) == 0 {
		r.pass(lease / 6) // the heartbeat
	}
	r.pass(lease / 3)
	e := r.take(machine.ActionExtend)
	r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Sent: r.now}) // no outcomes
	for r.has(machine.ActionExtend) == 0 {
		r.pass(lease / 6)
	}
	e = r.take(machine.ActionExtend)
	if e.Lease <= 0 || e.Lease > r.cfg.Until-r.now {
		t.Fatalf("extended by %v at %v", e.Lease, r.now)
	}
	sent := r.now
	r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Outcomes: []driver.Outcome{driver.Applied}, Sent: sent})
	if a := r.take(machine.ActionRenewed); a.Until > r.cfg.Until-guard {
		t.Fatalf("believed until %v", a.Until)
	}
	r.receive(message("2", "b"))
	if got := r.take(machine.ActionClaim).Claims[0].Lease; got > r.cfg.Until-r.now {
		t.Fatalf("a lease of %v at %v", got, r.now)
	}
}

// TestFM73_AgeDoesNotChangeTheOrderOfAGroup: two of a group grow too old while they wait for a transaction. The second
// does not overtake the first, which has to be claimed outside of a transaction.
func TestFM73_AgeDoesNotChangeTheOrderOfAGroup(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { batchMode(c); c.MaxAge = time.Hour })
	a, b := grouped("1", "a", "g"), grouped("2", "b", "g")
	a.Age, b.Age = time.Hour-time.Second/2, time.Hour-time.Second/2
	r.receive(a, b)
	begin := func() machine.Action {
		x := r.take(machine.ActionBegin)
		r.pass(400 * time.Millisecond)
		r.step(machine.Event{Kind: machine.Begun, Items: x.Items, Err: errBoom})
		r.pass(time.Second)
		return x
	}
	if x := begin(); len(x.Claims) != 2 {
		t.Fatalf("begun with %+v", x.Claims)
	}
	if x := begin(); len(x.Claims) != 1 { // half-open
		t.Fatalf("begun with %+v", x.Claims)
	}
	r.none(machine.ActionBegin, "b stands behind a")
	if c := r.take(machine.ActionClaim); len(c.Claims) != 1 || c.Claims[0].Key.Raw != "a" {
		t.Fatalf("claimed %+v", c.Claims)
	}
}
