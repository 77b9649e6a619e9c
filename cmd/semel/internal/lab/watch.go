package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/live"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/play"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

// watch plays the stages at the same time, under a person's hands, and judges them when the person has finished. One
// that fails ends the others.
func watch(ctx context.Context, v *verdict.Verdict, stages []play.Stage, server *live.Server) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results, errs := make([]play.Result, len(stages)), make([]error, len(stages))
	var wg sync.WaitGroup
	for i := range stages {
		stages[i].Scenario = watched(stages[i].Scenario)
		stages[i].Progress = func(string) {} // the page tells more
		stages[i].Live = server.Side(stages[i].Plan.Guard, stages[i].Dir)
		wg.Go(func() {
			if results[i], errs[i] = play.Run(ctx, stages[i]); errs[i] != nil {
				errs[i] = fmt.Errorf("run with the guard %s: %w", stages[i].Plan.Guard, errs[i])
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		server.Close(live.Last{Problem: err.Error()})
		return err
	}
	for i, s := range stages {
		s.Plan.Sends, s.Plan.Later = results[i].Sent, nil
		v.Add(s.Scenario, s.Plan, results[i])
	}
	server.Close(live.Last{Runs: v.Runs})
	return nil
}

// watched expects of a scenario what it can while somebody disturbs it: that semel holds. Nobody knows what becomes of the
// other side, and how often anything happens.
func watched(s plan.Scenario) plan.Scenario {
	s.Expect = maps.Clone(s.Expect)
	s.Expect[plan.GuardOff] = plan.Expect{}
	s.Expect[plan.GuardOn] = plan.Expect{Verdict: plan.Held}
	return s
}
