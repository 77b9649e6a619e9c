// Package saga is the deterministic simulator of package steps: it runs the very code that runs in production, as
// coroutines that hand over at every call to the journal, at every effect and at every wait, against a modelled store and
// outside world in virtual time. One seed is one schedule.
//
// The model's store decides with driver.DecideSteps, as every adapter has to. It is hostile within the contract: attempts
// crash before and after every call, responses are lost, requests arrive long after their sender gave up (an original that
// lands behind its compensation among them), attempts stall past their leases and go on as zombies, compensations fail.
// Checked are the invariants I2', I7, I11, I15, I17 and I20 of protocol section 11.
//
// Reading order: saga.go (what to call), world.go (time, attempts, the record), runner.go (an attempt as a coroutine, and
// what its calls do), outside.go (what effects do), check.go (the invariants), mutant.go (what is planted).
package saga

import (
	"fmt"
	"strings"
)

// Stats count what schedules did.
type Stats struct {
	Runs, Attempts, Effects, Compensations int
	Crashes, Stalls, Lost, Late            int
	Completed, Compensated, Parked         int
}

// Add adds other counts.
func (s *Stats) Add(o *Stats) {
	s.Runs += o.Runs
	s.Attempts += o.Attempts
	s.Effects += o.Effects
	s.Compensations += o.Compensations
	s.Crashes += o.Crashes
	s.Stalls += o.Stalls
	s.Lost += o.Lost
	s.Late += o.Late
	s.Completed += o.Completed
	s.Compensated += o.Compensated
	s.Parked += o.Parked
}

// Violation is an invariant that a schedule violated.
type Violation struct {
	Seed              uint64
	Invariant, Detail string
	Trace             string
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s violated by saga seed %d: %s", v.Invariant, v.Seed, v.Detail)
}

// Kinds is the number of kinds of planted faults.
const Kinds = int(fateKinds) - 1

// Mutants is the number of planted mistakes. They are numbered from 1.
const Mutants = int(mutants) - 1

// Name is the name of a planted mistake.
func Name(mutant int) string { return mistakes[mutant].name }

// Breaks reports that the invariant is one of those that a mistake must violate.
func Breaks(mutant int, invariant string) bool {
	for _, s := range strings.Fields(mistakes[mutant].breaks) {
		if s == invariant {
			return true
		}
	}
	return false
}

// Seed simulates one random schedule, with a planted mistake or without one (0).
func Seed(seed uint64, mutant int, st *Stats) *Violation {
	return simulate(seed, mutant, -1, 0, st)
}

// History simulates one random schedule, and is its history with the verdict.
func History(seed uint64) string {
	w := newWorld(seed, 0, &Stats{})
	w.tracing = true
	w.run()
	if w.vio == nil {
		w.say("no invariant is violated")
	}
	return w.trace.String()
}

// Point simulates one schedule without random faults, but with a fault of one kind (from 0) at one call (from 0); at -1
// there is none. calls is how many there were.
func Point(seed uint64, at, kind int, st *Stats) (calls int, v *Violation) {
	w := newWorld(seed, 0, st)
	w.faultless, w.faultAt, w.faultKind = true, at, fate(kind+1)
	w.run()
	return w.calls, w.explained(func(x *world) { x.faultless, x.faultAt, x.faultKind = true, at, fate(kind+1) })
}

func simulate(seed uint64, mutant, at, kind int, st *Stats) *Violation {
	w := newWorld(seed, mutant, st)
	w.faultAt, w.faultKind = at, fate(kind+1)
	w.run()
	return w.explained(func(*world) {})
}

// explained runs a violating schedule again, with its history written down.
func (w *world) explained(same func(*world)) *Violation {
	if w.vio == nil {
		return nil
	}
	again := newWorld(w.seed, int(w.mut), &Stats{})
	same(again)
	again.faultAt, again.faultKind, again.tracing = w.faultAt, w.faultKind, true
	again.run()
	v := *w.vio
	if v.Trace = again.trace.String(); again.vio == nil || again.vio.Detail != v.Detail {
		v.Trace += "(the history above is not the violating one: the simulator is not deterministic)\n"
	}
	return &v
}
