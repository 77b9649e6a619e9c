package lab

import (
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

// TestTooLate: an unexpected verdict counts unless a process was late by a tenth of the visibility, or by 100 ms.
func TestTooLate(t *testing.T) {
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
		if got := tooLate(c.late, c.visibility); got != c.want {
			t.Errorf("late by %v with a visibility of %v: %v", c.late, c.visibility, got)
		}
	}
}

// TestRepeat: a slow machine excuses an unexpected verdict until the scenario is as slow as it gets, but never hides one
// that stays. On a machine that is fast enough, one run is enough to find a mistake.
func TestRepeat(t *testing.T) {
	s, _ := scenarios.Find("heartbeat")
	for name, c := range map[string]struct {
		late []time.Duration // of each run
		good int             // the run that comes out as expected, from 1; 0 = none
		runs int
	}{
		"as expected":                   {[]time.Duration{time.Second}, 1, 1},
		"a mistake":                     {[]time.Duration{0}, 0, 1},
		"a mistake on a slow machine":   {[]time.Duration{time.Second, time.Second, time.Second, time.Second}, 0, 4},
		"a mistake once it is slower":   {[]time.Duration{time.Second, 0}, 0, 2},
		"no mistake on a slow machine":  {[]time.Duration{time.Second, 200 * time.Millisecond, 0}, 3, 3},
		"late, but not late enough":     {[]time.Duration{99 * time.Millisecond}, 0, 1},
		"late for a longer visibility":  {[]time.Duration{100 * time.Millisecond, 0}, 2, 2},
		"late at the slowest, and good": {[]time.Duration{time.Second, time.Second, time.Second, time.Second}, 4, 4},
	} {
		var slow []time.Duration
		v, err := repeat(t.Context(), s, func(s plan.Scenario) (verdict.Verdict, time.Duration, error) {
			slow = append(slow, s.Workers.Visibility)
			v := verdict.Verdict{Verdict: verdict.Unexpected, Runs: []verdict.Run{{Guard: plan.GuardOn, Missed: []string{"executed is 3, expected 1"}}}}
			if len(slow) == c.good {
				v = verdict.Verdict{Verdict: verdict.AsExpected}
			}
			return v, c.late[len(slow)-1], nil
		}, func(string) {})
		want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}[:c.runs]
		if err != nil || v.OK() != (c.good > 0) || !slices.Equal(slow, want) {
			t.Errorf("%s: ok %t, %v, visibilities %v", name, v.OK(), err, slow)
		}
	}
}

// TestLucky: a scenario is run again if the hole of the unguarded design did not show, but not for a fault of semel.
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
