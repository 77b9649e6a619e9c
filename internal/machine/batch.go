package machine

import (
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is mode C's batch handler (protocol section 5): one call gets all members of a transaction, and they commit
// together. If it fails without naming a culprit, the batch is halved by order of delivery until the culprit is alone. That
// takes log2(batch) transactions and no savepoint. Members of an ordered group may be in one batch, in their order. If one
// does not run, those behind it do not run either (law 13).

// ---- halving -------------------------------------------------------------------------------------------------------

// half bounds the next batch while a culprit is looked for. It is among the first t.tainted of the queue. One half of them
// runs: if that succeeds, the culprit is in the other. The last one runs alone, so that its failure is its own. The number
// may be off by items that left the queue meanwhile, which costs one transaction.
func (t *txLane) half(most int) int {
	if t.tainted == 0 {
		return most
	}
	return min(most, max(t.tainted/2, 1))
}

// taint records that a batch failed with an unknown culprit.
func (m *Machine) taint(t *txLane, err error) {
	t.tainted = len(t.items)
	m.observe(TraceEvent{Kind: TraceTrouble, Err: fmt.Errorf("look for the culprit in halves: %w", err)})
}

// ---- run -----------------------------------------------------------------------------------------------------------

// startBatch calls the handler with all members. The deadlines of the first are the call's.
func (m *Machine) startBatch(lane int) {
	t := &m.lanes[lane].tx
	t.at = len(t.items)
	for i, it := range t.items {
		it.refs++
		if i == 0 {
			m.startInTx(it)
		} else {
			m.traceStart(it)
		}
	}
	m.do(Action{Kind: ActionRun, Lane: lane, Item: t.items[0], Items: t.items, Job: m.txJob(t.items[0])})
}

// ranBatch decides what becomes of a batch: all are committed together, or all are rolled back and the culprits set aside.
func (m *Machine) ranBatch(ev *Event) {
	first := ev.Item
	lane := first.lane
	t := &m.lanes[lane].tx
	took := m.now - first.startedAt
	m.took(took / time.Duration(len(t.items)))
	first.startedAt = 0
	m.countRun(first, worst(ev))
	for i, it := range t.items {
		if i > 0 {
			it.refs-- // the first one's was counted already
		}
		m.runEnded(it, m.resultIn(ev, i).Err, took)
	}
	switch r := &ev.Result; {
	case len(ev.Results) == len(t.items):
		if m.failMembers(t, ev.Results) {
			break
		}
		for i, it := range t.items {
			m.succeededInTx(it, &ev.Results[i])
		}
		first.work.Effects = r.Effects
		m.runInTx(lane)
		return
	case r.Class == Transient:
		m.repeatTx(lane, r)
		return
	case first.cancelled == CauseDraining && !first.ownTx():
		// Not a failure: all of them are returned.
	case r.Class == Deferred || r.Class == Unavailable || len(t.items) == 1:
		// No attempt is spent, so the result may stand for all: do not call a busy downstream again and again to find the one
		// that it was for.
		t.tainted = 0
		for _, it := range t.items {
			m.failInTx(it, r)
		}
	default:
		m.taint(t, fmt.Errorf("batch of %d failed: %w", len(t.items), r.Err))
	}
	m.rollback(lane)
}

// worst is the result that the breaker counts: Unavailable if any member's is.
func worst(ev *Event) *Result {
	for i := range ev.Results {
		if ev.Results[i].Class == Unavailable {
			return &ev.Results[i]
		}
	}
	return &ev.Result
}

func (m *Machine) resultIn(ev *Event, i int) *Result {
	if i < len(ev.Results) {
		return &ev.Results[i]
	}
	return &ev.Result
}

// failMembers sets the members aside whose results are failures.
func (m *Machine) failMembers(t *txLane, results []Result) (failed bool) {
	for i, it := range t.items {
		if r := &results[i]; r.Class != OK && r.Class != Dropped {
			m.failInTx(it, r)
			failed = true
		}
	}
	if failed {
		t.tainted = 0 // the handler named the culprits
	}
	return failed
}

// ---- groups --------------------------------------------------------------------------------------------------------

// lineUp queues the followers of a group right behind their predecessors, so that one batch takes them in their order. In
// the other modes only the head of a group is claimed.
func (m *Machine) lineUp(g *group, from int) {
	if !m.cfg.Batched {
		return
	}
	for i := max(from, 1); i < len(g.items); i++ {
		it := g.items[i]
		if it.phase == phQueued {
			continue
		}
		if it.phase != phHeld || it.waitsFor != nil || it.wakeAt > 0 || !m.fitsTx(it) || !m.inLine(g.items[i-1]) ||
			m.leaderOf(it) != nil {
			return
		}
		m.offer(it)
	}
}

// inLine reports that an item waits for its lane's next transaction, which others may share.
func (m *Machine) inLine(it *Item) bool { return it.phase == phQueued && !it.preclaimed && it.lined }

// isBehind reports that the item before it in its group is neither in line nor done.
func (m *Machine) isBehind(it *Item) bool {
	if !m.cfg.Batched || it.group == nil || it.group.items[0] == it {
		return false
	}
	p := it.group.items[it.group.at(it)-1]
	return !m.inLine(p) && (p.phase != phSettling || !succeeded(p.trace.Decision))
}

// holdThoseBehind takes the items behind an item of their group out of the line.
func (m *Machine) holdThoseBehind(it *Item) {
	if !m.cfg.Batched || it.group == nil {
		return
	}
	for _, f := range it.group.items[it.group.at(it)+1:] {
		if f.phase == phWaiting || m.inLine(f) {
			m.dequeue(f)
		}
	}
}

// holdBehindLosers looks for claims that were not acquired, and holds the items behind them in their groups: those in the
// queue, and, marked as behind, those in the same transaction. They must not run. It reports whether one of them holds its
// claim, so that the transaction has to be rolled back.
func (m *Machine) holdBehindLosers(items []*Item, grants []driver.Grant) (spoiled bool) {
	if !m.cfg.Batched {
		return false
	}
	for i, it := range items {
		g := &grants[i]
		if it.group == nil || it.behind || (g.Err == nil && (g.Verdict == driver.Acquired || g.Verdict == driver.Replay || g.Verdict == driver.Stale)) {
			continue
		}
		m.holdThoseBehind(it)
		for j := i + 1; j < len(items); j++ {
			if f := items[j]; f.group == it.group {
				f.behind, f.phase = true, phHeld
				spoiled = spoiled || (grants[j].Err == nil && grants[j].Verdict == driver.Acquired)
			}
		}
	}
	return spoiled
}
