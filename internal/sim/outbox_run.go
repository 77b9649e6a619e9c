package sim

import (
	"fmt"
	"io"
	"sync/atomic"
)

const (
	basesOfRelays      = 15
	seedsPerRelayShare = 10 // the engine's schedules for each of an outbox
)

// ReplayOutbox simulates one seed of the outbox and prints its history, and its verdict.
func ReplayOutbox(seed uint64, out io.Writer) error {
	w := newRelayWorld()
	w.tr = &trace{}
	v := w.simulate(seed, noRelayMutant, false, -1, relayFine)
	return w.tr.tell(out, seed, v)
}

// explain runs a violation's seed again, with its history written down.
func (w *relayWorld) explain(v *Violation, mut relayMutant, faultless bool, kind relayFault) {
	w.tr = &trace{}
	again := w.simulate(v.Seed, mut, faultless, v.At, kind)
	v.Trace = w.tr.evidence(v, again, -1)
	w.tr = nil
}

// relays runs jobs as parallel does, in worlds of relays.
func (p *pool) relays(n int, job func(w *relayWorld, i int) bool) int {
	return share(p, n, newRelayWorld, job, func(w *relayWorld) { p.report.Outbox.add(&w.stats) })
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

// relayCrashPoints plants one fault of each kind at every operation of schedules without random faults.
func (p *pool) relayCrashPoints() {
	var points atomic.Int64
	p.relays(basesOfRelays*p.o.CrashPoints/AllCrashPoints, func(w *relayWorld, i int) bool {
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
		p.findMutant(relayMistakes[mut].name, func(found func(seed uint64, invariant, detail string)) int {
			return p.relays(seedsPerMutant, func(w *relayWorld, i int) bool {
				v := w.simulate(p.o.First+uint64(i), mut, false, -1, relayFine)
				if v == nil || !mut.breaks(v.Invariant) {
					return true
				}
				found(v.Seed, v.Invariant, v.Detail)
				return false
			})
		})
	}
}
