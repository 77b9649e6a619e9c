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

var faultNames = []string{"crash before", "crash after", "response lost", "request lost", "stall", "request delayed", "", "outage", "clock jump", "drain", "failover"}

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

func (f *fault) draw(w *simulation) {
	*f = fault{kind: faultKind(w.IntN(int(pointKinds))), at: w.IntN(60), worker: w.IntN(maxWorkers)}
	if w.Chance(350) {
		f.kind = outage + faultKind(w.Pick(35, 25, 35, 5))
		f.when = w.Between(0, 4*lease)
		f.length = w.Between(50*time.Millisecond, 2*lease)
		f.jump = w.Between(-4*lease, 4*lease)
	}
}

// plan decides the fate of a request: the faults planted at its boundary, or the network's own mood.
func (w *simulation) plan(k *worker, r *request) {
	n, kind, hit := w.nextFault()
	if !hit {
		w.mood(r)
		return
	}
	w.faulted = true
	w.limit = max(w.limit, w.Now+settleBy)
	if w.Trace != nil {
		w.log(-1, "fault at operation %d (%d of worker %d): %v", n, r.kind, k.id, kind)
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

// nextFault counts an operation and returns the fault at it.
func (w *simulation) nextFault() (n int, f faultKind, hit bool) {
	n, hit = w.Operation()
	if hit {
		return n, faultKind(w.Fault), true
	}
	for i := range w.sc.nfaults {
		if f := &w.sc.faults[i]; f.at == n && !f.timed() {
			return n, f.kind, true
		}
	}
	return n, 0, false
}

func (w *simulation) mood(r *request) {
	if w.sc.flaky == 0 || w.Now > 6*lease || !w.Chance(w.sc.flaky) {
		return
	}
	w.faulted = true
	r.fate = fate(1 + w.IntN(int(fates)-1))
	if r.fate == lateRequest {
		w.stats.Late++
	} else {
		w.stats.Lost++
	}
}

// boundary plants a fault where a handler starts; true = its process is gone.
func (w *simulation) boundary(k *worker, r *run) bool {
	n, kind, hit := w.nextFault()
	if !hit {
		return false
	}
	w.faulted = true
	w.limit = max(w.limit, w.Now+settleBy)
	if w.Trace != nil {
		w.log(r.key, "fault at operation %d (a handler of worker %d): %v", n, k.id, kind)
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

func (w *simulation) timedFault(f *fault) {
	w.faulted = true
	w.limit = max(w.limit, w.Now+f.length+settleBy)
	if w.Trace != nil {
		w.log(-1, "fault: %v of %v, clock by %v, worker %d", f.kind, f.length, f.jump, f.worker)
	}
	switch f.kind {
	case outage:
		w.st.downUntil = max(w.st.downUntil, w.Now+f.length)
	case clockJump:
		w.jumped = true
		w.st.jump += f.jump
	case drainOne:
		if k := &w.workers[f.worker%w.sc.workers]; k.m != nil && w.Now >= k.stalledUntil {
			w.stats.Drains++
			k.step(&machine.Event{Kind: machine.Drain})
		}
	case failover:
		if f.phase++; f.phase == 1 {
			w.st.snap, w.st.snapDrawn = w.st.recs, w.st.drawn
			for i := range w.sc.faults {
				if &w.sc.faults[i] == f {
					w.push(w.Now+f.length, evFault, -1, i)
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
