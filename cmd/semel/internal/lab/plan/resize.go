package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// The bounds of what a person may ask for.
const (
	// MaxOrders is the most orders of a scenario, MaxPrefetch the most messages that a worker takes at once: as many as SQS
	// gives.
	MaxOrders   = 10_000
	MaxPrefetch = 10
	// enough orders are there for faults that strike by time, or shuffle the load.
	enough = 20
	// unlikely is how rarely a fault of the wire may strike no call at all.
	unlikely = 0.001
)

// SizeError refuses a size: Flag is what asked for it.
type SizeError struct{ Flag, Scenario, Problem, Hint string }

func (e *SizeError) Error() string {
	if e.Scenario == "" {
		return fmt.Sprintf("--%s: %s", e.Flag, e.Problem)
	}
	return fmt.Sprintf("--%s: scenario %s: %s", e.Flag, e.Scenario, e.Problem)
}

// Resize makes it another number of orders, and lets the unguarded workers take another number of messages at once; 0 leaves
// either as it is. What is a share of the orders grows or shrinks with them, faults stay as many as they are. Figures that
// count orders follow; those that cannot are dropped, and their names returned. An error is a *SizeError.
func (s Scenario) Resize(orders, prefetch int) (Scenario, []string, error) {
	switch {
	case orders < 0 || orders > MaxOrders:
		return s, nil, &SizeError{"orders", "", fmt.Sprintf("%d is not from 1 to %d", orders, MaxOrders), "--orders 100"}
	case prefetch < 0 || prefetch > MaxPrefetch:
		return s, nil, &SizeError{"batch-size", "", fmt.Sprintf("%d is not from 1 to %d", prefetch, MaxPrefetch), "--batch-size 5"}
	}
	if prefetch > 0 {
		s.Workers.Prefetch = prefetch
	}
	if orders == 0 || orders == s.Load.Orders {
		return s, nil, nil
	}
	if s.Load.Orders == 1 {
		return s, nil, &SizeError{"orders", s.Name, "it is about one order", "leave --orders away"}
	}
	next := s
	next.Load.Orders = orders
	for _, n := range []*int{&next.Load.Retries, &next.Load.Again, &next.Load.Poison, &next.Load.FailOnce, &next.Work.Slow} {
		*n = share(*n, s.Load.Orders, orders)
	}
	next.Timeout = max(s.Timeout, time.Duration(float64(s.Timeout)*float64(orders)/float64(s.Load.Orders)))
	if least := next.leastOrders(s.Load.Orders); orders < least {
		return s, nil, &SizeError{"orders", s.Name, fmt.Sprintf("what goes wrong in it needs %d orders to show", least),
			fmt.Sprintf("--orders %d or more", least)}
	}
	var dropped []string
	next.Expect = maps.Clone(s.Expect)
	for g, want := range s.Expect {
		figures := make([]Figure, 0, len(want.Figures))
		for _, f := range want.Figures {
			if f, ok := s.follow(f, next); ok {
				figures = append(figures, f)
			} else if !slices.Contains(dropped, f.Name) {
				dropped = append(dropped, f.Name)
			}
		}
		want.Figures = figures
		next.Expect[g] = want
	}
	slices.Sort(dropped)
	return next, dropped, nil
}

// share is n of all orders as a share of others: at least one, where there was one.
func share(n, all, others int) int {
	if n == 0 {
		return 0
	}
	return min(others, max(1, int(math.Round(float64(n)*float64(others)/float64(all)))))
}

// leastOrders is with how many orders the scenario still shows what it is about; never more than it has by itself.
func (s Scenario) leastOrders(own int) int {
	// Each of these takes an order of its own, so that every cause is clear.
	apart := s.Load.Retries + s.Work.Slow + s.Load.Poison + s.Load.FailOnce
	least := 1
	for _, f := range s.Faults {
		if f.Step == Outside || f.ByPassage {
			least = max(least, enough)
		} else {
			apart += f.Count
		}
	}
	if s.Load.Versions > 0 || s.Workers.Scale.Backlog > 0 {
		least = own
	}
	for _, p := range []float64{s.Wire.ForgetAck, s.Wire.LoseAck, s.Wire.LoseCommit, s.Wire.LoseEffect} {
		if p > 0 && p < 1 {
			least = max(least, int(math.Ceil(math.Log(unlikely)/math.Log(1-p))))
		}
	}
	return min(max(least, apart), own)
}

// counted are the figures that count orders, or what becomes of them.
var counted = []string{"effects", "executed", "delivered", "duplicated", "replayed", "lost", "dead", "backlog", "sent"}

// follow is a figure of s as one of next, and whether there is such a one. Those of which one or none are wanted, and those
// that count something else, stay as they are.
func (s Scenario) follow(f Figure, next Scenario) (Figure, bool) {
	if f.Max == 0 || f.Min <= 1 && f.Max == -1 || !slices.Contains(counted, f.Name) {
		return f, true
	}
	if f.Name == "backlog" {
		return f, next.Load.Orders >= s.Load.Orders
	}
	was, is := s.counts(), next.counts()
	i := slices.Index(was, f.Min)
	if i < 0 && slices.ContainsFunc(s.Faults, func(k Fault) bool { return k.Count == f.Min }) {
		return f, true // one for each fault
	}
	if i < 0 || f.Max != -1 && f.Max != f.Min {
		return f, false
	}
	f.Min = is[i]
	if f.Max != -1 {
		f.Max = f.Min
	}
	return f, true
}

// counts are the numbers that follow from the load, the same ones at the same places for every scenario.
func (s Scenario) counts() []int {
	l := s.Load
	each := max(1, l.Items)
	if l.Mail {
		each = 2
	}
	return []int{
		(l.Orders - l.Poison) * each, l.Orders, l.Orders + 1, l.Retries, l.Again, l.Poison, l.FailOnce, l.Orders * (l.PerKey - 1),
		l.Orders * (l.Items - l.BadItems),
	}
}
