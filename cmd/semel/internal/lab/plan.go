package lab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Plan is the schedule of one run: everything that chance decides, decided beforehand.
type Plan struct {
	Seed  uint64
	Guard Guard
	// Sends are the messages in sending order.
	Sends []Send
	Kills []Kill
}

// Send is one message of the load.
type Send struct {
	Key    string // what must take effect once
	ID     string // the message's own id: a producer's retry has another one
	Copy   int    // 1; 2 = the producer's retry
	WorkMS int    // how long the handler takes for it
	HangMS int    // how long its first delivery hangs besides
}

// Kill is one planned SIGKILL. It happens once per run, in whichever process gets there first.
type Kill struct {
	ID   int  `json:"id"`
	Step Step `json:"step"`
	// Key: at the first passage of this key, in any worker.
	Key string `json:"key,omitempty"`
	// Worker and Nth: at the Nth passage of the step in a process of this worker (from 1), whatever the key.
	Worker int `json:"worker,omitempty"`
	Nth    int `json:"nth,omitempty"`
	// AtEffects, with Step Outside: the parent kills Worker when the ledger holds so many effects.
	AtEffects int `json:"at_effects,omitempty"`
}

// Plan makes the schedule of a run. It is a pure function of the scenario, the seed and the guard; load and work do not
// depend on the guard, and the kills of the unguarded run are among those of the guarded one.
func (s Scenario) Plan(seed uint64, g Guard) Plan {
	rng := rand.New(rand.NewPCG(seed, 0x5e3e1))
	pick := newPicker(rng, s.Load.Orders)
	retries := pick.take(s.Load.Retries, 0, 1)
	// Spread out, so that not all workers are held up at once.
	var slow []int
	for i := range s.Work.Slow {
		from := 0.08 + 0.65*float64(i)/float64(max(1, s.Work.Slow-1))
		slow = append(slow, pick.take(1, from, from+0.15)...)
	}
	p := Plan{Seed: seed, Guard: g, Sends: s.sends(rng, retries, slow)}
	for _, rule := range s.Kills {
		for range rule.Count {
			k := s.kill(rng, pick, rule)
			k.ID = len(p.Kills) + 1
			p.Kills = append(p.Kills, k)
		}
	}
	p.Kills = slices.DeleteFunc(p.Kills, func(k Kill) bool {
		return g == GuardOff && s.guardOnly(k.ID)
	})
	return p
}

// guardOnly tells whether the kill with this id comes from a rule for guarded runs. Ids count through the rules.
func (s Scenario) guardOnly(id int) bool {
	for _, rule := range s.Kills {
		if id <= rule.Count {
			return rule.GuardOn
		}
		id -= rule.Count
	}
	return false
}

func (s Scenario) kill(rng *rand.Rand, pick *picker, rule KillRule) Kill {
	k := Kill{Step: rule.Step}
	switch {
	case rule.Step == Outside:
		k.Worker = 1 + rng.IntN(s.Workers.Count)
		k.AtEffects = 1 + int(float64(s.Load.Orders)*(0.2+0.5*rng.Float64()))
		k.AtEffects = min(k.AtEffects, s.Load.Orders)
	case rule.ByPassage:
		// Early enough that every worker gets there: a fair share is Orders / Count.
		k.Worker = 1 + rng.IntN(s.Workers.Count)
		k.Nth = 1 + rng.IntN(max(1, min(8, s.Load.Orders/(4*s.Workers.Count))))
	default:
		k.Key = keyName(pick.take(1, 0.08, 0.75)[0])
	}
	return k
}

// sends lays out the load: the orders in their order, each retry a little after its first copy, so that some meet the
// first one at work and some find it done.
func (s Scenario) sends(rng *rand.Rand, retries, slow []int) []Send {
	type placed struct {
		at   float64
		send Send
	}
	span := float64(s.Work.Max - s.Work.Min)
	all := make([]placed, 0, s.Load.Orders+len(retries))
	for i := range s.Load.Orders {
		work := s.Work.Min + time.Duration(rng.Float64()*span)
		one := Send{Key: keyName(i), ID: fmt.Sprintf("m-%04d-1", i+1), Copy: 1, WorkMS: int(work.Milliseconds())}
		if slices.Contains(slow, i) {
			one.HangMS = int(s.Work.SlowFor.Milliseconds())
		}
		all = append(all, placed{float64(i), one})
	}
	for _, i := range retries {
		again := all[i].send
		again.ID, again.Copy = fmt.Sprintf("m-%04d-2", i+1), 2
		gap := rng.ExpFloat64() * float64(s.Load.Orders) / 12
		all = append(all, placed{float64(i) + 0.5 + gap, again})
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	out := make([]Send, len(all))
	for i, a := range all {
		out[i] = a.send
	}
	return out
}

func keyName(i int) string { return fmt.Sprintf("order-%04d", i+1) }

// picker hands out orders, each to one purpose, so that every doubled order has one clear cause. When none is left it
// hands out any.
type picker struct {
	rng  *rand.Rand
	perm []int
	used map[int]bool
}

func newPicker(rng *rand.Rand, n int) *picker {
	return &picker{rng: rng, perm: rng.Perm(n), used: map[int]bool{}}
}

// take picks n orders whose place in the load is between the fractions lo and hi, where possible.
func (p *picker) take(n int, lo, hi float64) []int {
	size := float64(len(p.perm))
	out := make([]int, 0, n)
	for _, inside := range []bool{true, false} {
		for _, i := range p.perm {
			if len(out) == n {
				return out
			}
			in := float64(i) >= lo*size && float64(i) < hi*size
			if !p.used[i] && in == inside {
				p.used[i] = true
				out = append(out, i)
			}
		}
	}
	for len(out) < n {
		out = append(out, p.rng.IntN(len(p.perm)))
	}
	return out
}
