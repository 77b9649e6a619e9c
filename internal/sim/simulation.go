package sim

import (
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/internal/virtual"
)

// simulation is one of the engine. It is reused for the next seed, so that a seed costs few allocations.
type simulation struct {
	virtual.World
	events virtual.Events[event]
	mut    mutant
	sc     scenario
	limit  time.Duration // I17: settled by then

	workers [maxWorkers]worker
	reqs    slab[request]
	runs    slab[run]
	rcpts   slab[receipt]
	nonces  uint64

	st      store
	q       queue
	keys    [maxKeys]keyState
	claimer int // the worker whose claim is being decided
	tasks   []task
	flying  int // deliveries on their way to a worker
	pending int // sends, operators' tasks and late requests still to come

	faulted                    bool // the environment lost, delayed or killed something
	jumped, failedOver, forced bool
	wave                       int

	stats Stats
}

// Stats counts what happened in simulations.
type Stats struct {
	Messages, Deliveries, Events, Runs, Effects, Crashes, Stalls, Drains, Lost, Late, Takeovers, DeadLetters int64
	Operations                                                                                               int64
	// Hits counts claims that workers' caches replayed.
	Hits int64
	// Outages counts breakers that opened.
	Outages int64
	// Refused counts commits that the database refused for the effects of one message.
	Refused int64
	// Inserted counts records that were claimed at their commit.
	Inserted int64
	// Expired counts records that became EXPIRED.
	Expired int64
}

// slab hands out values by pointer and takes them all back at once. A value keeps its slices for its next use.
type slab[T any] struct {
	all []*T
	n   int
}

func (s *slab[T]) next() *T {
	if s.n == len(s.all) {
		s.all = append(s.all, new(T))
	}
	s.n++
	return s.all[s.n-1]
}

type eventKind uint8

const (
	evWake eventKind = iota
	evApply
	evResponse
	evEffect
	evReturn
	evBoot
	evSend
	evAction
	evFault
	evEndTx
	evSweep
)

type event struct {
	inc    uint32 // the worker's incarnation
	ref    int32
	kind   eventKind
	worker int8
}

func (w *simulation) push(at time.Duration, kind eventKind, worker int, ref int) {
	e := event{kind: kind, worker: int8(worker), ref: int32(ref)}
	if worker >= 0 {
		e.inc = w.workers[worker].inc
	}
	w.events.Add(max(at, w.Now), e)
}

func newSimulation() *simulation {
	w := &simulation{}
	for i := range w.workers {
		w.workers[i].w = w
		w.workers[i].id = i
	}
	return w
}

// log writes a line of the history of a key. Callers check Trace first, so that nothing is formatted without one.
func (w *simulation) log(key int, format string, args ...any) { w.Log(w.base(key), format, args...) }

// fail records a violation in the history of a key.
func (w *simulation) fail(invariant string, key int, format string, args ...any) {
	w.Fail(invariant, w.base(key), format, args...)
}

func (w *simulation) nonce() (n driver.Nonce) {
	w.nonces++
	x, r := w.nonces, w.Uint64()
	for i := range 8 {
		n[i] = byte(x >> (8 * i))
		n[8+i] = byte(r >> (8 * i))
	}
	return n
}

// Simulate is virtual.Simulator's.
func (w *simulation) Simulate(s virtual.Schedule, t *virtual.Trace) (int, *virtual.Violation) {
	w.reset(s, t)
	w.sc.draw(w)
	w.bias()
	w.begin()
	n := 0
	for w.Broken == nil {
		if w.events.Len() == 0 {
			if !w.settledAll() {
				w.fail("I17", -1, "nothing can happen anymore, and work is left")
			}
			break
		}
		at, e := w.events.Next()
		w.Now = max(w.Now, at)
		w.stats.Events++
		if n++; n > maxEvents {
			w.fail("I17", w.stuckKey(), "%d events and no end: something spins", n)
		}
		w.handle(at, &e)
		if w.Now > w.limit {
			w.fail("I17", w.stuckKey(), "not settled %v after the last fault", settleBy)
		}
		if w.pending == 0 && w.q.live == 0 && w.settledAll() {
			w.finalChecks()
			if w.Broken != nil || w.wave == w.sc.waves() {
				break
			}
			w.nextWave()
		}
	}
	w.stats.Messages += int64(len(w.q.msgs))
	w.stats.Operations += int64(w.Operations)
	return w.Operations, w.Broken
}

