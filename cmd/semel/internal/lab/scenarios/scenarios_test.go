package scenarios

import (
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// TestScenariosAreWhole: each has a name to type, a question, a hint, two designs, and its expectations
// of both.
func TestScenariosAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if seen[s.Name] || !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(s.Name) {
			t.Errorf("%q is no name, or is there twice", s.Name)
		}
		seen[s.Name] = true
		if s.Title == "" || s.Asks == "" || s.Hint == "" || s.Timeout <= 0 || s.Workers.Visibility <= 0 {
			t.Errorf("%s: something is missing: %+v", s.Name, s)
		}
		for _, g := range []plan.Guard{plan.GuardOff, plan.GuardOn} {
			if s.Designs[g].Sentence() == "" || s.Expect[g].Verdict == "" {
				t.Errorf("%s: no design or no expectation with the guard %s", s.Name, g)
			}
		}
		// A run that puts everything aside loses and doubles nothing.
		if !slices.ContainsFunc(s.Expect[plan.GuardOn].Figures, func(f plan.Figure) bool {
			return (f.Name == "effects" || f.Name == "dead") && f.Max == f.Min || s.Load.Versions > 0
		}) {
			t.Errorf("%s: with the guard on no figure expects how many effects or dead letters there are: %v", s.Name, s.Expect[plan.GuardOn].Figures)
		}
		if s.Expect[plan.GuardOn].Verdict != plan.Held {
			t.Errorf("%s: the guard is expected to break", s.Name)
		}
	}
}

// TestScenariosHaveOneSchedulePerSeed: the same seed makes the same schedule, with the same load for both guards.
func TestScenariosHaveOneSchedulePerSeed(t *testing.T) {
	for _, s := range All() {
		for seed := range uint64(20) {
			off, on := s.Plan(seed, plan.GuardOff), s.Plan(seed, plan.GuardOn)
			if !reflect.DeepEqual(on, s.Plan(seed, plan.GuardOn)) {
				t.Errorf("%s: two plans of seed %d differ", s.Name, seed)
			}
			if !reflect.DeepEqual(off.Sends, on.Sends) || !reflect.DeepEqual(off.Later, on.Later) {
				t.Errorf("%s: seed %d: the loads differ", s.Name, seed)
			}
		}
	}
}

func TestFind(t *testing.T) {
	for _, name := range Names() {
		if s, ok := Find(name); !ok || s.Name != name {
			t.Errorf("%s is not found", name)
		}
	}
	if _, ok := Find("nothing"); ok {
		t.Error("a scenario without a name")
	}
}
