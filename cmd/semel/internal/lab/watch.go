package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/watch"
)

// runWatched runs all guards at the same time, while a person disturbs them, and judges them when the person has finished.
// A run that fails ends the others.
func runWatched(ctx context.Context, v *verdict.Verdict, configs []crew.Config, server *watch.Server) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results, errs := make([]crew.Result, len(configs)), make([]error, len(configs))
	var wg sync.WaitGroup
	for i := range configs {
		configs[i].Scenario = watched(configs[i].Scenario)
		configs[i].Progress = func(string) {} // the page shows more
		configs[i].Watch = server.Side(configs[i].Plan.Guard, configs[i].Dir)
		wg.Go(func() {
			if results[i], errs[i] = crew.Run(ctx, configs[i]); errs[i] != nil {
				errs[i] = fmt.Errorf("run with the guard %s: %w", configs[i].Plan.Guard, errs[i])
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		server.Close(watch.Last{Problem: err.Error()})
		return err
	}
	for i, s := range configs {
		s.Plan.Sends, s.Plan.Later = results[i].Sent, nil
		v.Add(s.Scenario, s.Plan, results[i])
	}
	server.Close(watch.Last{Runs: v.Runs})
	return nil
}

// watched sets what a scenario can expect while a person disturbs it: that semel holds. The outcome of the other side is
// unknown, and so are the counts.
func watched(s plan.Scenario) plan.Scenario {
	s.Expect = maps.Clone(s.Expect)
	s.Expect[plan.GuardOff] = plan.Expect{}
	s.Expect[plan.GuardOn] = plan.Expect{Verdict: plan.Held}
	return s
}
