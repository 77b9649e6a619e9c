package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// DemoOptions are the flags of `semel demo`. The zero value of everything is the default.
type DemoOptions struct {
	// Orders is the number of orders. Defaults to 200.
	Orders int
	// Workers is the number of worker processes. Defaults to 3.
	Workers int
	// Kills is the number of kills that both runs share; the guarded run gets as many again at other steps. Negative =
	// none. Defaults to 4.
	Kills int
	// Seed decides load and faults. Defaults to a drawn one, which the verdict names.
	Seed uint64
	// Visibility is the queue's visibility timeout. Defaults to 2 s, so that redelivery is quick.
	Visibility time.Duration
	// Report is where the HTML report goes. Defaults to none.
	Report string
	// Store is the postgres:// URL of a database, in which each run makes a schema of its own. Defaults to SQLite files.
	Store string
	// Keep keeps databases and events files; Verdict.Kept names the folder.
	Keep bool
	// Command starts a worker process. Defaults to the own binary with the argument HiddenCommand.
	Command []string
	// Env is added to the environment of the worker processes.
	Env []string
}

// UsageError reports an option that cannot be used: which flag, and how to fix it.
type UsageError struct{ Flag, Problem, Hint string }

func (e *UsageError) Error() string { return fmt.Sprintf("--%s: %s (%s)", e.Flag, e.Problem, e.Hint) }

func (o DemoOptions) withDefaults() (DemoOptions, error) {
	if o.Orders == 0 {
		o.Orders = 200
	}
	if o.Workers == 0 {
		o.Workers = 3
	}
	switch {
	case o.Kills == 0:
		o.Kills = 4
	case o.Kills < 0:
		o.Kills = 0
	}
	if o.Visibility == 0 {
		o.Visibility = 2 * time.Second
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64N(100_000)
	}
	switch {
	case o.Orders < 1 || o.Orders > 20_000:
		return o, &UsageError{"orders", strconv.Itoa(o.Orders) + " is out of range", "give 1 to 20000"}
	case o.Workers < 1 || o.Workers > 32:
		return o, &UsageError{"workers", strconv.Itoa(o.Workers) + " is out of range", "give 1 to 32"}
	case o.Kills > 100:
		return o, &UsageError{"kills", strconv.Itoa(o.Kills) + " is too many", "give 0 to 100"}
	case o.Kills > o.Orders:
		return o, &UsageError{
			"kills", fmt.Sprintf("%d kills for %d orders", o.Kills, o.Orders), "give at most one kill per order",
		}
	case o.Visibility < 500*time.Millisecond:
		return o, &UsageError{"visibility", o.Visibility.String() + " is too short", "give at least 500ms"}
	}
	return o, nil
}

// demoScenario is the main job: orders of 100,000 yen, charged once each or more often.
func demoScenario(o DemoOptions) plan.Scenario {
	messages := float64(o.Orders) * 1.25
	// All orders shall be done in about four seconds of work, on any number of workers.
	mean := time.Duration(float64(o.Workers) * 4 * float64(time.Second) / messages)
	mean = min(max(mean, 2*time.Millisecond), 24*time.Millisecond)
	outside := min(1, o.Kills/2)
	return plan.Scenario{
		Name: "demo",
		Load: plan.Load{
			Orders: o.Orders, Retries: max(1, o.Orders*15/100), Rate: max(100, messages/2.5),
			Amount: 100_000, Currency: "JPY",
		},
		Work:    plan.Work{Min: mean / 4, Max: mean * 7 / 4, Slow: min(2, o.Orders/20), SlowFor: o.Visibility * 13 / 10},
		Workers: plan.Workers{Count: o.Workers, Concurrency: 4, Prefetch: 5, Visibility: o.Visibility, Restart: 150 * time.Millisecond},
		Faults: []plan.Fault{
			{Do: plan.Kill, Step: plan.AfterEffect, Count: o.Kills - outside},
			{Do: plan.Kill, Step: plan.Outside, Count: outside},
			{Do: plan.Kill, Step: plan.AfterReceive, Count: (o.Kills + 3) / 4, GuardOn: true, ByPassage: true},
			{Do: plan.Kill, Step: plan.AfterClaim, Count: (o.Kills + 2) / 4, GuardOn: true, ByPassage: true},
			{Do: plan.Kill, Step: plan.AfterCommit, Count: (o.Kills + 1) / 4, GuardOn: true},
			{Do: plan.Kill, Step: plan.Outside, Count: o.Kills / 4, GuardOn: true},
		},
		Designs: map[plan.Guard]plan.Design{plan.GuardOff: plan.Plain, plan.GuardOn: plan.Semel},
		Expect: map[plan.Guard]plan.Expect{
			plan.GuardOff: {Verdict: plan.Broken}, plan.GuardOn: {Verdict: plan.Held},
		},
		Timeout: time.Minute + time.Duration(o.Orders)*50*time.Millisecond,
	}
}

// RunDemo runs the demo, first with the guard off, then on. A *UsageError names an option that cannot be used. See [Run].
func RunDemo(ctx context.Context, o DemoOptions, progress func(string)) (verdict.Verdict, error) {
	o, err := o.withDefaults()
	if err != nil {
		return verdict.Verdict{}, err
	}
	return Run(ctx, demoScenario(o), Options{
		Seed: o.Seed, Report: o.Report, Where: place.Where{Store: o.Store}, Exact: true, Keep: o.Keep, Repeat: repeatCommand(o), Command: o.Command, Env: o.Env,
	}, progress)
}

// repeatCommand is the command line that makes the same schedule again. o is resolved (withDefaults).
func repeatCommand(o DemoOptions) string {
	cmd := fmt.Sprintf("semel demo --seed %d", o.Seed)
	if o.Kills == 0 {
		o.Kills = -1 // resolved: none
	}
	for _, f := range []struct {
		name       string
		value, def int
	}{{"orders", o.Orders, 200}, {"workers", o.Workers, 3}, {"kills", o.Kills, 4}} {
		if f.value != f.def {
			cmd += fmt.Sprintf(" --%s %d", f.name, f.value)
		}
	}
	if o.Visibility != 2*time.Second {
		cmd += " --visibility " + o.Visibility.String()
	}
	if o.Store != "" {
		cmd += fmt.Sprintf(" --store '%s'", open.Redact(o.Store))
	}
	return cmd
}
