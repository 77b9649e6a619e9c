package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// DemoOptions are the flags of `semel demo`, and of [Options] what the demo leaves open: Seed, Report, Where, Keep, Command
// and Env.
type DemoOptions struct {
	Options
	// Orders is the number of orders, Workers that of worker processes.
	Orders, Workers int
	// Kills is the number of kills that both runs share; the guarded run gets as many again at other steps.
	Kills int
	// Visibility is the queue's visibility timeout.
	Visibility time.Duration
}

// DefaultDemo is the demo without flags. The visibility is short, so that redelivery is quick.
func DefaultDemo() DemoOptions {
	return DemoOptions{Orders: 200, Workers: 3, Kills: 4, Visibility: 2 * time.Second}
}

func (o DemoOptions) check() error {
	switch {
	case o.Orders < 1 || o.Orders > 20_000:
		return output.Usage("--orders: %d is out of range", o.Orders).WithHint("give 1 to 20000")
	case o.Workers < 1 || o.Workers > 32:
		return output.Usage("--workers: %d is out of range", o.Workers).WithHint("give 1 to 32")
	case o.Kills < 0 || o.Kills > 100:
		return output.Usage("--kills: %d is out of range", o.Kills).WithHint("give 0 to 100")
	case o.Kills > o.Orders:
		return output.Usage("--kills: %d kills for %d orders", o.Kills, o.Orders).WithHint("give at most one kill per order")
	case o.Visibility < 500*time.Millisecond:
		return output.Usage("--visibility: %s is too short", o.Visibility).WithHint("give at least 500ms")
	}
	return nil
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

// RunDemo runs the demo, first with the guard off, then on. See [Run].
func RunDemo(ctx context.Context, o DemoOptions, progress func(string)) (verdict.Verdict, error) {
	if err := o.check(); err != nil {
		return verdict.Verdict{}, err
	}
	o.Seed, o.Exact = seedOf(o.Seed), true
	o.Repeat = repeatCommand(o)
	return Run(ctx, demoScenario(o), o.Options, progress)
}

// repeatCommand is the command line that makes the same schedule again.
func repeatCommand(o DemoOptions) string {
	cmd, d := fmt.Sprintf("semel demo --seed %d", o.Seed), DefaultDemo()
	for _, f := range []struct {
		name       string
		value, def any
	}{{"orders", o.Orders, d.Orders}, {"workers", o.Workers, d.Workers}, {"kills", o.Kills, d.Kills}, {"visibility", o.Visibility, d.Visibility}} {
		if f.value != f.def {
			cmd += fmt.Sprintf(" --%s %v", f.name, f.value)
		}
	}
	if o.Where.Store != "" {
		cmd += fmt.Sprintf(" --store '%s'", open.Redact(o.Where.Store))
	}
	return cmd
}
