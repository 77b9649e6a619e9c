// Package scenarios lists the scenarios of the lab, as data: load, workers, faults, and the expected result. Some have an
// unguarded design from a published document, with the hole that the document has.
package scenarios

import (
	"slices"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// All are the scenarios, in the order in which they teach.
func All() []plan.Scenario {
	return slices.Concat(basics(), visibility(), deaths(), identities(), shapes(), loads())
}

// Find returns the scenario of that name.
func Find(name string) (plan.Scenario, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s plan.Scenario) bool { return s.Name == name })
	if i < 0 {
		return plan.Scenario{}, false
	}
	return all[i], true
}

// Names are the names of all scenarios.
func Names() (out []string) {
	for _, s := range All() {
		out = append(out, s.Name)
	}
	return out
}

// base is what scenarios share: three workers, orders of 100,000 yen, 10 to 30 ms of work, a visibility of one second.
func base(name, title string) plan.Scenario {
	return plan.Scenario{
		Name: name, Title: title,
		Load: plan.Load{Orders: 30, Amount: 100_000, Currency: "JPY"},
		Work: plan.Work{Min: 10 * time.Millisecond, Max: 30 * time.Millisecond},
		Workers: plan.Workers{
			Count: 3, Concurrency: 4, Prefetch: 5, Visibility: time.Second, Restart: 100 * time.Millisecond,
			MaxAttempts: 20, // a good order must not become a dead letter by bad luck
		},
		Timeout: time.Minute,
	}
}

// versus sets the designs of the two sides, and that the unguarded one breaks and semel holds.
func versus(s plan.Scenario, off, on plan.Design) plan.Scenario {
	s.Designs = map[plan.Guard]plan.Design{plan.GuardOff: off, plan.GuardOn: on}
	s.Expect = map[plan.Guard]plan.Expect{
		plan.GuardOff: {Verdict: plan.Broken},
		plan.GuardOn:  {Verdict: plan.Held, Figures: []plan.Figure{plan.Exactly("dead", 0), plan.Exactly("parked", 0)}},
	}
	return s
}

// expect sets what a side has to show.
func expect(s plan.Scenario, g plan.Guard, o plan.Outcome, figures ...plan.Figure) plan.Scenario {
	s.Expect[g] = plan.Expect{Verdict: o, Figures: figures}
	return s
}
