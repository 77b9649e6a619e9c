package plan

import (
	"reflect"
	"strings"
	"testing"
)

// TestRoundsShareNothing: neither keys nor ids nor items; the first round is the plan's own load with what comes at its end.
func TestRoundsShareNothing(t *testing.T) {
	s := Scenario{Load: Load{Orders: 4, Retries: 2, Again: 1, Items: 3, BadItems: 1}, Workers: Workers{Count: 1}}
	p := s.Plan(9, GuardOn)
	first := s.Round(9, 0)
	if len(first) != 7 || !reflect.DeepEqual(first[:6], p.Sends) || !reflect.DeepEqual(first[6:], p.Later) {
		t.Errorf("the first round: %+v", first)
	}
	ids, keys := map[string]bool{}, map[string]int{}
	for n := range 3 {
		round := s.Round(9, n)
		if !reflect.DeepEqual(round, s.Round(9, n)) || len(round) != 7 {
			t.Errorf("round %d is not repeatable", n)
		}
		for _, one := range round {
			if ids[one.ID] {
				t.Errorf("%s is there twice", one.ID)
			}
			ids[one.ID] = true
			for _, k := range one.Keys() {
				if at, seen := keys[k]; seen && at != n {
					t.Errorf("%s is in the rounds %d and %d", k, at, n)
				}
				keys[k] = n
				if !strings.HasPrefix(k, one.Key+"/") {
					t.Errorf("the item %s is not of %s", k, one.Key)
				}
			}
			if len(one.Bad) != 1 || one.Bad[0] != one.Items[2] {
				t.Errorf("bad items %v of %v", one.Bad, one.Items)
			}
		}
	}
}
