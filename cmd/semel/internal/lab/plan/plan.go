package plan

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Plan is the schedule of one run: all random choices, made beforehand.
type Plan struct {
	Seed  uint64
	Guard Guard
	// Sends are the messages in sending order; Later are sent when all of them are done.
	Sends, Later []Send
	Strikes      []Strike
}

// Send is one message of the load. As JSON it is the message's body, which a producer's retry has in common with the first.
type Send struct {
	Key    string `json:"order"`             // what must take effect once
	ID     string `json:"-"`                 // the message's own id: a producer's retry has another one
	Copy   int    `json:"-"`                 // 1; 2 = the producer's retry
	WorkMS int    `json:"work_ms"`           // how long the handler takes for it
	HangMS int    `json:"hang_ms,omitempty"` // how long its first delivery hangs in addition
	// Poison: no handler can do it.
	Poison bool `json:"poison,omitempty"`
	// FailOnce: its first try fails.
	FailOnce bool `json:"fail_once,omitempty"`
	// Version is its place among the versions of the key, from 1; 0 = it has none.
	Version int `json:"version,omitempty"`
	// Items are the keys of the items in it, Bad those that fail at first; empty: it is one order.
	Items []string `json:"items,omitempty"`
	Bad   []string `json:"bad,omitempty"`
	// Saga: the items are the steps of a saga.
	Saga bool `json:"saga,omitempty"`
}

// Keys are the keys whose effects the message has.
func (s Send) Keys() []string {
	if len(s.Items) > 0 {
		return s.Items
	}
	return []string{s.Key}
}

// Strike is one planned fault. It happens once per run, in whichever process gets there first.
type Strike struct {
	ID   int           `json:"id"`
	Do   Action        `json:"do"`
	Step Step          `json:"step"`
	For  time.Duration `json:"for,omitempty"`
	// Key: at the first passage of this key, in any worker.
	Key string `json:"key,omitempty"`
	// Worker and Nth: at the Nth passage of the step in a process of this worker (from 1), whatever the key.
	Worker int `json:"worker,omitempty"`
	Nth    int `json:"nth,omitempty"`
	// AtEffects, with Step Outside: the parent strikes Worker when the ledger holds this number of effects.
	AtEffects int `json:"at_effects,omitempty"`
}

// Plan makes the schedule of a run. It is a pure function of the scenario, the seed and the guard; load and work do not
// depend on the guard, and the strikes of the unguarded run are among those of the guarded one.
func (s Scenario) Plan(seed uint64, g Guard) Plan {
	rng := rand.New(rand.NewPCG(seed, 0x5e3e1))
	pick := newPicker(rng, s.Load.Orders)
	chosen := chosen{retries: pick.take(s.Load.Retries, 0, 1)}
	// Spread out, so that not all workers are held up at once.
	for i := range s.Work.Slow {
		from := 0.08 + 0.65*float64(i)/float64(max(1, s.Work.Slow-1))
		chosen.slow = append(chosen.slow, pick.take(1, from, from+0.15)...)
	}
	chosen.poison = pick.take(s.Load.Poison, 0, 1)
	chosen.failing = pick.take(s.Load.FailOnce, 0, 1)
	p := Plan{Seed: seed, Guard: g, Sends: s.sends(rng, chosen)}
	for _, fault := range s.Faults {
		for range fault.Count {
			k := s.strike(rng, pick, fault)
			k.ID = len(p.Strikes) + 1
			p.Strikes = append(p.Strikes, k)
		}
	}
	p.Strikes = slices.DeleteFunc(p.Strikes, func(k Strike) bool {
		return g == GuardOff && s.GuardOnly(k.ID)
	})
	p.Later = s.later(p.Sends)
	return p
}

// GuardOnly reports whether the strike with this id comes from a fault for guarded runs. Ids count through the faults.
func (s Scenario) GuardOnly(id int) bool {
	for _, fault := range s.Faults {
		if id <= fault.Count {
			return fault.GuardOn
		}
		id -= fault.Count
	}
	return false
}

func (s Scenario) strike(rng *rand.Rand, pick *picker, fault Fault) Strike {
	k := Strike{Do: fault.Do, Step: fault.Step, For: fault.For}
	switch {
	case fault.Step == Outside:
		k.Worker = 1 + rng.IntN(s.Workers.Count)
		k.AtEffects = 1 + int(float64(s.Load.Orders)*(0.2+0.5*rng.Float64()))
		k.AtEffects = min(k.AtEffects, s.Load.Orders)
	case fault.ByPassage:
		// Early enough that every worker gets there: a fair share is Orders / Count.
		k.Worker = 1 + rng.IntN(s.Workers.Count)
		k.Nth = 1 + rng.IntN(max(1, min(8, s.Load.Orders/(4*s.Workers.Count))))
	default:
		k.Key = s.key(pick.take(1, 0.08, 0.75)[0])
	}
	return k
}

// chosen are the orders that were drawn for a purpose.
type chosen struct{ retries, slow, poison, failing []int }

// picker chooses orders, each for one purpose, so that every doubled order has one clear cause. When none is left it
// chooses any.
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
