package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

func TestDemoOptionsNameTheFlag(t *testing.T) {
	for flag, change := range map[string]func(*DemoOptions){
		"--orders: -1":      func(o *DemoOptions) { o.Orders = -1 },
		"--orders: 1000000": func(o *DemoOptions) { o.Orders = 1_000_000 },
		"--workers: 33":     func(o *DemoOptions) { o.Workers = 33 },
		"--kills: 101":      func(o *DemoOptions) { o.Kills = 101 },
		"--kills: 4 kills":  func(o *DemoOptions) { o.Orders = 3 },
		"--visibility: 1ms": func(o *DemoOptions) { o.Visibility = time.Millisecond },
	} {
		o := DefaultDemo()
		change(&o)
		_, err := RunDemo(t.Context(), o, nil)
		if e := output.As(err); e.Code != output.CodeUsage || !strings.HasPrefix(e.Error(), flag) || e.Hint == "" {
			t.Errorf("got %v, want a usage error %s…", err, flag)
		}
	}
}

func TestDemoWithoutKills(t *testing.T) {
	o := DefaultDemo()
	o.Kills = 0
	if n := len(demoScenario(o).Plan(1, plan.GuardOn).Strikes); n != 0 {
		t.Errorf("%d kills although none were asked for", n)
	}
}

func TestRepeatCommand(t *testing.T) {
	o := DefaultDemo()
	o.Seed = 7
	if got := repeatCommand(o); got != "semel demo --seed 7" {
		t.Errorf("got %q", got)
	}
	o.Orders, o.Workers, o.Kills, o.Visibility = 50, 2, 0, time.Second
	if got := repeatCommand(o); got != "semel demo --seed 7 --orders 50 --workers 2 --kills 0 --visibility 1s" {
		t.Errorf("got %q", got)
	}
}
