package lab

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func testScenario(t *testing.T, orders, workers, kills int) Scenario {
	t.Helper()
	o, err := DemoOptions{Orders: orders, Workers: workers, Kills: kills, Command: []string{"x"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return demoScenario(o)
}

func TestPlanIsAFunctionOfTheSeed(t *testing.T) {
	s := testScenario(t, 200, 3, 4)
	for _, g := range []Guard{GuardOff, GuardOn} {
		a, b := s.Plan(42, g), s.Plan(42, g)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("guard %s: two plans of one seed differ", g)
		}
		if c := s.Plan(43, g); reflect.DeepEqual(a.Sends, c.Sends) || reflect.DeepEqual(a.Kills, c.Kills) {
			t.Errorf("guard %s: two seeds give the same load or the same kills", g)
		}
	}
}

func TestPlanOfBothGuardsSharesLoadAndKills(t *testing.T) {
	s := testScenario(t, 200, 3, 4)
	for seed := range uint64(50) {
		off, on := s.Plan(seed, GuardOff), s.Plan(seed, GuardOn)
		if !reflect.DeepEqual(off.Sends, on.Sends) {
			t.Fatalf("seed %d: the loads differ", seed)
		}
		for _, k := range off.Kills {
			if !slices.Contains(on.Kills, k) {
				t.Fatalf("seed %d: kill %+v is missing with the guard on", seed, k)
			}
			if k.Step != AfterEffect && k.Step != Outside {
				t.Fatalf("seed %d: the plain consumer has no step %s", seed, k.Step)
			}
		}
		if len(off.Kills) != 4 || len(on.Kills) != 8 {
			t.Fatalf("seed %d: %d kills off, %d on, want 4 and 8", seed, len(off.Kills), len(on.Kills))
		}
	}
}

func TestPlanKeepsCausesApart(t *testing.T) {
	s := testScenario(t, 200, 3, 4)
	for seed := range uint64(50) {
		p := s.Plan(seed, GuardOn)
		first := map[string]int{}
		purpose := map[string]string{}
		use := func(key, what string) {
			if was := purpose[key]; was != "" {
				t.Fatalf("seed %d: %s is there for %s and for %s", seed, key, was, what)
			}
			purpose[key] = what
		}
		retries := 0
		for i, one := range p.Sends {
			at, again := first[one.Key]
			switch {
			case one.Copy == 1 && !again:
				first[one.Key] = i
				if one.HangMS > 0 {
					use(one.Key, "hanging")
				}
			case one.Copy == 2 && again:
				retries++
				use(one.Key, "the producer's retry")
				if p.Sends[at].ID == one.ID {
					t.Fatalf("seed %d: the retry of %s has the id of its first copy", seed, one.Key)
				}
			default:
				t.Fatalf("seed %d: copy %d of %s comes first", seed, one.Copy, one.Key)
			}
		}
		if len(first) != 200 || retries != 30 {
			t.Fatalf("seed %d: %d keys and %d retries, want 200 and 30", seed, len(first), retries)
		}
		for _, k := range p.Kills {
			if k.Key != "" {
				use(k.Key, "a kill at "+string(k.Step))
			}
		}
	}
}

func TestPlanOfTinyLoads(t *testing.T) {
	for orders := 1; orders <= 12; orders++ {
		s := testScenario(t, orders, 3, min(orders, 4))
		for seed := range uint64(20) {
			p := s.Plan(seed, GuardOn)
			if len(p.Sends) != orders+s.Load.Retries || s.Load.Retries < 1 {
				t.Fatalf("%d orders: %d messages, %d retries", orders, len(p.Sends), s.Load.Retries)
			}
			for _, k := range p.Kills {
				if k.Step == Outside && (k.AtEffects < 1 || k.AtEffects > orders) {
					t.Fatalf("%d orders: a kill at %d effects never happens", orders, k.AtEffects)
				}
			}
		}
	}
}

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
		if !ok || usage.Flag != c.flag || usage.Mend == "" {
			t.Errorf("%+v: got %v, want a usage error for --%s", c.o, err, c.flag)
		}
	}
}

func TestDemoOptionsDefaults(t *testing.T) {
	o, err := DemoOptions{Kills: -1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.Kills != 0 || o.Orders != 200 || o.Workers != 3 || o.Seed == 0 || o.Command[1] != HiddenCommand {
		t.Errorf("got %+v", o)
	}
	if n := len(demoScenario(o).Plan(1, GuardOn).Kills); n != 0 {
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
