package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Key is the key of the i-th order, from 0.
func Key(i int) string { return fmt.Sprintf("order-%04d", i+1) }

func (s Scenario) key(i int) string {
	if i == 0 && s.Load.Name != "" {
		return s.Load.Name
	}
	return Key(i)
}

type placed struct {
	at   float64
	send Send
}

// sends lays out the load: the orders in their order, each retry a little after its first copy, so that some meet the
// first one at work and some find it done.
func (s Scenario) sends(rng *rand.Rand, c chosen) []Send {
	all := make([]placed, 0, s.Load.Orders+len(c.retries))
	for i := range s.Load.Orders {
		all = append(all, placed{float64(i), s.order(rng, i, c)})
	}
	for _, i := range c.retries {
		again := all[i].send
		again.ID, again.Copy = id(i, 2), 2
		gap := rng.ExpFloat64() * float64(s.Load.Orders) / 12
		all = append(all, placed{float64(i) + 0.5 + gap, again})
	}
	for i := range s.Load.Orders {
		for n := 2; n <= s.Load.PerKey; n++ {
			again := all[i].send
			again.ID, again.Copy = id(i, n), n
			all = append(all, placed{float64(i), again})
		}
	}
	all = s.versions(rng, all)
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	out := make([]Send, len(all))
	for i, a := range all {
		out[i] = a.send
	}
	return out
}

// The parts of an order with a mail: the ends of the keys of its effects.
const (
	OrderItem = "/order"
	MailItem  = "/mail"
)

// order is the first message of the i-th order.
func (s Scenario) order(rng *rand.Rand, i int, c chosen) Send {
	work := s.Work.Min + time.Duration(rng.Float64()*float64(s.Work.Max-s.Work.Min))
	one := Send{
		Key: s.key(i), ID: id(i, 1), Copy: 1, WorkMS: int(work.Milliseconds()), Poison: slices.Contains(c.poison, i),
		Saga: s.Load.Saga, FailOnce: slices.Contains(c.failing, i),
	}
	if slices.Contains(c.slow, i) {
		one.HangMS = int(s.Work.SlowFor.Milliseconds())
	}
	if s.Load.Mail {
		one.Items = []string{one.Key + OrderItem, one.Key + MailItem}
	}
	for n := range s.Load.Items {
		one.Items = append(one.Items, fmt.Sprintf("%s/%d", one.Key, n+1))
	}
	if s.Load.Items > 0 && !s.Load.Saga {
		// The last ones, so that good ones have been done before them.
		one.Bad = one.Items[s.Load.Items-s.Load.BadItems:]
	}
	return one
}

// versions makes of each order its versions. Neighbours change places, so that a newer one may come first.
func (s Scenario) versions(rng *rand.Rand, all []placed) []placed {
	if s.Load.Versions == 0 {
		return all
	}
	var out []placed
	for i, first := range all {
		for v := 1; v <= s.Load.Versions; v++ {
			one := first
			one.send.Version, one.send.ID = v, id(i, v)
			one.at += float64(v)*2 + 4*rng.Float64()
			out = append(out, one)
		}
	}
	return out
}

// later is what is sent when all is done: the first orders again, each under a new id.
func (s Scenario) later(sends []Send) (out []Send) {
	for _, one := range sends {
		if len(out) == s.Load.Again {
			break
		}
		if one.Copy == 1 && !one.Poison {
			one.ID, one.Copy, one.HangMS = one.ID+"-again", 2, 0
			out = append(out, one)
		}
	}
	return out
}

func id(order, n int) string { return fmt.Sprintf("m-%04d-%d", order+1, n) }

// Round is the load once more, for runs that go on: round 0 is the plan's own, each later one has keys and ids of its own,
// and work of its own seed. What is sent when all is done comes at its end. It is the same for both guards.
func (s Scenario) Round(seed uint64, n int) []Send {
	p := s.Plan(seed+uint64(n)*1_000_003, GuardOff)
	all := append(p.Sends[:len(p.Sends):len(p.Sends)], p.Later...)
	if n == 0 {
		return all
	}
	rename := func(name string) string { return fmt.Sprintf("r%d-%s", n+1, name) }
	for i := range all {
		one := &all[i]
		one.Key, one.ID = rename(one.Key), rename(one.ID)
		one.Items, one.Bad = each(one.Items, rename), each(one.Bad, rename)
	}
	return all
}

func each(names []string, f func(string) string) (out []string) {
	for _, n := range names {
		out = append(out, f(n))
	}
	return out
}
