package lab

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

// TestStoodStill: what is not as expected counts unless a process stood still for a tenth of the visibility, or 100 ms.
func TestStoodStill(t *testing.T) {
	for _, c := range []struct {
		late, visibility time.Duration
		want             bool
	}{
		{0, time.Second, false},
		{40 * time.Millisecond, 500 * time.Millisecond, false},
		{50 * time.Millisecond, 500 * time.Millisecond, true},
		{99 * time.Millisecond, 5 * time.Second, false},
		{100 * time.Millisecond, 5 * time.Second, true},
	} {
		if got := stoodStill(c.late, c.visibility); got != c.want {
			t.Errorf("late by %v with a visibility of %v: %v", c.late, c.visibility, got)
		}
	}
}

// TestLucky: a scenario is played again when the hole of the unguarded design did not show, and for no fault of semel.
func TestLucky(t *testing.T) {
	run := func(g plan.Guard, expected, is plan.Outcome, missed ...string) verdict.Run {
		return verdict.Run{Guard: g, Expected: expected, Verdict: is, Missed: missed}
	}
	held := run(plan.GuardOn, plan.Held, plan.Held)
	for name, c := range map[string]struct {
		runs []verdict.Run
		want bool
	}{
		"the hole did not show":        {[]verdict.Run{run(plan.GuardOff, plan.Broken, plan.Held, "effects is 1"), held}, true},
		"semel missed something":       {[]verdict.Run{run(plan.GuardOff, plan.Broken, plan.Held, "effects is 1"), run(plan.GuardOn, plan.Held, plan.Held, "replayed is 1")}, false},
		"semel broke":                  {[]verdict.Run{run(plan.GuardOff, plan.Broken, plan.Broken), run(plan.GuardOn, plan.Held, plan.Broken)}, false},
		"the hole showed, not as much": {[]verdict.Run{run(plan.GuardOff, plan.Broken, plan.Broken, "effects is 2"), held}, false},
		"an unguarded design broke":    {[]verdict.Run{run(plan.GuardOff, plan.Held, plan.Broken), held}, false},
	} {
		if got := lucky(verdict.Verdict{Runs: c.runs}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
