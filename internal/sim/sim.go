package sim

import (
	"context"
	"io"
	"runtime"
	"time"

	"github.com/semel-dev/semel/internal/sim/saga"
	"github.com/semel-dev/semel/internal/virtual"
)

// Options say what to simulate.
type Options struct {
	// Seeds is the number of seeds with random faults, from First on.
	Seeds int
	First uint64
	// CrashPoints is how many base schedules are run again and again, with one fault planted at every single operation: 0
	// none, AllCrashPoints all of them. Sagas and outboxes have bases of their own, of which the same share is run.
	CrashPoints int
	// Mutants also looks for every planted mutant.
	Mutants bool
	// Workers is the number of goroutines. Defaults to the number of CPUs.
	Workers int
	// Budget bounds the whole run in real time. Defaults to none.
	Budget time.Duration
	// Progress is called now and then with a line about the progress. Nil = it is not.
	Progress func(string)
}

// Report is what a run of the simulator found.
type Report struct {
	Seeds       int
	CrashPoints int
	Stats
	// Sagas is what was simulated of package steps.
	Sagas      Sagas
	Elapsed    time.Duration
	Violations []virtual.Violation
	Mutants    []virtual.MistakeResult
	// Outbox are the figures of the simulated outboxes.
	Outbox OutboxStats
}

// Sagas is what the simulator of sagas did.
type Sagas struct {
	Seeds, CrashPoints int
	saga.Stats
}

// OK reports that the engine held and every mutant was found.
func (r *Report) OK() bool {
	for _, m := range r.Mutants {
		if !m.Found {
			return false
		}
	}
	return len(r.Violations) == 0
}

// The base schedules of crash points. AllCrashPoints is that of the engine's.
const (
	AllCrashPoints = 600
	sagaBases      = 300
	outboxBases    = 15
)

const outboxShare = 10 // the engine's schedules for each of an outbox

// kinds are the simulators. They add what they counted to the report.
func (r *Report) kinds() (engine, sagas, outbox *virtual.Kind) {
	engine = &virtual.Kind{
		New: func() virtual.Simulator { return newSimulation() }, Faults: faultNames[:pointKinds], Mistakes: mistakes,
		Done: func(s virtual.Simulator) { r.Stats.add(&s.(*simulation).stats) },
	}
	sagas = saga.Kind(&r.Sagas.Stats)
	outbox = &virtual.Kind{
		Prefix: "outbox: ", New: func() virtual.Simulator { return &relaySimulation{} },
		Faults: relayFaultNames[1:], MaxPoints: 200, Mistakes: relayMistakes,
		Done: func(s virtual.Simulator) { r.Outbox.add(&s.(*relaySimulation).stats) },
	}
	return engine, sagas, outbox
}

// Run simulates as Options say. It returns early when ctx is done or the budget is spent, with what it has.
func Run(ctx context.Context, o Options) Report {
	if o.Workers <= 0 {
		o.Workers = runtime.NumCPU()
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Budget)
		defer cancel()
	}
	began := time.Now()
	var r Report
	engine, sagas, outbox := r.kinds()
	x := &virtual.Explorer{Context: ctx, First: o.First, Workers: o.Workers, Progress: o.Progress}
	if o.Mutants {
		for _, k := range []*virtual.Kind{engine, sagas, outbox} {
			r.Mutants = append(r.Mutants, x.FindMistakes(k)...)
		}
	}
	if o.CrashPoints > 0 {
		r.CrashPoints = x.CrashPoints(engine, o.CrashPoints)
		r.Sagas.CrashPoints = x.CrashPoints(sagas, sagaBases*o.CrashPoints/AllCrashPoints)
		r.Outbox.CrashPoints = x.CrashPoints(outbox, outboxBases*o.CrashPoints/AllCrashPoints)
	}
	r.Seeds = x.Seeds(engine, o.Seeds)
	r.Sagas.Seeds = x.Seeds(sagas, o.Seeds)
	r.Outbox.Schedules = x.Seeds(outbox, (o.Seeds+outboxShare-1)/outboxShare)
	r.Violations, r.Elapsed = x.Violations, time.Since(began)
	return r
}

// Replay simulates one seed of the engine and prints its history, and its verdict.
func Replay(seed uint64, out io.Writer) error { return virtual.Replay(newSimulation(), seed, out) }

// ReplaySaga does the same for a seed of a saga.
func ReplaySaga(seed uint64, out io.Writer) error {
	return virtual.Replay(&saga.Simulation{}, seed, out)
}

// ReplayOutbox does the same for a seed of the outbox.
func ReplayOutbox(seed uint64, out io.Writer) error {
	return virtual.Replay(&relaySimulation{}, seed, out)
}

func (s *Stats) add(o *Stats) {
	s.Messages += o.Messages
	s.Deliveries += o.Deliveries
	s.Events += o.Events
	s.Runs += o.Runs
	s.Effects += o.Effects
	s.Crashes += o.Crashes
	s.Stalls += o.Stalls
	s.Drains += o.Drains
	s.Lost += o.Lost
	s.Late += o.Late
	s.Expired += o.Expired
	s.Inserted += o.Inserted
	s.Takeovers += o.Takeovers
	s.Outages += o.Outages
	s.Refused += o.Refused
	s.DeadLetters += o.DeadLetters
	s.Operations += o.Operations
	s.Hits += o.Hits
}
