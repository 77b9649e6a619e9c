package plan

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// testScenario has every kind of fault that the demo has.
func testScenario(t *testing.T, orders, workers, kills int) Scenario {
	t.Helper()
	outside := min(1, kills/2)
	return Scenario{
		Load:    Load{Orders: orders, Retries: max(1, orders*15/100), Amount: 100_000, Currency: "JPY"},
		Work:    Work{Min: 5 * time.Millisecond, Max: 40 * time.Millisecond, Slow: min(2, orders/20), SlowFor: 2600 * time.Millisecond},
		Workers: Workers{Count: workers, Visibility: 2 * time.Second},
		Faults: []Fault{
			{Do: Kill, Step: AfterEffect, Count: kills - outside},
			{Do: Kill, Step: Outside, Count: outside},
			{Do: Kill, Step: AfterReceive, Count: (kills + 3) / 4, GuardOn: true, ByPassage: true},
			{Do: Kill, Step: AfterClaim, Count: (kills + 2) / 4, GuardOn: true, ByPassage: true},
			{Do: Kill, Step: AfterCommit, Count: (kills + 1) / 4, GuardOn: true},
			{Do: Kill, Step: Outside, Count: kills / 4, GuardOn: true},
		},
	}
}

func TestPlanIsAFunctionOfTheSeed(t *testing.T) {
	s := testScenario(t, 200, 3, 4)
	for _, g := range []Guard{GuardOff, GuardOn} {
		a, b := s.Plan(42, g), s.Plan(42, g)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("guard %s: two plans of one seed differ", g)
		}
		if c := s.Plan(43, g); reflect.DeepEqual(a.Sends, c.Sends) || reflect.DeepEqual(a.Strikes, c.Strikes) {
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
		for _, k := range off.Strikes {
			if !slices.Contains(on.Strikes, k) {
				t.Fatalf("seed %d: kill %+v is missing with the guard on", seed, k)
			}
			if k.Step != AfterEffect && k.Step != Outside {
				t.Fatalf("seed %d: the plain consumer has no step %s", seed, k.Step)
			}
		}
		if len(off.Strikes) != 4 || len(on.Strikes) != 8 {
			t.Fatalf("seed %d: %d kills off, %d on, want 4 and 8", seed, len(off.Strikes), len(on.Strikes))
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
		for _, k := range p.Strikes {
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
			for _, k := range p.Strikes {
				if k.Step == Outside && (k.AtEffects < 1 || k.AtEffects > orders) {
					t.Fatalf("%d orders: a kill at %d effects never happens", orders, k.AtEffects)
				}
			}
		}
	}
}

// TestNameOfTheOneOrder: the document's name is the key, and strikes at the order find it.
func TestNameOfTheOneOrder(t *testing.T) {
	s := Scenario{
		Load: Load{Orders: 1, Name: "msg-1"}, Workers: Workers{Count: 1},
		Faults: []Fault{{Do: Kill, Step: AfterEffect, Count: 1}},
	}
	p := s.Plan(1, GuardOff)
	if p.Sends[0].Key != "msg-1" || p.Strikes[0].Key != "msg-1" {
		t.Errorf("%+v", p)
	}
	if s.Load.Name = ""; s.Plan(1, GuardOff).Sends[0].Key != Key(0) {
		t.Error("without a name it is no order-0001")
	}
}
