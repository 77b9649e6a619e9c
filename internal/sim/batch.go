package sim

import (
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// This file models batch handlers: one call for all members of a transaction. Each member does what it would do alone,
// one after the other; the call fails when one of them does, and says which one, or not.

// startBatch calls a batch handler: what it will do is drawn now.
func (w *simulation) startBatch(k *worker, a *machine.Action) {
	var first *run
	d := time.Duration(0)
	for _, it := range a.Items {
		r := w.runs.next()
		rc := it.Receipt.(*receipt)
		m := &w.q.msgs[rc.msg]
		job := a.Job
		job.Hold, job.Attempt, job.Unknown = it.Hold(), it.Attempt(), it.Unknown()
		*r = run{item: it, worker: k.id, inc: k.inc, ref: w.runs.n - 1, key: m.key, msg: rc.msg, hold: job.Hold, job: job,
			raw: rawIndex(job.Hold.Key.Raw), members: r.members[:0], queued: w.sc.queued}
		if first == nil {
			first = r
			it.Shell = r
		}
		first.members = append(first.members, r)
		if w.Trace != nil {
			w.log(m.key, "worker %d calls the handler of k%d (m%d) in a batch of %d: token %d, attempt %d, unknown %v",
				k.id, m.key, m.id, len(a.Items), r.hold.Token, job.Attempt, job.Unknown)
		}
		w.stats.Runs++
		w.keys[r.key].started = r.hold.Token
		w.countAlone(k, r)
		w.planRun(r)
		if w.sc.conduct[r.key] == conductLong {
			d += w.Between(0, 2*lease)
		}
		d += w.Between(0, 10*time.Millisecond)
	}
	k.running++
	first.items, first.names = a.Items, w.Chance(300)
	if w.boundary(k, first) {
		return
	}
	if w.Chance(w.sc.slow) {
		d += w.Between(0, 2*lease)
	}
	first.ignores = w.Chance(200)
	first.at = w.Now + d + w.Between(0, 10*time.Millisecond)
	w.push(w.Now+d, evEffect, k.id, first.ref)
	w.push(first.at, evReturn, k.id, first.ref)
}

// batchEffect is the moment when a batch handler changes the world, member by member.
func (w *simulation) batchEffect(r *run) {
	k := &w.workers[r.worker]
	members := r.members
	if w.mut == mutHalvesByKey && k.halving[r.job.Lane] {
		members = slices.SortedStableFunc(slices.Values(members), func(a, b *run) int { return a.key - b.key })
	}
	r.did = true
	r.order = append(r.order[:0], members...)
	for _, m := range members {
		if m.kills == 1 {
			w.kill(k, r)
			return
		}
		if m.applies {
			if w.effect(m); w.Broken != nil {
				return
			}
		}
		if m.kills == 2 {
			w.kill(k, r)
			return
		}
		if m.fails() && !r.names {
			return
		}
	}
}

func (r *run) fails() bool { return r.result.Class != machine.OK && r.result.Class != machine.Dropped }

// batchReturn passes the end of a batch to the machine.
func (w *simulation) batchReturn(k *worker, r *run) {
	k.running--
	ev := machine.Event{Kind: machine.Ran, Item: r.item, Items: r.items}
	results := make([]machine.Result, len(r.members))
	failed := r.cut
	for i, m := range r.members {
		m.over = true
		if !m.did && m.applies && m.result.Class == machine.OK && !failed {
			m.result = machine.Result{Class: machine.Failed, Err: errHandler, NotApplied: true} // its transaction is gone
		}
		results[i] = m.result
		if m.fails() && !failed {
			failed, ev.Result = true, m.result
		}
	}
	switch {
	case r.cut:
		ev.Result = machine.Result{Class: machine.Failed, Err: errHandler, NotApplied: true}
	case !failed:
		ev.Results = results
		if r.queued {
			ev.Result.Effects = r
		}
	case r.names:
		ev.Results = results
	}
	alone := len(r.members) == 1
	for _, m := range r.members {
		if alone || !failed || (r.names && m.fails()) || ev.Result.Class == machine.Deferred || ev.Result.Class == machine.Unavailable {
			w.keys[m.key].returned = true
		}
	}
	k.halving[r.job.Lane] = failed && ev.Results == nil && !alone
	if w.Trace != nil {
		for _, m := range r.members {
			w.log(m.key, "the batch of k%d with token %d returns: class %d of its own, effect %v; the batch failed %v, names %v",
				m.key, m.hold.Token, m.result.Class, m.did, failed, r.names)
		}
	}
	k.step(&ev)
}

// sharedEffects is the batch whose queued effects travel in the first work; nil when there is none.
func sharedEffects(works []driver.Work) *run {
	if len(works) == 0 {
		return nil
	}
	if r, ok := works[0].Effects.(*run); ok && len(r.members) > 0 {
		return r
	}
	return nil
}

// shareHappens applies the queued effects of a batch, in the order in which they were queued.
func (w *simulation) shareHappens(r *run) {
	for _, m := range r.order {
		switch {
		case w.Broken != nil:
			return
		case m.did:
			w.happened(m.key, m.hold.Token)
		case m.result.Class == machine.Dropped:
			w.keys[m.key].terminal = true // by the same commit: it does not hold its group up
		}
	}
}
