package machine_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

func failBusy(c *machine.Config) { c.FailBusy = true }

// TestFM16_BusyFailIsADeadLetter: with FailBusy another message of a key in progress is dead-lettered, never just acked. The
// message that repeats the run stays in the queue.
func TestFM16_BusyFailIsADeadLetter(t *testing.T) {
	grouped := grouped("1", "a", "g")
	for name, c := range map[string]struct {
		m          machine.Arrival
		redelivery bool
		dead       bool
	}{
		"another message":                    {message("1", "a"), false, true},
		"a redelivery of a message that ran": {message("1", "a"), true, false},
		"one that was sent again":            {message(driver.RedriveID("l"), "a"), false, false},
		"one without an id":                  {message("", "a"), false, false},
	} {
		r := newFixture(t, failBusy)
		r.receive(c.m)
		r.claim(func(_ string, g *driver.Grant) {
			g.Verdict, g.Wait, g.Redelivery, g.Hold.Token, g.Attempt = driver.Busy, 2*time.Second, c.redelivery, 7, 3
		})
		s := r.settle(driver.Applied).Settlements[0]
		switch {
		case !c.dead && s.Action != driver.Defer:
			t.Errorf("%s: %v, want a defer", name, s.Action)
		case c.dead && (s.Action != driver.Dead || s.DeadLetter == nil):
			t.Errorf("%s: %v, want a dead letter", name, s.Action)
		case c.dead:
			if l := s.DeadLetter; l.Kind != driver.DeadLetterBusy || l.Attempts != 0 || l.Key.Raw != "a" || l.Message.ID != "1" ||
				l.ID != driver.BusyDeadLetterID(l.Key, &c.m.Message) {
				t.Errorf("%s: %+v", name, l)
			}
		}
	}
	r := newFixture(t, failBusy)
	r.receive(grouped)
	r.claim(func(_ string, g *driver.Grant) { g.Verdict, g.Wait = driver.Busy, 2*time.Second })
	r.none(machine.ActionSettle, "the head of an ordered group waits (law 13)")
}

// TestBusyFailInOneProcess: local duplicates of a run are dead-lettered, whether they came before it began or during it.
// Those with another payload, and those of the same message, wait for its end.
func TestBusyFailInOneProcess(t *testing.T) {
	r := newFixture(t, failBusy)
	other := message("3", "a")
	other.Fingerprint = "r001y"
	first := message("1", "a")
	first.Fingerprint = "r001x"
	r.receive(first, message("2", "a"), other, message("1", "a"))
	r.none(machine.ActionSettle, "nothing runs yet")
	r.claim(nil)
	dead := map[string]bool{}
	for _, s := range r.settle(driver.Applied).Settlements {
		dead[s.DeadLetter.Message.ID] = s.Action == driver.Dead && s.DeadLetter.Kind == driver.DeadLetterBusy && s.DeadLetter.Token == 1
	}
	r.receive(message("4", "a"))
	for _, s := range r.settle(driver.Applied).Settlements {
		dead[s.DeadLetter.Message.ID] = s.Action == driver.Dead && s.DeadLetter.Kind == driver.DeadLetterBusy && s.DeadLetter.Token == 1
	}
	if len(dead) != 2 || !dead["2"] || !dead["4"] {
		t.Errorf("dead letters %v, want those of messages 2 and 4", dead)
	}
	if n := r.m.Counts(); n.Rejected != 2 || n.Busy != 0 {
		t.Errorf("%+v", n)
	}
}

// TestTakeoverDoubtsTheInterruptedRun: the doubt after a takeover is about the run before it.
func TestTakeoverDoubtsTheInterruptedRun(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Trace = func(machine.TraceEvent) bool { return true } })
	r.receive(message("1", "a"))
	r.claim(func(_ string, g *driver.Grant) { g.Attempt, g.Takeovers, g.Unknown = 2, 1, true })
	for _, a := range r.open {
		if a.Kind == machine.ActionTrace && a.TraceEvent.Kind == machine.TraceDoubt {
			if a.TraceEvent.Attempt != 1 {
				t.Errorf("attempt %d is in doubt, want 1: %s", a.TraceEvent.Attempt, a.TraceEvent.Reason)
			}
			return
		}
	}
	t.Error("no doubt was traced")
}
