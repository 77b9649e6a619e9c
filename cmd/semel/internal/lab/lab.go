package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/report"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/watch"
)

// HiddenCommand is the subcommand that the command line must route to worker.Main.
const HiddenCommand = "__lab-worker"

// Options say how scenarios are run. The zero value of everything is the default.
type Options struct {
	// Guards are the runs, in their order. Defaults to off and on.
	Guards []plan.Guard
	// Seed decides load and faults. Defaults to a drawn one, which the verdict names.
	Seed uint64
	// Report is where the HTML report goes. Defaults to none.
	Report string
	// Where says on which queue and store. Defaults to SQLite files.
	Where place.Where
	// Exact keeps the scenario's own visibility, as far as the place can.
	Exact bool
	// Keep keeps what the runs made, and their events files; Verdict.Kept names the folder. The fakes keep nothing.
	Keep bool
	// Watch makes runs that a person watches and disturbs, all guards at the same time: the load goes on until it is
	// finished there. Run closes it. Defaults to none.
	Watch *watch.Server
	// Repeat is the command line that makes the same schedule again; %d is the seed.
	Repeat string
	// Command starts a worker process. Defaults to the own binary with the argument HiddenCommand.
	Command []string
	// Env is added to the environment of the worker processes.
	Env []string
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Guards) == 0 {
		o.Guards = []plan.Guard{plan.GuardOff, plan.GuardOn}
	}
	o.Seed = seedOf(o.Seed)
	if len(o.Command) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find the own program: %w", err)
		}
		o.Command = []string{exe, HiddenCommand}
	}
	return o, nil
}

// seedOf draws a seed if there is none.
func seedOf(seed uint64) uint64 { return cmp.Or(seed, 1+rand.Uint64N(100_000)) }

