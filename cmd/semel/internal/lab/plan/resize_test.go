package plan

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func thirty() Scenario {
	return Scenario{
		Name: "s", Load: Load{Orders: 30, Retries: 6, Poison: 3}, Workers: Workers{Count: 3, Prefetch: 5}, Timeout: time.Minute,
		Expect: map[Guard]Expect{GuardOn: {Verdict: Held, Figures: []Figure{
			Exactly("effects", 27), AtLeast("replayed", 6), Exactly("dead", 3), Exactly("lost", 0), AtLeast("executed", 30),
			AtLeast("kills", 3), AtLeast("duplicated", 17), Exactly("standing", 4),
			AtLeast("lost", 2), AtLeast("delivered", 31),
		}}},
		Faults: []Fault{{Do: Kill, Step: AfterEffect, Count: 2}},
	}
}

func TestS3_52_SizesFollow(t *testing.T) {
	s := thirty()
	got, dropped, err := s.Resize(10, 7)
	if err != nil {
		t.Fatal(err)
	}
	if got.Load.Orders != 10 || got.Load.Retries != 2 || got.Load.Poison != 1 || got.Workers.Prefetch != 7 || got.Timeout != time.Minute {
		t.Errorf("the load became %+v, workers %+v, timeout %s", got.Load, got.Workers, got.Timeout)
	}
	want := []Figure{
		Exactly("effects", 9), AtLeast("replayed", 2), Exactly("dead", 1), Exactly("lost", 0), AtLeast("executed", 10),
		AtLeast("kills", 3), Exactly("standing", 4), AtLeast("lost", 2), AtLeast("delivered", 11),
	}
	if f := got.Expect[GuardOn].Figures; !slices.Equal(f, want) {
		t.Errorf("figures\n%v, want\n%v", f, want)
	}
	if !slices.Equal(dropped, []string{"duplicated"}) {
		t.Errorf("dropped %v, want duplicated", dropped)
	}
	if f := s.Expect[GuardOn].Figures[0]; f.Min != 27 || s.Load.Orders != 30 {
		t.Errorf("the scenario itself was changed: %v, %+v", f, s.Load)
	}
	if got, _, _ = s.Resize(300, 0); got.Load.Retries != 60 || got.Workers.Prefetch != 5 || got.Timeout != 10*time.Minute {
		t.Errorf("ten times as many: %+v, timeout %s", got.Load, got.Timeout)
	}
	if got, _, _ = s.Resize(0, 2); got.Load.Orders != 30 || got.Workers.Prefetch != 2 {
		t.Errorf("only the batch: %+v", got)
	}
}

func TestS3_52_SizesThatShowNothingAreRefused(t *testing.T) {
	one := thirty()
	one.Load.Orders = 1
	lossy := thirty()
	lossy.Wire.ForgetAck = 0.3 // 0.7^20 < 0.001 < 0.7^19
	killed := thirty()
	killed.Faults = []Fault{{Do: Kill, Step: AfterEffect, Count: 4}, {Do: Kill, Step: AfterClaim, Count: 2}}
	for _, c := range []struct {
		name            string
		s               Scenario
		orders, prefech int
		ok              bool
	}{
		{"one order", one, 10, 0, false},
		{"one order, as it is", one, 1, 3, true},
		{"too many", thirty(), MaxOrders + 1, 0, false},
		{"negative", thirty(), -1, 0, false},
		{"too large a batch", thirty(), 0, 11, false},
		{"a wire that would harm no call", lossy, 19, 0, false},
		{"a wire that harms a call", lossy, 20, 0, true},
		{"not an order for each kill", killed, 8, 0, false},
		{"an order for each kill", killed, 9, 0, true},
	} {
		_, _, err := c.s.Resize(c.orders, c.prefech)
		bad := (*SizeError)(nil)
		if errors.As(err, &bad) == c.ok || err != nil && bad.Hint == "" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
