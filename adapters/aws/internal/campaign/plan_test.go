package campaign

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

// effects is the kind of effects that handlers have.
type effects uint8

const (
	// collected: they queue writes of the same database (mode A2).
	collected effects = iota
	// keyed: they call something that deduplicates on the effect key.
	keyed
	// plain: they call something that does not.
	plain
)

func (e effects) String() string { return [...]string{"collected", "keyed", "plain"}[e] }

const (
	visibility = 30 * time.Second
	skew       = 10 * time.Second
)

// plan is the plan of a seed.
type plan struct {
	seed       uint64
	effects    effects
	fifo       bool
	keys       int
	slots      int           // processes at a time
	until      time.Duration // when faults end
	rates      awstest.Rates
	operations map[string]awstest.Rates // other rates of some operations
	delayBy    time.Duration
	lateBy     time.Duration
	receives   int // maxReceiveCount of the queue
	failing    float64
	longest    time.Duration // of a run
	apart      time.Duration // how far clocks differ at most
	hangs      bool          // handlers may ignore that they are cancelled
}

func planOf(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	x := r.Float64() // from mild to bad
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(r.Int64N(int64(to-from))) }
	p := plan{
		seed: seed, effects: effects(seed % 3), fifo: r.IntN(3) == 0, keys: 3 + r.IntN(6), slots: 2 + r.IntN(3),
		until: between(2*time.Minute, 6*time.Minute), delayBy: between(time.Second, 40*time.Second),
		lateBy: between(time.Second, 90*time.Second), receives: []int{1000, 1000, 100, 20, 5}[r.IntN(5)],
		failing: []float64{0, .1, .3}[r.IntN(3)], longest: between(time.Second, 80*time.Second), apart: skew, hangs: r.IntN(3) == 0,
	}
	some := func(most float64) float64 { return most * x * r.Float64() }
	p.rates = awstest.Rates{
		Before: some(.2), After: some(.4), Late: some(.4), Delay: some(.2), Hang: some(.1), Internal: some(.2), Unavailable: some(.1),
		Throttled: some(.2), Conflict: some(.2), Partial: some(.5), Stale: some(1), Torn: some(.2),
	}
	return p
}

func (p plan) String() string {
	kind := "standard"
	if p.fifo {
		kind = "FIFO"
	}
	return fmt.Sprintf("seed %d: %s effects, %s queue, %d keys, %d processes, faults for %v (late by %v, delayed by %v), redrive "+
		"after %d receives, runs of %v, %.0f%% fail, clocks within %v", p.seed, p.effects, kind, p.keys, p.slots, p.until.Round(time.Second),
		p.lateBy.Round(time.Second), p.delayBy.Round(time.Second), p.receives, p.longest.Round(time.Second), 100*p.failing, p.apart)
}
