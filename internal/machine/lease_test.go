package machine_test

import (
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// TestFM8_LostClaimsKeepNobodyOut: once its claim is lost, or has ended by its own clock, a worker whose handler still runs
// no longer keeps the message from others. A run that was only cancelled still owns its claim.
func TestFM8_LostClaimsKeepNobodyOut(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*fixture)
		kept    bool
	}{
		"lost": {func(r *fixture) {
			for r.has(machine.ActionExtend) == 0 {
				r.pass(lease / 6)
			}
			e := r.take(machine.ActionExtend)
			r.step(machine.Event{Kind: machine.Extended, Items: e.Items, Outcomes: []driver.Outcome{driver.Lost}, Sent: r.now})
		}, false},
		"ended by our own clock": {func(r *fixture) {
			r.pass(lease - guard)
		}, false},
		"timed out": {func(r *fixture) {
			for r.has(machine.ActionCancel) == 0 {
				r.beats(lease / 6)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, func(c *machine.Config) { c.Timeout = lease })
			r.begin("a")
			c.happens(r)
			r.take(machine.ActionCancel)
			for r.has(machine.ActionProlong) > 0 { // what was sent before
				p := r.take(machine.ActionProlong)
				r.step(machine.Event{Kind: machine.Prolonged, Items: p.Items, Outcomes: []driver.Outcome{driver.Applied}, Sent: r.now})
			}
			r.open = nil // extensions get no response anymore
			r.pass(visible)
			if got := r.has(machine.ActionProlong) > 0; got != c.kept {
				t.Errorf("kept from others: %v, want %v", got, c.kept)
			}
		})
	}
}
