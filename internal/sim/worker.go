package sim

import (
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// worker is the shell around one machine: what package semel does with goroutines, with events.
type worker struct {
	w            *simulation
	id           int
	m            *machine.Machine
	inc          uint32 // incarnation: events of an earlier one are void
	bootAt       time.Duration
	stalledUntil time.Duration
	wakeAt       time.Duration // of the one wake-up that counts
	deployed     bool
	running      int
	actions      []machine.Action
	shut         bool   // its breaker is open
	broken              // what it knows of its deployment
	open         [2]int // the transaction of each lane; -1 = none
	stand
	halving [2]bool // the lane's latest batch failed with an unknown culprit
}

var (
	errTimeout   = errors.New("timed out")
	errRefused   = errors.New("connection refused")
	errNoKey     = errors.New("no key")
	errRefusedBy = errors.New("refused by the database")
	errHandler   = errors.New("handler failed")
)

// request is one operation on its way to the model and back.
type request struct {
	ref    int
	kind   machine.ActionKind
	worker int
	inc    uint32
	lane   int
	max    int
	sent   time.Duration
	items  []*machine.Item

	claims   []driver.Claim
	works    []driver.Work
	sets     []driver.Settlement
	acks     []driver.Settlement // of works, as they were when they were sent
	holds    []driver.Hold
	receipts []any
	tx       int

	arrivals []machine.Arrival
	grants   []driver.Grant
	outcomes []driver.Outcome
	err      error

	fate    fate
	late    bool // applied after it failed for its sender
	waiting bool // a receive that found nothing, or a write that waits for a row
	due     time.Duration
	until   time.Duration // a wait ends
	crash   bool          // its worker dies when it has been applied
	slow    time.Duration
}

// fate is what the network does with a request.
type fate uint8

const (
	fine fate = iota
	lostRequest
	lostResponse
	lateRequest
	partialResponse
	refusedWrite // certainly not committed: a deadlock, say
	fates
)

func (k *worker) boot() {
	w := k.w
	k.inc++
	k.bootAt = w.Now - time.Second
	k.stalledUntil, k.wakeAt, k.running, k.shut = 0, 0, 0, false
	k.open, k.halving, k.broken = [2]int{-1, -1}, [2]bool{}, broken{}
	k.openCache()
	cfg := w.sc.cfg
	cfg.Takeover, cfg.Probes = w.sc.takeover[k.id], w.sc.probes[k.id]
	if k.deployed {
		cfg.Takeover, cfg.Probes = w.sc.deploy, w.sc.deploy == driver.Probe
	}
	cfg.Nonce = w.nonce
	k.m = machine.New(cfg)
	if w.Trace != nil {
		w.log(-1, "worker %d starts: mode %v, policy %v, concurrency %d, batch %d", k.id, cfg.Mode, cfg.Takeover, cfg.Concurrency, cfg.Batch)
	}
	k.step(&machine.Event{Kind: machine.Wake})
}

// clock is the worker's own monotonic clock.
func (k *worker) clock() time.Duration { return k.w.Now - k.bootAt }

// global turns a reading of the worker's clock into the world's.
func (k *worker) global(t time.Duration) time.Duration { return t + k.bootAt }

func (k *worker) wake(at time.Duration) {
	if k.m == nil || at < k.wakeAt {
		return
	}
	k.wakeAt = 0
	k.step(&machine.Event{Kind: machine.Wake})
}

func (k *worker) step(ev *machine.Event) {
	w, inc := k.w, k.inc
	k.actions = k.m.Step(k.clock(), ev, k.actions[:0])
	for i := range k.actions {
		k.perform(&k.actions[i])
		if k.inc != inc || w.Broken != nil {
			return // it died on the way
		}
	}
	if open := k.m.Open(); open != k.shut {
		if k.shut = open; open {
			w.stats.Outages++
		}
	}
	next := k.m.Next()
	if next > 1<<60 {
		return
	}
	if next = k.global(next); k.wakeAt == 0 || next < k.wakeAt {
		k.wakeAt = next
		w.push(next, evWake, k.id, 0)
	}
}

func (k *worker) perform(a *machine.Action) {
	w := k.w
	switch a.Kind {
	case machine.ActionRun:
		if a.Items != nil {
			w.startBatch(k, a)
		} else {
			w.startRun(k, a)
		}
	case machine.ActionCancel:
		if r, ok := a.Item.Shell.(*run); ok {
			w.cancelRun(r, a.Cause)
		}
	case machine.ActionStop:
		k.stop(a.Stuck)
	case machine.ActionTrace, machine.ActionRenewed:
	default:
		k.send(a)
	}
}

// stop ends a worker that drained. It starts again with the next deployment.
func (k *worker) stop(stuck int) {
	w := k.w
	if w.Trace != nil {
		w.log(-1, "worker %d stops, %d handlers stuck", k.id, stuck)
	}
	if stuck == 0 {
		w.checkCounts(k)
	}
	k.die()
	k.deployed = true
	w.push(w.Now+w.Between(10*time.Millisecond, time.Second), evBoot, k.id, 0)
}

// die takes everything that is in the worker's memory away. What it sent may still arrive.
func (k *worker) die() {
	w := k.w
	k.inc++
	k.m = nil
	for i := range w.keys {
		ks := &w.keys[i]
		if ks.grantedTo == k.id && ks.granted > ks.started && w.Now-ks.grantedAt <= 15*time.Millisecond {
			ks.brushed = true
		}
	}
	for i := range w.runs.n {
		if r := w.runs.all[i]; r.worker == k.id && !r.over {
			r.over = true
		}
	}
	k.running = 0
	w.q.disconnect(w, k)
	for _, t := range k.open {
		if t >= 0 {
			w.closeTx(t, 50*time.Millisecond)
		}
	}
}

func (k *worker) crash() {
	w := k.w
	if k.m == nil {
		return
	}
	w.stats.Crashes++
	if w.Trace != nil {
		w.log(-1, "worker %d is killed", k.id)
	}
	k.die()
	w.push(w.Now+w.Between(time.Millisecond, lease), evBoot, k.id, 0)
}

func (k *worker) stall() {
	w := k.w
	w.stats.Stalls++
	k.stalledUntil = w.Now + w.Between(lease, 3*lease)
	w.push(k.stalledUntil, evWake, k.id, 0)
	w.q.disconnect(w, k) // it sends no heartbeats
	if w.Trace != nil {
		w.log(-1, "worker %d is stopped until %v", k.id, k.stalledUntil)
	}
}

// send puts an action on its way.
func (k *worker) send(a *machine.Action) {
	w := k.w
	r := w.reqs.next()
	r.ref = w.reqs.n - 1
	r.kind, r.worker, r.inc, r.lane, r.max, r.sent = a.Kind, k.id, k.inc, a.Lane, a.Max, k.clock()
	r.items, r.claims, r.works, r.sets, r.holds, r.receipts = a.Items, a.Claims, a.Works, a.Settlements, a.Holds, a.Receipts
	r.acks, r.arrivals, r.grants, r.outcomes, r.err = r.acks[:0], r.arrivals[:0], r.grants[:0], r.outcomes[:0], nil
	r.fate, r.late, r.waiting, r.crash, r.slow, r.until = fine, false, false, false, 0, 0
	r.tx = -1
	if a.Kind == machine.ActionCommit || a.Kind == machine.ActionRollback {
		r.tx = k.open[a.Lane]
	}
	for i := range r.works {
		if ack := r.works[i].Ack; ack != nil {
			r.acks = append(r.acks, *ack)
		} else {
			r.acks = append(r.acks, driver.Settlement{})
		}
	}
	w.checkProlong(k, r)
	ref := w.reqs.n - 1
	w.plan(k, r)
	if k.inc != r.inc {
		return // killed before it was sent
	}
	out, back := w.latency(), w.latency()
	r.slow = back
	if r.kind == machine.ActionReceive {
		// Receives are not lost: a receive that fails hands nothing out.
		r.due = w.Now + out
		r.until = w.Now + 20*time.Second
		w.push(r.due, evApply, k.id, ref)
		return
	}
	timeout := w.Now + lease/3
	switch r.fate {
	case lostRequest:
		r.err = errTimeout
		w.push(timeout, evResponse, k.id, ref)
		if r.kind == machine.ActionCommit || r.kind == machine.ActionRollback {
			w.dropTx(r)
		}
		return
	case lateRequest:
		r.err, r.late = errTimeout, true
		w.pending++
		w.push(timeout, evResponse, k.id, ref)
		r.due = timeout + w.Between(0, 3*lease)
		w.push(r.due, evApply, k.id, ref)
		return
	case lostResponse:
		r.err, r.late = errTimeout, true
		w.pending++
		w.push(timeout, evResponse, k.id, ref)
	}
	r.due = w.Now + out
	w.push(r.due, evApply, k.id, ref)
}

// latency is how long one way takes.
func (w *simulation) latency() time.Duration {
	return time.Duration(1+w.IntN(4000)) * time.Microsecond
}

// dropTx: the end of this transaction does not reach the server. It rolls back when the connection closes.
func (w *simulation) dropTx(r *request) {
	if r.tx >= 0 {
		w.closeTx(r.tx, lease/2)
	}
}

// closeTx has the server notice that the connection of a transaction is gone.
func (w *simulation) closeTx(t int, within time.Duration) {
	w.events.Add(w.Now+w.Between(time.Millisecond, within), event{kind: evEndTx, worker: -1, ref: int32(t), inc: w.st.txs[t].gen})
}

// apply lets a request reach the model.
func (w *simulation) apply(r *request, at time.Duration) {
	if at != r.due {
		return
	}
	k := &w.workers[r.worker]
	alive := k.inc == r.inc
	switch r.kind {
	case machine.ActionReceive:
		if !alive {
			return
		}
		if !w.q.receive(w, k, r) {
			return // waits
		}
	case machine.ActionSettle:
		w.q.settleAll(w, r)
	case machine.ActionProlong:
		w.q.prolong(w, r)
	default:
		if w.sc.nfaults > 0 && w.storeDown() {
			r.err = errRefused
			if r.kind == machine.ActionCommit || r.kind == machine.ActionRollback {
				w.dropTx(r)
			}
		} else if r.fate == refusedWrite && r.kind != machine.ActionRollback && r.kind != machine.ActionCommit {
			r.err = errSerialization
		} else if !w.st.apply(w, r) {
			return // waits for a row
		}
	}
	r.due = -1
	if w.Broken != nil {
		return
	}
	if r.kind == machine.ActionBegin && r.tx >= 0 && (r.late || r.crash || !alive) {
		w.dropTx(r) // it is not used
	}
	if r.late {
		w.pending--
		return // the sender has its response already, or is gone
	}
	if r.crash && alive {
		if r.kind == machine.ActionReceive {
			w.flying -= len(r.arrivals)
		}
		k.crash()
		return
	}
	if alive {
		w.push(w.Now+r.slow, evResponse, k.id, w.refOf(r))
	}
}

func (w *simulation) refOf(r *request) int { return r.ref }

// respond passes the response to the machine.
func (k *worker) respond(r *request) {
	w := k.w
	ev := machine.Event{Lane: r.lane, Items: r.items, Sent: r.sent, Err: r.err}
	grants, outcomes := r.grants, r.outcomes
	if r.late {
		grants, outcomes = nil, nil
	}
	switch r.kind {
	case machine.ActionReceive:
		ev.Kind, ev.Arrivals, ev.Items, ev.Sent = machine.Received, r.arrivals, nil, k.clock()
		w.stats.Deliveries += int64(len(r.arrivals))
		w.flying -= len(r.arrivals)
	case machine.ActionClaim:
		ev.Kind, ev.Grants = machine.Claimed, grants
		if r.err == nil {
			w.believe(k, r)
		}
	case machine.ActionFinish:
		ev.Kind, ev.Outcomes = machine.Finished, outcomes
		if w.mut == mutReleaseNoResponse && r.err != nil {
			w.releaseNoResponse(r)
		}
	case machine.ActionSettle:
		ev.Kind, ev.Outcomes = machine.Settled, outcomes
	case machine.ActionExtend:
		ev.Kind, ev.Outcomes = machine.Extended, outcomes
		if r.err == nil {
			w.believeOn(k, r)
		}
	case machine.ActionProlong:
		ev.Kind, ev.Outcomes = machine.Prolonged, outcomes
	case machine.ActionBegin:
		ev.Kind, ev.Grants = machine.Begun, grants
		if r.err == nil && !r.late {
			k.open[r.lane] = r.tx
		}
	case machine.ActionCommit:
		ev.Kind = machine.Committed
		k.open[r.lane] = -1
	case machine.ActionRollback:
		ev.Kind = machine.RolledBack
		k.open[r.lane] = -1
	}
	if w.mut == mutAckBusy {
		for i := range ev.Grants {
			g := &ev.Grants[i]
			r.items[i].Receipt.(*receipt).busy = g.Verdict == driver.Busy
		}
	}
	if w.Trace != nil && ev.Err != nil {
		w.log(-1, "worker %d: %s of %d returns: %v", k.id, actionNames[r.kind], len(r.items), ev.Err)
	}
	k.step(&ev)
}

var actionNames = [...]string{
	machine.ActionReceive: "receive", machine.ActionClaim: "claim", machine.ActionRun: "run", machine.ActionCancel: "cancel",
	machine.ActionFinish: "finish", machine.ActionSettle: "settle", machine.ActionExtend: "extend", machine.ActionProlong: "prolong",
	machine.ActionBegin: "begin", machine.ActionCommit: "commit", machine.ActionRollback: "roll back", machine.ActionTrace: "trace",
	machine.ActionStop: "stop",
}
