package story

import (
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

func TestStepsAreTold(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := driver.Record{Key: driver.Key{Raw: "k"}, State: driver.InProgress, CreatedAt: t0, UpdatedAt: t0.Add(time.Hour)}
	s := Tell(Known{Record: r, Now: t0, Steps: []driver.Step{
		{Name: "done", State: driver.StepDone, Token: 1, UpdatedAt: t0.Add(1 * time.Second)},
		{Name: "begun", State: driver.StepRegistered, Token: 1, UpdatedAt: t0.Add(2 * time.Second)},
		{Name: "started", State: driver.StepStarted, Token: 1, UpdatedAt: t0.Add(3 * time.Second)},
		{State: driver.RunCompensating, Token: 2, Reason: "no car", UpdatedAt: t0.Add(4 * time.Second)},
		{Name: "undone", State: driver.StepUndone, Token: 2, UpdatedAt: t0.Add(6 * time.Second)},
		{Name: "undoing", State: driver.StepUndoing, Token: 2, UpdatedAt: t0.Add(5 * time.Second)},
		{Name: "stuck", State: driver.StepUndoing, Token: 2, Failures: 2, Reason: "no answer", UpdatedAt: t0.Add(7 * time.Second)},
	}})
	want := []struct {
		text  string
		doubt bool
	}{
		{"claimed for the first time", false}, {`Step "done" was done`, false}, {`Step "begun" began`, true},
		{`Step "started", which runs at most once`, true}, {"turned back (token 2), because no car", false},
		{`compensation of step "undoing" began`, true}, {`Step "undone" was compensated`, false},
		{`compensation of step "stuck" failed twice, because no answer`, true}, {"claimed the key or last extended", false},
	}
	if len(s.Sentences) != len(want) {
		t.Fatalf("%d sentences, wanted %d: %+v", len(s.Sentences), len(want), s.Sentences)
	}
	for i, w := range want {
		if got := s.Sentences[i]; !strings.Contains(got.Text, w.text) || got.Doubt != w.doubt {
			t.Errorf("sentence %d is %+v, wanted %+v", i, got, w)
		}
	}
}

func TestVerdictOfFailedSteps(t *testing.T) {
	undone, done := driver.Step{Name: "flight", State: driver.StepUndone}, driver.Step{Name: "mail", State: driver.StepDone}
	turned := driver.Step{State: driver.RunCompensating}
	for _, x := range []struct {
		steps []driver.Step
		want  string
	}{
		{[]driver.Step{turned, undone}, "every step that was done was compensated"},
		{[]driver.Step{turned, undone, done}, "steps that were not compensated may have had their effect"},
		{nil, "no earlier run can have had an effect"},
	} {
		r := driver.Record{Key: driver.Key{Raw: "k"}, State: driver.FailedState, Generation: 1}
		if got := Tell(Known{Record: r, Steps: x.steps}).Verdict; !strings.Contains(got, x.want) {
			t.Errorf("%d steps: %q, wanted %q in it", len(x.steps), got, x.want)
		}
	}
}
