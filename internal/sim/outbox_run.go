package sim

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	basesOfRelays      = 15
	seedsPerRelayShare = 10 // one schedule of an outbox for so many of the engine
)

// ReplayOutbox simulates one seed of the outbox and prints its history, and its verdict.
func ReplayOutbox(seed uint64, out io.Writer) error {
	w := newRelayWorld()
	w.tr = &trace{}
	v := w.simulate(seed, noRelayMutant, false, -1, relayFine)
	if err := w.tr.write(out, -1); err != nil {
		return fmt.Errorf("print the history of seed %d: %w", seed, err)
	}
	verdict := "no invariant is violated"
	if v != nil {
		verdict = v.String()
	}
	if _, err := fmt.Fprintln(out, verdict); err != nil {
		return fmt.Errorf("print the verdict of seed %d: %w", seed, err)
	}
	return nil
}

// explain runs a violation's seed again, with its history written down.
func (w *relayWorld) explain(v *Violation, mut relayMutant, calm bool, kind relayFault) {
	w.tr = &trace{}
	again := w.simulate(v.Seed, mut, calm, v.At, kind)
	var b strings.Builder
	_ = w.tr.write(&b, -1) // a strings.Builder never fails
	if again == nil || again.Detail != v.Detail {
		b.WriteString("(the history above is not the violating one: the simulator is not deterministic)\n")
	}
	v.Trace = b.String()
	w.tr = nil
}

// relays runs job(world, i) for i in [0, n) on all workers, until the context is done or job answers false.
func (p *pool) relays(n int, job func(w *relayWorld, i int) bool) int {
	var next, done atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range p.o.Workers {
		wg.Go(func() {
			w := newRelayWorld()
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
			p.report.Outbox.add(&w.stats)
			p.mu.Unlock()
		})
	}
	wg.Wait()
	return int(done.Load())
}

// relaySeeds simulates random schedules of the outbox.
func (p *pool) relaySeeds() {
	n := (p.o.Seeds + seedsPerRelayShare - 1) / seedsPerRelayShare
	p.report.Outbox.Schedules += p.relays(n, func(w *relayWorld, i int) bool {
		if v := w.simulate(p.o.First+uint64(i), noRelayMutant, false, -1, relayFine); v != nil {
			w.explain(v, noRelayMutant, false, relayFine)
			return p.violation(v)
		}
		return true
	})
	p.o.Progress(fmt.Sprintf("%d schedules of an outbox, %d violations", p.report.Outbox.Schedules, len(p.report.Violations)))
}

// relayCrashPoints plants one fault of each kind at every operation of calm schedules.
func (p *pool) relayCrashPoints() {
	var points atomic.Int64
	p.relays(basesOfRelays, func(w *relayWorld, i int) bool {
		seed := p.o.First + uint64(i)
		if v := w.simulate(seed, noRelayMutant, true, -1, relayFine); v != nil {
			w.explain(v, noRelayMutant, true, relayFine)
			return p.violation(v)
		}
		for at := range min(w.ops, 200) {
			for kind := relayFine + 1; kind < relayFaults; kind++ {
				if p.ctx.Err() != nil {
					return false
				}
				points.Add(1)
				if v := w.simulate(seed, noRelayMutant, true, at, kind); v != nil {
					w.explain(v, noRelayMutant, true, kind)
					if !p.violation(v) {
						return false
					}
				}
			}
		}
		return true
	})
	p.report.Outbox.CrashPoints = int(points.Load())
}

// findRelayMutants looks for each mutant of the outbox until one of its invariants is violated.
func (p *pool) findRelayMutants() {
	for mut := noRelayMutant + 1; mut < relayMutants; mut++ {
		began := time.Now()
		res := MutantResult{Name: relayCatalogue[mut].name}
		var mu sync.Mutex
		res.Tried = p.relays(seedsPerMutant, func(w *relayWorld, i int) bool {
			v := w.simulate(p.o.First+uint64(i), mut, false, -1, relayFine)
			if v == nil || !mut.breaks(v.Invariant) {
				return true
			}
			mu.Lock()
			defer mu.Unlock()
			if !res.Found || v.Seed < res.Seed {
				res.Found, res.Seed, res.Invariant, res.Detail = true, v.Seed, v.Invariant, v.Detail
			}
			return false
		})
		res.Elapsed = time.Since(began)
		p.report.Mutants = append(p.report.Mutants, res)
		p.o.Progress(fmt.Sprintf("mutant %q: found %v after %d seeds (%s)", res.Name, res.Found, res.Tried, res.Invariant))
	}
}