func (w *simulation) reset(s virtual.Schedule, t *virtual.Trace) {
	w.Begin(s, 0x5e3e1, t)
	w.events.Reset()
	w.mut, w.limit = mutant(s.Mistake), settleBy
	w.reqs.n, w.runs.n, w.rcpts.n, w.nonces = 0, 0, 0, 0
	w.st.reset()
	w.q.reset()
	for i := range w.keys {
		w.keys[i].reset()
	}
	w.tasks = w.tasks[:0]
	for i := range w.workers {
		k := &w.workers[i]
		k.inc, k.m, k.deployed, k.wakeAt, k.stalledUntil, k.running = 0, nil, false, 0, 0, 0
	}
	w.pending, w.flying, w.wave = 0, 0, 0
	w.faulted, w.jumped, w.failedOver, w.forced = s.At >= 0, false, false, false
}

func (w *simulation) begin() {
	for i := range w.sc.workers {
		w.workers[i].boot()
	}
	for i := range w.sc.specs {
		s := &w.sc.specs[i]
		w.pending++
		w.push(s.at, evSend, -1, i)
	}
	for range w.sc.people {
		w.pending++
		w.push(w.Between(lease/2, 12*lease), evAction, -1, -1)
	}
	for i := range w.sc.nfaults {
		if f := &w.sc.faults[i]; f.timed() {
			w.limit = max(w.limit, f.when+f.length+settleBy)
			w.push(f.when, evFault, -1, i)
		}
	}
	if w.sc.wave2 || w.mut == mutPurgeEarly {
		for i := range 4 {
			w.push(time.Duration(i+1)*2*time.Second, evSweep, -1, 0)
		}
	}
}

func (w *simulation) handle(at time.Duration, e *event) {
	if e.worker >= 0 {
		wk := &w.workers[e.worker]
		if wk.inc != e.inc && e.kind != evApply {
			if e.kind == evResponse {
				w.dropResponse(w.reqs.all[e.ref])
			}
			return
		}
		if e.kind != evApply && e.kind != evBoot && w.Now < wk.stalledUntil {
			w.events.Add(wk.stalledUntil, *e)
			return
		}
	}
	switch e.kind {
	case evWake:
		w.workers[e.worker].wake(at)
	case evApply:
		w.apply(w.reqs.all[e.ref], at)
	case evResponse:
		w.workers[e.worker].respond(w.reqs.all[e.ref])
	case evEffect:
		w.runEffect(w.runs.all[e.ref])
	case evReturn:
		w.runReturn(w.runs.all[e.ref], at)
	case evBoot:
		w.workers[e.worker].boot()
	case evSend:
		w.pending--
		w.q.send(w, &w.sc.specs[e.ref])
	case evAction:
		w.operatorStep(int(e.ref))
	case evFault:
		w.timedFault(&w.sc.faults[e.ref])
	case evEndTx:
		w.st.endTx(w.st.txs[e.ref], e.inc)
	case evSweep:
		w.st.sweep(w)
	}
}

// dropResponse handles a response whose worker is gone.
func (w *simulation) dropResponse(r *request) {
	switch {
	case r.kind == machine.ActionBegin && r.tx >= 0:
		w.dropTx(r)
	case r.kind == machine.ActionReceive:
		w.flying -= len(r.arrivals)
	}
}

// settledAll reports that no worker has anything in flight and none is about to.
func (w *simulation) settledAll() bool {
	if w.pending > 0 || w.q.live > 0 || w.flying > 0 {
		return false
	}
	for i := range w.sc.workers {
		if wk := &w.workers[i]; wk.m != nil && wk.m.InFlight() > 0 {
			return false
		}
	}
	return true
}

func (w *simulation) stuckKey() int {
	for i := range w.q.msgs {
		if m := &w.q.msgs[i]; !m.gone {
			return m.key
		}
	}
	return -1
}