// Run runs a scenario once for each guard, and writes the report if there is to be one. progress gets short lines for a
// person; it may be nil. An unexpected verdict is no error: see [verdict.Verdict.OK]. A scenario that the place does not
// support is a *[place.UnsupportedError]. When ctx ends, Run kills all workers, removes what it made, and returns its cause.
//
// A scenario that does not come out as expected shows nothing if one of its processes did not get to run, or waited for a
// disk or a lock: leases expired, or workers that should have met came one after the other. It is run again, more slowly. So
// is one in which the hole of the design without the guard did not show, because that takes a coincidence. Options.Exact,
// Keep and Watch turn that off.
func Run(ctx context.Context, s plan.Scenario, o Options, progress func(string)) (v verdict.Verdict, err error) {
	if o, err = o.withDefaults(); err != nil {
		return verdict.Verdict{}, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	once := func(s plan.Scenario) (verdict.Verdict, time.Duration, error) { return runOnce(ctx, s, o, progress) }
	if o.Exact || o.Keep || o.Watch != nil {
		v, _, err := once(s)
		return v, err
	}
	return repeat(ctx, s, once, progress)
}

// repeat runs a scenario until it comes out as expected, nothing excuses it, or it is as slow as it gets.
func repeat(ctx context.Context, s plan.Scenario, once func(plan.Scenario) (verdict.Verdict, time.Duration, error),
	progress func(string),
) (verdict.Verdict, error) {
	for n := 1; ; n *= 2 {
		v, late, err := once(s.Stretch(float64(n)))
		unsupported := (*place.UnsupportedError)(nil)
		if err == nil && v.OK() || errors.As(err, &unsupported) || ctx.Err() != nil || n == slowest {
			return v, err
		}
		var why string
		switch {
		case tooLate(late, time.Duration(n)*s.Workers.Visibility):
			why = fmt.Sprintf("a process could not go on for %s", late.Round(time.Millisecond))
		case err == nil && lucky(v):
			why = "the hole of the design without the guard did not show"
		default:
			return v, err
		}
		progress(fmt.Sprintf("%s: %s, so this shows nothing; again, %d times as slow", s.Name, why, 2*n))
	}
}

// lucky reports that nothing is unexpected but that a design without the guard held.
func lucky(v verdict.Verdict) bool {
	for _, r := range v.Runs {
		broken := r.Guard == plan.GuardOff && r.Expected == plan.Broken
		asExpected := (r.Expected == "" || r.Verdict == r.Expected) && len(r.Missed) == 0
		if !asExpected && (!broken || r.Verdict != plan.Held) {
			return false
		}
	}
	return true
}

const (
	// maxLate is how late a process may be in any scenario; a tenth of a shorter visibility is less.
	maxLate = 100 * time.Millisecond
	// slowest is by how much a scenario is slowed down at most: 8 bears what 40 busy processes on two processors do.
	slowest = 8
)

// tooLate reports whether a process that was late explains an unexpected verdict.
func tooLate(late, visibility time.Duration) bool { return late >= min(visibility/10, maxLate) }

// runOnce runs the scenario, and measures for how long one of its processes could not go on.
func runOnce(ctx context.Context, s plan.Scenario, o Options, progress func(string)) (
	v verdict.Verdict, late time.Duration, err error,
) {
	own := time.Duration(0)
	stop := eventlog.MeasureDelay(func(d time.Duration) { own = d })
	v, err = run(ctx, s, o, progress)
	stop()
	late = own
	for _, r := range v.Runs {
		late = max(late, r.Late)
	}
	return v, late, err
}

func run(ctx context.Context, s plan.Scenario, o Options, progress func(string)) (v verdict.Verdict, err error) {
	setup, err := place.NewSetup(o.Where, o.Seed)
	if err != nil {
		return verdict.Verdict{}, err
	}
	defer func() { err = errors.Join(err, setup.Close()) }()
	for _, g := range o.Guards {
		if err := setup.Supports(s, g); err != nil {
			return verdict.Verdict{}, err
		}
	}
	dir, err := os.MkdirTemp("", "semel-"+s.Name+"-")
	if err != nil {
		return verdict.Verdict{}, fmt.Errorf("make a folder for the run: %w", err)
	}
	if o.Keep {
		v.Kept = dir
	} else {
		defer func() { err = errors.Join(err, setup.Remove(ctx), os.RemoveAll(dir)) }()
	}
	least := setup.MinVisibility()
	if !o.Exact {
		least = max(least, setup.Unhurried(s))
	}
	s = s.AtLeast(least)
	v.Timeline = &verdict.Timeline{Scenario: s, Seed: o.Seed, Repeat: o.Repeat, Place: setup.String()}
	var configs []crew.Config
	for _, g := range o.Guards {
		runDir := filepath.Join(dir, string(g))
		if err := os.MkdirAll(runDir, 0o700); err != nil {
			return v, fmt.Errorf("make the run's folder: %w", err)
		}
		urls, err := setup.Make(ctx, string(g), runDir, s.Workers.Visibility)
		if err != nil {
			return v, err
		}
		if shown := urls.Shown(); o.Keep && !setup.Ephemeral() {
			v.KeptIn = append(v.KeptIn, shown.Store, shown.Queue)
		}
		config := crew.Config{
			Scenario: s, Plan: s.Plan(o.Seed, g), Dir: runDir, URLs: urls, Command: o.Command, Env: o.Env, Progress: progress,
		}
		if o.Watch != nil {
			configs = append(configs, config)
			continue
		}
		res, err := crew.Run(ctx, config)
		if err != nil {
			return v, fmt.Errorf("run %s with the guard %s (seed %d): %w", s.Name, g, o.Seed, err)
		}
		v.Add(s, config.Plan, res)
	}
	if o.Watch != nil {
		if err := runWatched(ctx, &v, configs, o.Watch); err != nil {
			return v, err
		}
	}
	if o.Report != "" {
		v.Report = o.Report
		if err := report.WriteReport(o.Report, v); err != nil {
			return v, err
		}
	}
	return v, nil
}

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
