package lab

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

func TestDemoOptionsNameTheFlag(t *testing.T) {
	for _, c := range []struct {
		o    DemoOptions
		flag string
	}{
		{DemoOptions{Orders: -1}, "orders"},
		{DemoOptions{Orders: 1_000_000}, "orders"},
		{DemoOptions{Workers: 33}, "workers"},
		{DemoOptions{Kills: 101}, "kills"},
		{DemoOptions{Orders: 3, Kills: 4}, "kills"},
		{DemoOptions{Visibility: time.Millisecond}, "visibility"},
	} {
		_, err := RunDemo(t.Context(), c.o, nil)
		usage, ok := err.(*UsageError) //nolint:errorlint // RunDemo returns it bare
		if !ok || usage.Flag != c.flag || usage.Hint == "" {
			t.Errorf("%+v: got %v, want a usage error for --%s", c.o, err, c.flag)
		}
	}
}

func TestDemoOptionsDefaults(t *testing.T) {
	o, err := DemoOptions{Kills: -1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.Kills != 0 || o.Orders != 200 || o.Workers != 3 || o.Seed == 0 {
		t.Errorf("got %+v", o)
	}
	if n := len(demoScenario(o).Plan(1, plan.GuardOn).Strikes); n != 0 {
		t.Errorf("%d kills although none were asked for", n)
	}
}

func TestRepeatCommand(t *testing.T) {
	for _, c := range []struct {
		o    DemoOptions
		want string
	}{
		{DemoOptions{Seed: 7}, "semel demo --seed 7"},
		{
			DemoOptions{Seed: 7, Orders: 50, Workers: 2, Kills: 1, Visibility: time.Second},
			"semel demo --seed 7 --orders 50 --workers 2 --kills 1 --visibility 1s",
		},
		{DemoOptions{Seed: 7, Kills: -1}, "semel demo --seed 7 --kills -1"},
	} {
		o, err := c.o.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		if got := repeatCommand(o); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
