package machine

import (
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is mode C's batch handler (protocol section 5): one call gets all members of a transaction, and they commit
// together. When it fails without saying whose fault it was, the batch is halved by order of delivery until the culprit
// is alone: log2 of the batch transactions, and no savepoint. Members of an ordered group may be in one batch, one behind
// the other; one that does not run keeps those behind it from running (law 13).

// ---- halving -------------------------------------------------------------------------------------------------------

// half bounds the next batch while a culprit is looked for. It is among the first t.tainted of the queue: one half of
// them runs; when that goes well it is in the other. The last one runs alone, so that its failure is its own. The number
// may be off by items that left the queue meanwhile: that costs a transaction, nothing else.
func (t *txLane) half(most int) int {
	if t.tainted == 0 {
		return most
	}
	return min(most, max(t.tainted/2, 1))
}

// taint notes that a batch failed and nobody knows by whom.
func (m *Machine) taint(t *txLane, err error) {
	t.tainted = len(t.items)
	m.observe(TraceEvent{Kind: TraceTrouble, Err: fmt.Errorf("look for the culprit in halves: %w", err)})
}

// ---- run -----------------------------------------------------------------------------------------------------------

// startBatch calls the handler with all members. The first stands for the call: its deadlines are the call's.
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
	m.act(Action{Kind: ActionRun, Lane: lane, Item: t.items[0], Items: t.items, Job: m.txJob(t.items[0])})
}

// ranBatch decides what becomes of a batch: all committed together, or rolled back with those set aside that are to
// blame.
func (m *Machine) ranBatch(ev *Event) {
	first := ev.Item
	lane := first.lane
	t := &m.lanes[lane].tx
	took := m.now - first.startedAt
	m.took(took / time.Duration(len(t.items)))
	first.startedAt = 0
	m.heard(first, worst(ev))
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
		// Nobody's fault: all of them are returned.
	case r.Class == Deferred || r.Class == Unavailable || len(t.items) == 1:
		// A refusal that is nobody's failure loses nothing when it is taken for all: do not ask a busy downstream again
		// and again to find out for whom it was meant.
		t.tainted = 0
		for _, it := range t.items {
			m.failInTx(it, r)
		}
	default:
		m.taint(t, fmt.Errorf("batch of %d failed: %w", len(t.items), r.Err))
	}
	m.rollback(lane)
}

// worst is the result that tells of the downstream: of a call that found it gone for some it was gone.
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

// failMembers sets those aside whose results are failures.
func (m *Machine) failMembers(t *txLane, results []Result) (failed bool) {
	for i, it := range t.items {
		if r := &results[i]; r.Class != OK && r.Class != Dropped {
			m.failInTx(it, r)
			failed = true
		}
	}
	if failed {
		t.tainted = 0 // the handler knows who it was
	}
	return failed
}

// ---- groups --------------------------------------------------------------------------------------------------------

// lineUp lets the followers of a group queue right behind their predecessors, so that one batch takes them in their
// order. Everywhere else only the head of a group is claimed.
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

// inLine tells that an item waits for its lane's next transaction, which others may share.
func (m *Machine) inLine(it *Item) bool { return it.phase == phQueued && !it.preclaimed && it.lined }

// isBehind tells that one of an item's group is before it that is neither in line nor done.
func (m *Machine) isBehind(it *Item) bool {
	if !m.cfg.Batched || it.group == nil || it.group.items[0] == it {
		return false
	}
	p := it.group.items[it.group.at(it)-1]
	return !m.inLine(p) && (p.phase != phSettling || !succeeded(p.trace.Decision))
}

// holdThoseBehind takes those out of the line that stand behind an item of their group.
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

// holdBehindLosers looks for claims that were not won, and holds those that stand behind them in their groups: in the
// queue, and marked in the same transaction: they must not run. It answers whether one of them holds its claim, so that the transaction has to be
// rolled back.
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
