package sim

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
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
	Violations []Violation
	Mutants    []MutantResult
	// Outbox are the figures of the simulated outboxes.
	Outbox OutboxStats
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

// MutantResult reports whether a planted mutant was found.
type MutantResult struct {
	Name      string
	Found     bool
	Seed      uint64
	Invariant string
	Tried     int // seeds until it was found
	Elapsed   time.Duration
	Detail    string
}

// AllCrashPoints is the number of base schedules of crash points.
const AllCrashPoints = 600

const (
	seedsPerMutant = 100_000
	maxViolations  = 10
)

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
	p := &pool{ctx: ctx, o: o}
	if o.Mutants {
		p.findMutants()
		p.findSagaMutants()
		p.findRelayMutants()
	}
	if o.CrashPoints > 0 {
		p.crashPoints()
		p.sagaPoints()
		p.relayCrashPoints()
	}
	p.seeds()
	p.sagaSeeds()
	p.relaySeeds()
	p.report.Elapsed = time.Since(began)
	return p.report
}

// Replay simulates one seed and prints its history, and its verdict.
func Replay(seed uint64, out io.Writer) error {
	w := newWorld()
	w.tr = &trace{}
	v := w.simulate(seed, noMutant, false, -1, 0)
	return w.tr.tell(out, seed, v)
}

// explain runs a violation's seed again, with its history written down.
func (w *world) explain(v *Violation, mut mutant, faultless bool, kind faultKind) {
	w.tr = &trace{}
	again := w.simulate(v.Seed, mut, faultless, v.At, kind)
	v.Trace = w.tr.evidence(v, again, w.base(v.Key))
	w.tr = nil
}

type pool struct {
	ctx    context.Context
	o      Options
	mu     sync.Mutex
	report Report
}

// parallel runs job(world, i) for i in [0, n) on all workers, until the context is done or job returns false.
func (p *pool) parallel(n int, job func(w *world, i int) bool) int {
	return share(p, n, newWorld, job, func(w *world) { p.report.Stats.add(&w.stats) })
}

// share runs job(w, i) for i in [0, n) on all workers, each with a world of its own, until the context is done or job
// returns false. At its end each worker passes its world to handIn, one at a time. It returns the number of jobs.
func share[W any](p *pool, n int, make func() W, job func(w W, i int) bool, handIn func(w W)) int {
	var next, done atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range p.o.Workers {
		wg.Go(func() {
			w := make()
			for !stop.Load() && p.ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}
				if !job(w, i) {
					stop.Store(true)
				}
				done.Add(1)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			handIn(w)
		})
	}
	wg.Wait()
	return int(done.Load())
}

func (p *pool) violation(v *Violation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Violations = append(p.report.Violations, *v)
	return len(p.report.Violations) < maxViolations
}

func (p *pool) seeds() {
	const chunk = 20_000
	for from := 0; from < p.o.Seeds && p.ctx.Err() == nil; from += chunk {
		p.report.Seeds += p.parallel(min(chunk, p.o.Seeds-from), func(w *world, i int) bool {
			seed := p.o.First + uint64(from+i)
			if v := w.simulate(seed, noMutant, false, -1, 0); v != nil {
				w.explain(v, noMutant, false, 0)
				return p.violation(v)
			}
			return true
		})
		p.o.Progress(fmt.Sprintf("%d seeds, %d violations", p.report.Seeds, len(p.report.Violations)))
		if len(p.report.Violations) >= maxViolations {
			return
		}
	}
}

// crashPoints plants one fault of each kind at every operation of base schedules.
func (p *pool) crashPoints() {
	var points atomic.Int64
	p.parallel(p.o.CrashPoints, func(w *world, i int) bool {
		seed := p.o.First + uint64(i)
		if v := w.simulate(seed, noMutant, true, -1, 0); v != nil {
			w.explain(v, noMutant, true, 0)
			return p.violation(v)
		}
		for at := range w.ops {
			for kind := range pointKinds {
				if p.ctx.Err() != nil {
					return false
				}
				points.Add(1)
				if v := w.simulate(seed, noMutant, true, at, kind); v != nil {
					w.explain(v, noMutant, true, kind)
					if !p.violation(v) {
						return false
					}
				}
			}
		}
		return true
	})
	p.report.CrashPoints = int(points.Load())
	p.o.Progress(fmt.Sprintf("%d crash points, %d violations", p.report.CrashPoints, len(p.report.Violations)))
}

// findMutants looks for each mutant until an invariant is violated.
func (p *pool) findMutants() {
	for mut := noMutant + 1; mut < mutants; mut++ {
		p.findMutant(mistakes[mut].name, func(found func(seed uint64, invariant, detail string)) int {
			return p.parallel(seedsPerMutant, func(w *world, i int) bool {
				v := w.simulate(p.o.First+uint64(i), mut, false, -1, 0)
				if v == nil || !mut.breaks(v.Invariant) {
					return true
				}
				found(v.Seed, v.Invariant, v.Detail)
				return false
			})
		})
	}
}

// findMutant reports the result for one planted mistake. search tries seeds, calls found for those that find it (from any
// goroutine) and returns how many it tried.
func (p *pool) findMutant(name string, search func(found func(seed uint64, invariant, detail string)) int) {
	began := time.Now()
	res := MutantResult{Name: name}
	var mu sync.Mutex
	res.Tried = search(func(seed uint64, invariant, detail string) {
		mu.Lock()
		defer mu.Unlock()
		if !res.Found || seed < res.Seed {
			res.Found, res.Seed, res.Invariant, res.Detail = true, seed, invariant, detail
		}
	})
	res.Elapsed = time.Since(began)
	p.report.Mutants = append(p.report.Mutants, res)
	p.o.Progress(fmt.Sprintf("mutant %q: found %v after %d seeds (%s)", res.Name, res.Found, res.Tried, res.Invariant))
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
	s.Takeovers += o.Takeovers
	s.Outages += o.Outages
	s.Refused += o.Refused
	s.DeadLetters += o.DeadLetters
	s.Operations += o.Operations
	s.Hits += o.Hits
}
