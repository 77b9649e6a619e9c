package lab

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
	"github.com/semel-dev/semel/semeltest/server"
)

// quick are the scenarios of a short test: one for each kind of strike and of load.
var quick = map[string]bool{"race": true, "lost-work": true, "zombie": true, "versions": true, "partial-batch": true, "redrive": true}

// TestScenarios runs every scenario with real processes: the hand-written consumer shows its hole, semel holds.
func TestScenarios(t *testing.T) {
	if testing.Short() {
		runAll(t, place.Where{}, quick, nil)
		return
	}
	runAll(t, place.Where{}, nil, nil)
}

// runAll runs the scenarios of only in a place, nil for all, and fails unless each comes out as expected. unsupported are
// those that must be refused there.
func runAll(t *testing.T, where place.Where, only, unsupported map[string]bool) {
	t.Helper()
	// A group, because what is parallel ends with it: the caller looks at what is left behind.
	t.Run("at once", func(t *testing.T) {
		for _, s := range scenarios.All() {
			if only != nil && !only[s.Name] {
				continue
			}
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				runOneScenario(t, s, where, unsupported[s.Name])
			})
		}
	})
}

func runOneScenario(t *testing.T, s plan.Scenario, where place.Where, unsupported bool) {
	t.Helper()
	s.Timeout = max(s.Timeout, 10*time.Minute) // a busy machine takes longer
	v, err := Run(t.Context(), s, options(t, where), nil)
	refused := (*place.UnsupportedError)(nil)
	if unsupported && errors.As(err, &refused) && len(v.Runs) == 0 {
		return
	}
	if err != nil || unsupported {
		t.Fatalf("%+v, %v", v, err)
	}
	for i, r := range v.Runs {
		want := s.Expect[r.Guard]
		if r.Verdict != want.Verdict || len(r.Missed) > 0 {
			if r.Late > slowest*s.Workers.Visibility { // each lease of the slowest run has ended meanwhile
				server.LeaveOut(t, "a machine that goes on", fmt.Sprintf("a process stood still for %s", r.Late))
			}
			t.Errorf("guard %s: %+v", r.Guard, r)
		}
		if g := []plan.Guard{plan.GuardOff, plan.GuardOn}[i]; r.Guard != g {
			t.Errorf("run %d has the guard %s", i, r.Guard)
		}
	}
}

// options run the test binary as workers.
func options(t *testing.T, where place.Where) Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Seed: 1, Where: where, Command: []string{exe}, Env: []string{workerEnv + "=1"}}
}

// TestS0_28_PlantedMistakeIsSeen: a guard that keys by message id lets the producer's second message through. That is not as
// expected however often the scenario is run again.
func TestS0_28_PlantedMistakeIsSeen(t *testing.T) {
	s, _ := scenarios.Find("producer-retry")
	s.Designs = map[plan.Guard]plan.Design{plan.GuardOn: plan.MessageID}
	o := options(t, place.Where{})
	o.Guards = []plan.Guard{plan.GuardOn}
	v, err := Run(t.Context(), s, o, func(line string) { t.Log(line) })
	if err != nil || v.OK() || len(v.Runs) != 1 || v.Runs[0].Duplicated != s.Load.Retries {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestPlantedLossOfHeartbeatsIsFound: no extension arrives, so another worker takes the run over. The scenario expects one
// execution, and no machine is slow enough to excuse the second one for good.
func TestPlantedLossOfHeartbeatsIsFound(t *testing.T) {
	s, _ := scenarios.Find("heartbeat-fails")
	s.Expect = map[plan.Guard]plan.Expect{
		plan.GuardOn: {Verdict: plan.Held, Figures: []plan.Figure{plan.Exactly("executed", 1)}},
	}
	o := options(t, place.Where{})
	o.Guards = []plan.Guard{plan.GuardOn}
	v, err := Run(t.Context(), s, o, func(line string) { t.Log(line) })
	if err != nil || v.OK() || len(v.Runs) != 1 || len(v.Runs[0].Missed) != 1 || v.Runs[0].TakenOver == 0 {
		t.Errorf("%+v, %v", v, err)
	}
}
