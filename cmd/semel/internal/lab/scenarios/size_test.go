package scenarios

import (
	"errors"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// TestS3_52_EverySizeHasASchedule: of whatever size a scenario may be, its orders are sent and no fault is without an order;
// and what a scenario is by itself is allowed.
func TestS3_52_EverySizeHasASchedule(t *testing.T) {
	for _, s := range All() {
		if _, dropped, err := s.Resize(s.Load.Orders, s.Workers.Prefetch); err != nil || len(dropped) > 0 {
			t.Errorf("%s as it is: dropped %v, %v", s.Name, dropped, err)
		}
		sizes := 0
		for _, orders := range []int{1, 2, 5, 10, 19, 20, 30, 40, 100, 500} {
			sized, _, err := s.Resize(orders, 3)
			bad := (*plan.SizeError)(nil)
			if errors.As(err, &bad) {
				continue
			}
			if sizes++; err != nil {
				t.Fatalf("%s with %d orders: %v", s.Name, orders, err)
			}
			for _, g := range []plan.Guard{plan.GuardOff, plan.GuardOn} {
				p := sized.Plan(1, g)
				keys := map[string]bool{}
				for _, one := range p.Sends {
					keys[one.Key] = true
				}
				if len(keys) != orders {
					t.Errorf("%s with %d orders, guard %s: sends %d", s.Name, orders, g, len(keys))
				}
				for _, k := range p.Strikes {
					if k.Key != "" && !keys[k.Key] || k.AtEffects > orders {
						t.Errorf("%s with %d orders, guard %s: %+v strikes no worker", s.Name, orders, g, k)
					}
				}
			}
		}
		if sizes == 0 {
			t.Errorf("%s: no size is allowed", s.Name)
		}
	}
}
