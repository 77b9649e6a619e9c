package lab

import (
	"os"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/catalogue"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// quick are the scenarios that a short test plays: one for each kind of strike and of load.
var quick = map[string]bool{"race": true, "lost-work": true, "zombie": true, "versions": true, "partial-batch": true, "redrive": true}

// TestScenarios plays every scenario with real processes: the hand-written consumer shows its hole, semel holds.
func TestScenarios(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range catalogue.All() {
		if testing.Short() && !quick[s.Name] {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			v, err := Run(t.Context(), s, Options{Seed: 1, Command: []string{exe}, Env: []string{workerEnv + "=1"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range v.Runs {
				want := s.Expect[r.Guard]
				if r.Verdict != want.Verdict || len(r.Missed) > 0 {
					t.Errorf("guard %s: %+v", r.Guard, r)
				}
				if g := []plan.Guard{plan.GuardOff, plan.GuardOn}[i]; r.Guard != g {
					t.Errorf("run %d has the guard %s", i, r.Guard)
				}
			}
		})
	}
}
