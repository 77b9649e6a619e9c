package sim

import (
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// run is one call of a handler or of the probe.
type run struct {
	item   *machine.Item
	worker int
	inc    uint32
	ref    int
	key    int // -1: unprotected
	msg    int
	hold   driver.Hold
	job    machine.Job
	raw    int // the record's index

	ignores bool // its cancellation
	// cancelled: it was cancelled, so its failure is inconclusive.
	cancelled bool
	tries     bool // it was started although no run of its worker succeeds
	lost      bool // its worker knows that it has lost its claim
	kills     int  // 1 = before the effect, 2 = after it
	applies   bool // it has an effect before it fails
	result    machine.Result
	did       bool // the effect happened, was staged or collected
	over      bool
	alone     bool
	at        time.Duration // when it returns

	// The first run of a batch stands for the call: its members, in the order of their delivery and in that of their
	// effects; whether it names the culprit; queued: its effects go with the commit; cut: it was cancelled.
	members, order     []*run
	items              []*machine.Item
	names, queued, cut bool
}

// startRun calls a handler: what it will do is drawn now.
func (w *simulation) startRun(k *worker, a *machine.Action) {
	r := w.runs.next()
	rc := a.Item.Receipt.(*receipt)
	m := &w.q.msgs[rc.msg]
	*r = run{item: a.Item, worker: k.id, inc: k.inc, ref: w.runs.n - 1, key: m.key, msg: rc.msg, hold: a.Job.Hold, job: a.Job}
	if a.Job.Unprotected {
		r.key = -1
	} else {
		r.raw = rawIndex(a.Job.Hold.Key.Raw)
	}
	a.Item.Shell = r
	if w.Trace != nil {
		w.log(m.key, "worker %d calls the %s of k%d (m%d): token %d, attempt %d, unknown %v",
			k.id, map[bool]string{false: "handler", true: "probe"}[a.Job.Probe], m.key, m.id, r.hold.Token, a.Job.Attempt, a.Job.Unknown)
	}
	if a.Job.Probe {
		if w.boundary(k, r) {
			return
		}
		w.push(w.Now+w.Between(time.Millisecond, 20*time.Millisecond), evReturn, k.id, r.ref)
		r.at = w.Now
		return
	}
	w.stats.Runs++
	if r.key >= 0 {
		if !r.job.AtCommit { // else it has no durable claim
			w.keys[r.key].started = r.hold.Token
			w.keys[r.key].begun = w.keys[r.key].begun || !r.job.InTx
		}
		w.checkStart(r)
	}
	w.checkBroken(k, r)
	w.countAlone(k, r)
	k.running++
	w.planRun(r)
	if w.boundary(k, r) {
		return
	}
	d := w.Between(0, 30*time.Millisecond)
	tail := w.Between(0, 10*time.Millisecond)
	switch {
	case r.key >= 0 && w.sc.conduct[r.key] == conductLong:
		d += w.Between(0, 3*lease)
	case w.Chance(w.sc.slow):
		if d += w.Between(0, 2*lease); w.Chance(500) {
			d, tail = tail, d
		}
	}
	r.ignores = w.Chance(200)
	r.at = w.Now + d + tail
	w.push(w.Now+d, evEffect, k.id, r.ref)
	w.push(r.at, evReturn, k.id, r.ref)
}

// countAlone keeps which runs had their process to themselves (I21).
func (w *simulation) countAlone(k *worker, r *run) {
	r.alone = true
	for i := range w.runs.n {
		if o := w.runs.all[i]; o != r && o.worker == k.id && !o.over && !o.job.Probe {
			r.alone = false
			if o.alone {
				o.alone = false
				if o.key >= 0 {
					w.keys[o.key].ranAlone--
				}
			}
		}
	}
	if r.alone && r.key >= 0 {
		w.keys[r.key].ranAlone++
	}
}

// planRun draws how a run ends.
func (w *simulation) planRun(r *run) {
	r.result = machine.Result{Class: machine.OK}
	r.applies = true
	if r.key < 0 {
		return
	}
	ks := &w.keys[r.key]
	ks.runs++
	early := ks.runs <= w.sc.times[r.key]
	fail := func(c machine.Class) {
		r.result = machine.Result{Class: c, Err: errHandler}
		r.applies = w.Chance(500)
		if w.sc.effect == inTx {
			r.result.NotApplied = true
		} else if !r.applies {
			r.result.NotApplied = w.Chance(500)
		}
		if w.Chance(300) {
			r.result.HasAfter, r.result.After = true, w.Between(0, time.Second)
		}
	}
	switch w.sc.conduct[r.key] {
	case conductFailsFirst:
		if early {
			fail(machine.Failed)
		}
	case conductFails:
		fail(machine.Failed)
	case conductPermanent:
		fail(machine.Permanent)
	case conductKillsFirst:
		if early {
			r.kills = 1 + w.IntN(2)
		}
	case conductKills:
		r.kills = 1 + w.IntN(2)
	case conductDefersFirst:
		if early {
			r.applies = false
			r.result = machine.Result{Class: machine.Deferred, NotApplied: true, HasAfter: true, After: w.Between(0, time.Second), Err: errHandler}
		}
	case conductOutageFirst:
		if ks.runs <= 3*w.sc.times[r.key] {
			fail(machine.Unavailable)
		}
	case conductDrops:
		r.applies = false
		r.result = machine.Result{Class: machine.Dropped, Err: errHandler}
	}
	if r.result.Class == machine.OK {
		r.result.Value = resultOf(r.ref)
	}
}

// results are the values that runs return: different runs, different results.
var results = func() (b [1024][]byte) {
	for i := range b {
		b[i] = []byte{byte(i >> 8), byte(i)}
	}
	return b
}()

func resultOf(ref int) []byte { return results[ref%len(results)] }

// runEffect is the moment when a handler changes the world, if it gets that far.
func (w *simulation) runEffect(r *run) {
	if r.over || r.did {
		return
	}
	if r.members != nil {
		w.batchEffect(r)
		return
	}
	k := &w.workers[r.worker]
	if r.kills == 1 {
		w.kill(k, r)
		return
	}
	if r.applies {
		w.effect(r)
		if w.Broken != nil {
			return
		}
	}
	if r.kills == 2 {
		w.kill(k, r)
	}
}

func (w *simulation) kill(k *worker, r *run) {
	if w.Trace != nil {
		w.log(r.key, "the handler of k%d kills its process", r.key)
	}
	k.crash()
}

// effect applies the effect of a run to the world as the scenario has it.
func (w *simulation) effect(r *run) {
	r.did = true
	w.stats.Effects++
	if r.key < 0 {
		return
	}
	ks := &w.keys[r.key]
	switch w.sc.effect {
	case plain:
		if r.hold.Token < ks.barrier {
			w.refuse(r, "by the probe's barrier")
			return
		}
		w.happened(r.key, r.hold.Token)
	case keyed:
		id := effectID{raw: r.raw, epoch: r.hold.Epoch}
		for _, o := range ks.seen[:ks.nseen] {
			if o == id {
				return
			}
		}
		if w.sc.versions && w.surpassed(r.key) {
			return
		}
		if ks.nseen < len(ks.seen) {
			ks.seen[ks.nseen] = id
			ks.nseen++
		}
		w.happened(r.key, r.hold.Token)
	case fenced:
		e := w.entity(r.key)
		if r.hold.Token < e.fence || r.hold.Token < ks.barrier {
			w.refuse(r, "by the resource: its fence is higher")
			return
		}
		e.fence = r.hold.Token
		w.happened(r.key, r.hold.Token)
	case inTx:
		if r.job.InTx && !r.queued && !w.st.stage(w, r) {
			w.refuse(r, "because its transaction is gone")
		}
	}
}

func (w *simulation) refuse(r *run, why string) {
	if w.Trace != nil {
		w.log(r.key, "the effect of k%d with token %d is refused %s", r.key, r.hold.Token, why)
	}
	r.did = false
	r.result = machine.Result{Class: machine.Failed, NotApplied: true, Err: errRefusedBy}
	r.applies = false
}

// cancelRun ends the context of a run. It may obey, or not.
func (w *simulation) cancelRun(r *run, c machine.Cause) {
	if r.over || r.item == nil {
		return
	}
	if w.Trace != nil {
		w.log(r.key, "the run of k%d with token %d is cancelled (cause %d)", r.key, r.hold.Token, c)
	}
	r.cancelled = true
	r.lost = c == machine.CauseFenced && !r.job.InTx
	if r.ignores || r.job.Probe {
		return
	}
	at := w.Now + w.Between(0, 5*time.Millisecond)
	if at >= r.at {
		return
	}
	r.at = at
	if r.members != nil {
		r.cut = true
		w.push(at, evReturn, r.worker, r.ref)
		return
	}
	if !r.did || w.Chance(500) {
		r.result = machine.Result{Class: machine.Failed, Err: errHandler, NotApplied: w.sc.effect == inTx}
	}
	r.applies = r.applies && r.did
	w.push(at, evReturn, r.worker, r.ref)
}

// runReturn passes the end of a run to the machine.
func (w *simulation) runReturn(r *run, at time.Duration) {
	k := &w.workers[r.worker]
	if r.over || (!r.job.Probe && at < r.at) {
		return
	}
	r.over = true
	switch {
	case r.job.Probe:
		w.probe(k, r)
		return
	case r.members != nil:
		w.batchReturn(k, r)
		return
	}
	k.running--
	if !r.did && r.applies && r.result.Class == machine.OK {
		r.result = machine.Result{Class: machine.Failed, Err: errHandler}
	}
	if r.key >= 0 {
		w.keys[r.key].returned = true
	}
	if w.sc.effect == inTx && r.did && !r.job.InTx {
		r.result.Effects = r
	}
	if w.Trace != nil {
		w.log(r.key, "the run of k%d with token %d returns class %d, effect %v, certainly not applied %v", r.key, r.hold.Token, r.result.Class, r.did, r.result.NotApplied)
	}
	k.returned(r)
	if c := r.result.Class; w.mut == mutFailureUnclaimed && r.job.AtCommit && c != machine.OK && c != machine.Dropped {
		if w.failUnclaimed(r); w.Broken != nil {
			return
		}
	}
	k.step(&machine.Event{Kind: machine.Ran, Item: r.item, Result: r.result})
}

// probe asks the world. A probe that can tell also keeps older tokens out from then on.
func (w *simulation) probe(k *worker, r *run) {
	if r.kills > 0 {
		w.kill(k, r)
		return
	}
	ks := &w.keys[r.key]
	res := machine.Result{Probe: machine.ProbeUnknown}
	switch {
	case !w.sc.probeTells:
		if w.Chance(300) {
			if w.Chance(300) {
				res.Class, res.Err = machine.Unavailable, errHandler // it could not ask
			}
			break
		}
		fallthrough
	default:
		if ks.effects > 0 {
			res.Probe, res.Value = machine.ProbeApplied, resultOf(r.ref)
			ks.probed = true
		} else {
			res.Probe = machine.ProbeNotApplied
			if w.sc.probeTells {
				ks.barrier = max(ks.barrier, r.hold.Token)
			}
		}
	}
	if w.Trace != nil {
		w.log(r.key, "the probe of k%d returns %d", r.key, res.Probe)
	}
	k.step(&machine.Event{Kind: machine.Ran, Item: r.item, Result: res})
}
