package machine_test

import (
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

func TestSteadyStateAllocatesOnlyFlushes(t *testing.T) {
	// 256 messages in flushes of 64: what is allocated is per flush, not per message.
	const n, batch = 256, 64
	r := newFixture(t, func(c *machine.Config) { c.Concurrency, c.Batch, c.InFlight = batch, batch, batch })
	arrivals := make([]machine.Arrival, batch)
	names := make([]string, batch)
	for i := range arrivals {
		names[i] = string(rune('A'+i/26)) + string(rune('a'+i%26))
		arrivals[i] = message(names[i], names[i])
	}
	events := make([]machine.Event, 0, batch)
	grants, outcomes := make([]driver.Grant, batch), make([]driver.Outcome, batch)
	var next []machine.Action
	round := func() {
		for done := 0; done < n; {
			events = events[:0]
			for i := range r.open {
				a := &r.open[i]
				switch a.Kind {
				case machine.ActionReceive:
					events = append(events, machine.Event{Kind: machine.Received, Arrivals: arrivals[:min(a.Max, batch)], Sent: r.now})
				case machine.ActionClaim:
					for i := range a.Claims {
						grants[i] = r.acquired(a.Claims[i])
					}
					events = append(events, machine.Event{Kind: machine.Claimed, Items: a.Items, Claims: a.Claims, Grants: grants[:len(a.Items)], Sent: r.now})
				case machine.ActionRun:
					events = append(events, machine.Event{Kind: machine.Ran, Item: a.Item})
				case machine.ActionFinish:
					for i := range a.Items {
						outcomes[i] = driver.Applied
					}
					events = append(events, machine.Event{Kind: machine.Finished, Items: a.Items, Works: a.Works, Outcomes: outcomes[:len(a.Items)]})
				case machine.ActionSettle:
					done += len(a.Items)
					for i := range a.Items {
						outcomes[i] = driver.Applied
					}
					events = append(events, machine.Event{Kind: machine.Settled, Items: a.Items, Settlements: a.Settlements, Outcomes: outcomes[:len(a.Items)]})
				}
			}
			if len(events) == 0 {
				t.Fatal("nothing left to do")
			}
			next = r.m.Steps(r.now, events, next[:0])
			r.open, next = next, r.open
		}
	}
	round()
	if per := testing.AllocsPerRun(20, round) / n; per > 0.1 {
		t.Errorf("%.2f allocations per message", per)
	}
}
