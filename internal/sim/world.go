package sim

import (
	"math/rand/v2"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// world is one simulation. It is reused for the next seed, so that a seed costs few allocations.
type world struct {
	seed      uint64
	pcg       rand.PCG
	rng       *rand.Rand
	mut       mutant
	sc        scenario
	faultless bool

	now   time.Duration
	heap  []event
	seq   uint32
	limit time.Duration // I17: settled by then

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

	ops                        int // operations so far: the boundaries of crash points
	at                         int // the boundary of the planted fault; -1 = none
	atKind                     faultKind
	faulted                    bool // the environment lost, delayed or killed something
	jumped, failedOver, forced bool
	wave                       int

	vio   *Violation
	tr    *trace
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
	at     time.Duration
	seq    uint32
	inc    uint32 // the worker's incarnation
	ref    int32
	kind   eventKind
	worker int8
}

func (e *event) before(f *event) bool { return e.at < f.at || (e.at == f.at && e.seq < f.seq) }

func (w *world) push(at time.Duration, kind eventKind, worker int, ref int) {
	e := event{at: max(at, w.now), seq: w.seq, kind: kind, worker: int8(worker), ref: int32(ref)}
	if worker >= 0 {
		e.inc = w.workers[worker].inc
	}
	w.pushEvent(e)
}

func (w *world) pushEvent(e event) {
	e.seq = w.seq
	w.seq++
	h := append(w.heap, e)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !e.before(&h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = e
	w.heap = h
}

func (w *world) pop() event {
	h := w.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	w.heap = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&last) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = last
	return top
}

func newWorld() *world {
	w := &world{}
	w.rng = rand.New(&w.pcg)
	for i := range w.workers {
		w.workers[i].world = w
		w.workers[i].id = i
	}
	return w
}

func (w *world) n(n int) int { return w.rng.IntN(n) }

// chance is true with a probability of perMille / 1000.
func (w *world) chance(perMille int) bool { return w.rng.IntN(1000) < perMille }

// pick draws an index by weight.
func (w *world) pick(weights ...int) int {
	sum := 0
	for _, x := range weights {
		sum += x
	}
	r := w.rng.IntN(sum)
	for i, x := range weights {
		if r -= x; r < 0 {
			return i
		}
	}
	return 0
}

func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(b-a)+1))
}

func (w *world) nonce() (n driver.Nonce) {
	w.nonces++
	x, r := w.nonces, w.rng.Uint64()
	for i := range 8 {
		n[i] = byte(x >> (8 * i))
		n[8+i] = byte(r >> (8 * i))
	}
	return n
}

// simulate runs one seed to its end. at is the boundary of a planted crash point, -1 for none. faultless leaves the
// drawn faults out.
func (w *world) simulate(seed uint64, mut mutant, faultless bool, at int, kind faultKind) *Violation {
	w.reset(seed, mut, faultless, at, kind)
	w.sc.draw(w, faultless)
	w.bias()
	w.begin()
	n := 0
	for w.vio == nil {
		if len(w.heap) == 0 {
			if !w.settledAll() {
				w.fail("I17", -1, "nothing can happen anymore, and work is left")
			}
			break
		}
		e := w.pop()
		w.now = max(w.now, e.at)
		w.stats.Events++
		if n++; n > maxEvents {
			w.fail("I17", w.stuckKey(), "%d events and no end: something spins", n)
		}
		w.handle(&e)
		if w.now > w.limit {
			w.fail("I17", w.stuckKey(), "not settled %v after the last fault", settleBy)
		}
		if w.pending == 0 && w.q.live == 0 && w.settledAll() {
			w.finalChecks()
			if w.vio != nil || w.wave == w.sc.waves() {
				break
			}
			w.nextWave()
		}
	}
	w.stats.Messages += int64(len(w.q.msgs))
	w.stats.Operations += int64(w.ops)
	return w.vio
}

func (w *world) reset(seed uint64, mut mutant, faultless bool, at int, kind faultKind) {
	w.seed, w.mut, w.faultless, w.at, w.atKind = seed, mut, faultless, at, kind
	w.pcg.Seed(seed, 0x5e3e1)
	w.now, w.heap, w.seq, w.limit = 0, w.heap[:0], 0, settleBy
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
	w.pending, w.flying, w.ops, w.wave = 0, 0, 0, 0
	w.faulted, w.jumped, w.failedOver, w.forced = at >= 0, false, false, false
	w.vio = nil
}

func (w *world) begin() {
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
		w.push(w.between(lease/2, 12*lease), evAction, -1, -1)
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

func (w *world) handle(e *event) {
	if e.worker >= 0 {
		wk := &w.workers[e.worker]
		if wk.inc != e.inc && e.kind != evApply {
			if e.kind == evResponse {
				w.dropResponse(w.reqs.all[e.ref])
			}
			return
		}
		if e.kind != evApply && e.kind != evBoot && w.now < wk.stalledUntil {
			f := *e
			f.at = wk.stalledUntil
			w.pushEvent(f)
			return
		}
	}
	switch e.kind {
	case evWake:
		w.workers[e.worker].wake(e.at)
	case evApply:
		w.apply(w.reqs.all[e.ref], e.at)
	case evResponse:
		w.workers[e.worker].respond(w.reqs.all[e.ref])
	case evEffect:
		w.runEffect(w.runs.all[e.ref])
	case evReturn:
		w.runReturn(w.runs.all[e.ref], e.at)
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
func (w *world) dropResponse(r *request) {
	switch {
	case r.kind == machine.ActionBegin && r.tx >= 0:
		w.dropTx(r)
	case r.kind == machine.ActionReceive:
		w.flying -= len(r.arrivals)
	}
}

// settledAll reports that no worker has anything in flight and none is about to.
func (w *world) settledAll() bool {
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

func (w *world) stuckKey() int {
	for i := range w.q.msgs {
		if m := &w.q.msgs[i]; !m.gone {
			return m.key
		}
	}
	return -1
}
