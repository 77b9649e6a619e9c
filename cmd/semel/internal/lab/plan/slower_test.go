package plan

import (
	"reflect"
	"testing"
	"time"
)

// TestAtLeastKeepsProportions: what is longer than the visibility stays longer.
func TestAtLeastKeepsProportions(t *testing.T) {
	s := Scenario{
		Work:    Work{Min: time.Second, Max: 2 * time.Second, SlowFor: 1500 * time.Millisecond},
		Workers: Workers{Visibility: time.Second},
		Faults:  []Fault{{Do: Freeze, For: 2500 * time.Millisecond}},
	}
	got := s.AtLeast(2 * time.Second)
	if got.Workers.Visibility != 2*time.Second || got.Work.Max != 4*time.Second || got.Faults[0].For != 5*time.Second {
		t.Errorf("%+v", got)
	}
	if !s.AboutVisibility() || !got.AboutVisibility() {
		t.Error("its work takes longer than the visibility")
	}
	if same := s.AtLeast(time.Second); same.Work != s.Work || same.Workers.Visibility != time.Second {
		t.Errorf("%+v", same)
	}
	s.Work, s.Faults[0].For = Work{Min: 10 * time.Millisecond, Max: 30 * time.Millisecond}, 0
	if s.AboutVisibility() {
		t.Error("nothing in it is as long as the visibility")
	}
}

// TestStretchSlowsEverything: all proportions stay.
func TestStretchSlowsEverything(t *testing.T) {
	s := Scenario{
		Load: Load{Rate: 40, Faster: 5},
		Work: Work{Min: time.Second, Max: 2 * time.Second, SlowFor: 3 * time.Second},
		Workers: Workers{
			Count: 3, Visibility: 4 * time.Second, Restart: 5 * time.Second, Scale: Scale{Backlog: 8, Every: 6 * time.Second},
		},
		Wire:    Wire{LoseAck: 0.5, SlowFor: 7 * time.Second},
		Faults:  []Fault{{Do: Freeze, Count: 1, For: 8 * time.Second}},
		Timeout: time.Minute,
	}
	want := Scenario{
		Load: Load{Rate: 20, Faster: 2.5},
		Work: Work{Min: 2 * time.Second, Max: 4 * time.Second, SlowFor: 6 * time.Second},
		Workers: Workers{
			Count: 3, Visibility: 8 * time.Second, Restart: 10 * time.Second, Scale: Scale{Backlog: 8, Every: 12 * time.Second},
		},
		Wire:    Wire{LoseAck: 0.5, SlowFor: 14 * time.Second},
		Faults:  []Fault{{Do: Freeze, Count: 1, For: 16 * time.Second}},
		Timeout: 2 * time.Minute,
	}
	if got := s.Stretch(2); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if s.Faults[0].For != 8*time.Second {
		t.Error("the scenario itself was changed")
	}
}
