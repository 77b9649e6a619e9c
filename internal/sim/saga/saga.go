// Package saga is the deterministic simulator of package steps: it runs the very code that runs in production, as
// coroutines that hand over at every call to the journal, at every effect and at every wait, against a modelled store and
// outside world in virtual time. One seed is one schedule.
//
// The model's store decides with driver.DecideSteps, as every adapter has to. It is hostile within the contract: attempts
// crash before and after every call, responses are lost, requests arrive long after their sender gave up (an original that
// lands behind its compensation among them), attempts stall past their leases and go on as zombies, compensations fail.
// Checked are the invariants I2', I7, I11, I15, I17 and I20 of protocol section 11.
//
// Reading order: saga.go (what to call), simulation.go (time, attempts, the record), runner.go (an attempt as a coroutine, and
// what its calls do), outside.go (what effects do), check.go (the invariants), mutant.go (what is planted).
package saga

import "github.com/semel-dev/semel/internal/virtual"

// Stats count what schedules did.
type Stats struct {
	Runs, Attempts, Effects, Compensations int
	Crashes, Stalls, Lost, Late            int
	Completed, Compensated, Parked         int
}

func (s *Stats) add(o *Stats) {
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

// Kind describes the simulator. What schedules did is added to total.
func Kind(total *Stats) *virtual.Kind {
	return &virtual.Kind{
		Prefix: "saga: ", New: func() virtual.Simulator { return &Simulation{} }, Faults: faultNames, Mistakes: mistakes,
		Done: func(s virtual.Simulator) { total.add(&s.(*Simulation).stats) },
	}
}
