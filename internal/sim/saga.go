package sim

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/semel-dev/semel/internal/sim/saga"
)

// This file runs the simulator of sagas (package saga) with the engine's: the same seeds, the same report.

// sagaBases is the number of base schedules of sagas that get a fault at every call.
const sagaBases = 300

// Sagas is what the simulator of sagas did.
type Sagas struct {
	Seeds, CrashPoints int
	saga.Stats
}

// ReplaySaga simulates one seed of a saga and prints its history, and its verdict.
func ReplaySaga(seed uint64, out io.Writer) error {
	if _, err := fmt.Fprint(out, saga.History(seed)); err != nil {
		return fmt.Errorf("print the history of saga seed %d: %w", seed, err)
	}
	return nil
}

// sagaSchedules runs job(i) for i in [0, n) on all workers, with counts of its own.
func (p *pool) sagaSchedules(n int, job func(i int, st *saga.Stats) bool) int {
	var mu sync.Mutex
	return p.parallel(n, func(_ *world, i int) bool {
		var st saga.Stats
		ok := job(i, &st)
		mu.Lock()
		defer mu.Unlock()
		p.report.Sagas.Add(&st)
		return ok
	})
}

func (p *pool) sagaViolation(v *saga.Violation, at int) bool {
	return p.violation(&Violation{
		Invariant: v.Invariant, Seed: v.Seed, At: at, Fault: "a fault in a saga", Detail: "saga: " + v.Detail, Trace: v.Trace,
	})
}

// sagaSeeds simulates random schedules of sagas.
func (p *pool) sagaSeeds() {
	p.report.Sagas.Seeds = p.sagaSchedules(p.o.Seeds, func(i int, st *saga.Stats) bool {
		if v := saga.Seed(p.o.First+uint64(i), 0, st); v != nil {
			return p.sagaViolation(v, -1)
		}
		return true
	})
	p.o.Progress(fmt.Sprintf("%d saga seeds, %d violations", p.report.Sagas.Seeds, len(p.report.Violations)))
}

// sagaPoints plants one fault of each kind at every call of base schedules.
func (p *pool) sagaPoints() {
	var points atomic.Int64
	p.sagaSchedules(sagaBases*p.o.CrashPoints/AllCrashPoints, func(i int, st *saga.Stats) bool {
		seed := p.o.First + uint64(i)
		calls, v := saga.Point(seed, -1, 0, st)
		if v != nil {
			return p.sagaViolation(v, -1)
		}
		for at := range calls {
			for kind := range saga.Kinds {
				if p.ctx.Err() != nil {
					return false
				}
				points.Add(1)
				if _, v := saga.Point(seed, at, kind, st); v != nil && !p.sagaViolation(v, at) {
					return false
				}
			}
		}
		return true
	})
	p.report.Sagas.CrashPoints = int(points.Load())
}

// findSagaMutants looks for each mistake planted in sagas.
func (p *pool) findSagaMutants() {
	for mut := 1; mut <= saga.Mutants; mut++ {
		p.findMutant(saga.Name(mut), func(found func(seed uint64, invariant, detail string)) int {
			return p.parallel(seedsPerMutant, func(_ *world, i int) bool {
				var st saga.Stats
				v := saga.Seed(p.o.First+uint64(i), mut, &st)
				if v == nil || !saga.Breaks(mut, v.Invariant) {
					return true
				}
				found(v.Seed, v.Invariant, v.Detail)
				return false
			})
		})
	}
}
