package sim

import (
	"time"

	"github.com/semel-dev/semel/internal/machine"
)

// faultKind names a fault.
type faultKind uint8

// The faults at an operation's boundary come first: they are the crash points.
const (
	crashBefore faultKind = iota
	crashAfter
	loseResponse
	loseRequest
	stallHere
	delayRequest
	pointKinds // the number of the above

	outage
	clockJump
	drainOne
	failover
)

var faultNames = [...]string{"crash before", "crash after", "response lost", "request lost", "stall", "request delayed", "", "outage", "clock jump", "drain", "failover"}

func (f faultKind) String() string { return faultNames[f] }

type fault struct {
	kind   faultKind
	at     int // operation
	when   time.Duration
	length time.Duration
	worker int
	jump   time.Duration
	phase  int
}

func (f *fault) timed() bool { return f.kind > pointKinds }

func (f *fault) draw(w *world) {
	*f = fault{kind: faultKind(w.n(int(pointKinds))), at: w.n(60), worker: w.n(maxWorkers)}
	if w.chance(350) {
		f.kind = outage + faultKind(w.pick(35, 25, 35, 5))
		f.when = w.between(0, 4*lease)
		f.length = w.between(50*time.Millisecond, 2*lease)
		f.jump = w.between(-4*lease, 4*lease)
	}
}

// plan decides the fate of a request: the faults planted at its boundary, or the network's own mood.
func (w *world) plan(k *worker, r *request) {
	n := w.ops
	w.ops++
	kind, hit := w.hits(n)
	if !hit {
		w.mood(r)
		return
	}
	w.faulted = true
	w.limit = max(w.limit, w.now+settleBy)
	if w.tr != nil {
		w.tr.add(w, -1, "fault at operation %d (%d of worker %d): %v", n, r.kind, k.id, kind)
	}
	switch kind {
	case crashBefore:
		k.crash()
	case crashAfter:
		r.crash = true
	case loseResponse:
		r.fate = lostResponse
	case loseRequest:
		r.fate = lostRequest
	case stallHere:
		k.stall()
	case delayRequest:
		r.fate = lateRequest
	}
}

func (w *world) hits(n int) (faultKind, bool) {
	if n == w.at {
		return w.atKind, true
	}
	for i := range w.sc.nfaults {
		if f := &w.sc.faults[i]; f.at == n && !f.timed() {
			return f.kind, true
		}
	}
	return 0, false
}

func (w *world) mood(r *request) {
	if w.sc.flaky == 0 || w.now > 6*lease || !w.chance(w.sc.flaky) {
		return
	}
	w.faulted = true
	r.fate = fate(1 + w.n(int(fates)-1))
	if r.fate == lateRequest {
		w.stats.Late++
	} else {
		w.stats.Lost++
	}
}

// boundary plants a fault where a handler starts; true = its process is gone.
func (w *world) boundary(k *worker, r *run) bool {
	n := w.ops
	w.ops++
	kind, hit := w.hits(n)
	if !hit {
		return false
	}
	w.faulted = true
	w.limit = max(w.limit, w.now+settleBy)
	if w.tr != nil {
		w.tr.add(w, r.key, "fault at operation %d (a handler of worker %d): %v", n, k.id, kind)
	}
	switch kind {
	case crashBefore:
		k.crash()
		return true
	case crashAfter, loseResponse:
		r.kills = 2
	case loseRequest:
		r.kills = 1
	default:
		k.stall()
	}
	return false
}

func (w *world) timedFault(f *fault) {
	w.faulted = true
	w.limit = max(w.limit, w.now+f.length+settleBy)
	if w.tr != nil {
		w.tr.add(w, -1, "fault: %v of %v, clock by %v, worker %d", f.kind, f.length, f.jump, f.worker)
	}
	switch f.kind {
	case outage:
		w.st.downUntil = max(w.st.downUntil, w.now+f.length)
	case clockJump:
		w.jumped = true
		w.st.jump += f.jump
	case drainOne:
		if k := &w.workers[f.worker%w.sc.workers]; k.m != nil && w.now >= k.stalledUntil {
			w.stats.Drains++
			k.step(&machine.Event{Kind: machine.Drain})
		}
	case failover:
		if f.phase++; f.phase == 1 {
			w.st.snap, w.st.snapDrawn = w.st.recs, w.st.drawn
			for i := range w.sc.faults {
				if &w.sc.faults[i] == f {
					w.push(w.now+f.length, evFault, -1, i)
				}
			}
			return
		}
		w.failedOver = true
		w.st.recs, w.st.drawn = w.st.snap, w.st.snapDrawn
		for i := range w.st.held {
			w.st.held[i] = 0
			w.st.version[i]++
		}
		for i := range w.st.ntx {
			w.st.txs[i].open = false
		}
	}
}
