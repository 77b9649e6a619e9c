package machine

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// This file is modes B and C (protocol sections 4 and 5): the handlers of a batch run one after the other inside the
// transaction that holds their claims. A failed item is excluded: everything is rolled back, the failure is recorded
// through an ordinary claim, and the rest runs again. A redelivery is claimed durably first, so that its attempt counts
// even if it kills the process, and runs in a transaction of its own. If the queue does not count deliveries, every delivery
// is claimed durably first, and those without a past still share a transaction. A batch handler (batch.go) gets all members
// in one call.

type txState uint8

const (
	txIdle txState = iota
	txBeginning
	txRunning
	txCommitting
	txRollingBack
)

type txLane struct {
	queue deque
	state txState
	items []*Item // members, in order of delivery
	at    int     // the one that runs
	// tainted: one of the first tainted items of the queue fails a batch. taken is how many of them the present transaction
	// tries (batch.go).
	tainted, taken int
	refused        int            // transactions in a row that were definitely not committed, without a culprit
	claims         []driver.Claim // reused, as those of a buffer
	works          []driver.Work
}

// fitsTx reports that the claim inside a transaction is enough: the queue counts deliveries, and this is the first.
func (m *Machine) fitsTx(it *Item) bool {
	return it.unrecorded == nil && !it.unprotected() && m.cfg.Counts && it.Count <= 1 && !m.tooOld(it)
}

// past reports that an earlier run of the item's key may have failed, or killed its process.
func (it *Item) past() bool {
	return it.Count > 1 || it.grant.Unknown || it.grant.Failures > 0 || it.grant.Takeovers > 0
}

// ownTx reports that an item runs in a transaction of its own.
func (it *Item) ownTx() bool { return it.preclaimed && it.past() }

// claimsAhead is how many more durable claims a lane may hold for its next transaction: one batch.
func (m *Machine) claimsAhead(l *lane) int {
	if m.cfg.Mode != Open {
		return m.cfg.Batch
	}
	n := m.cfg.Batch
	for _, it := range l.tx.queue.items[l.tx.queue.at:] {
		n -= b2i(it.preclaimed)
	}
	return n
}

// enqueuePreclaimed queues an item with a durable claim for a transaction. The claim inside it carries the same nonce.
func (m *Machine) enqueuePreclaimed(it *Item) {
	it.preclaimed, it.asked = true, true
	it.phase = phQueued
	m.lanes[it.lane].tx.queue.push(it)
	m.claimable++
}

func (m *Machine) pumpTx(i int) {
	l := &m.lanes[i]
	t := &l.tx
	if t.state != txIdle || t.queue.len() == 0 || m.now < l.claimAt || m.inQuarantine() {
		return
	}
	t.tainted = min(t.tainted, t.queue.len())
	if try := m.brk.trial; try != nil && try.preclaimed && try.phase == phQueued && try.lane == i {
		t.queue.remove(try) // it goes before all others
		t.queue.prepend([]*Item{try})
	}
	if head := t.queue.first(); !m.admits(head) || (!head.preclaimed && m.mayStart() < 1) {
		return
	}
	most := min(t.queue.len(), m.cfg.Batch, max(m.mayStart(), 1))
	if m.brk.state == brkHalfOpen {
		most = 1
	}
	if m.down {
		if m.now < m.downAt {
			return
		}
		most = 1
	}
	most = t.half(most)
	items := t.items[:0]
	for len(items) < most {
		it := t.queue.first()
		if len(items) > 0 && (it.preclaimed != items[0].preclaimed || it.ownTx() || items[0].ownTx()) {
			break
		}
		items = append(items, t.queue.pop())
		if !it.preclaimed { // else its turn was taken with the durable claim
			m.take(it)
		}
	}
	m.claimable -= len(items)
	m.begin(i, items)
}

// begin opens a transaction that holds the claims of items, which become the lane's members.
func (m *Machine) begin(i int, items []*Item) {
	t := &m.lanes[i].tx
	t.items = items
	claims := t.claims[:0]
	t.claims = nil
	for _, it := range items {
		it.phase, it.startedAt = phTx, 0
		it.refs++
		claims = append(claims, m.claimOf(it))
	}
	t.state, t.at, t.taken = txBeginning, 0, len(items)-b2i(items[0].ownTx())
	m.do(Action{Kind: ActionBegin, Lane: i, Items: t.items, Claims: claims})
}

func (m *Machine) onBegun(ev *Event) {
	l := &m.lanes[ev.Lane]
	t := &l.tx
	for _, it := range t.items {
		it.refs--
	}
	if ev.Err != nil {
		m.troubleInTx(ev.Lane, fmt.Errorf("begin with %d claims: %w", len(t.items), ev.Err))
		m.requeueTx(ev.Lane)
		return
	}
	m.storeUp()
	l.claimTries = 0
	clear(ev.Claims)
	t.claims = ev.Claims
	spoiled := m.holdBehindLosers(t.items, ev.Grants)
	members := make([]*Item, 0, len(t.items))
	plain := true
	for i, it := range t.items {
		g := &ev.Grants[i]
		switch {
		case it.behind:
			it.behind = false
			m.releaseShare(it)
		case g.Err != nil:
			m.unclaimed(it, g.Err)
		case g.Verdict == driver.Acquired:
			it.grant, it.hold = *g, g.Hold
			members = append(members, it)
			plain = plain && (it.preclaimed || !it.past())
		default:
			m.granted(it, g, ev.Sent)
		}
	}
	t.items = members
	switch {
	case spoiled:
		m.rollback(ev.Lane)
	case len(members) == 0:
		m.endTx(t)
	case !m.admits(members[0]):
		m.rollback(ev.Lane) // the breaker opened meanwhile
	case !plain:
		// A member has a past: its claim must be durable first, which this transaction cannot do.
		for _, it := range members {
			it.Count = max(it.Count, 2*b2i(it.past()))
		}
		m.rollback(ev.Lane)
	default:
		t.state, t.at = txRunning, 0
		m.runInTx(ev.Lane)
	}
}

// endTx makes a lane free for its next transaction.
func (m *Machine) endTx(t *txLane) {
	t.state = txIdle
	m.endQuarantine(m.quarantined) // if it is set, it was a member: nothing else runs
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// runInTx runs the next member, or commits.
func (m *Machine) runInTx(lane int) {
	t := &m.lanes[lane].tx
	switch {
	case m.graced:
		m.rollback(lane) // the time is up: nothing else is started
	case t.at == len(t.items):
		m.commitTx(lane)
	case m.cfg.Batched:
		m.startBatch(lane)
	default:
		it := t.items[t.at]
		it.refs++
		m.startInTx(it)
		m.do(Action{Kind: ActionRun, Item: it, Job: m.txJob(it)})
	}
}

func (m *Machine) txJob(it *Item) Job {
	return Job{
		Hold: it.hold, Attempt: it.grant.Attempt, Deadline: m.now + m.cfg.MaxRuntime, Unknown: it.grant.Unknown,
		InTx: true, Lane: it.lane,
	}
}

// startInTx begins a run inside a transaction. Its item's deadlines count from now on.
func (m *Machine) startInTx(it *Item) {
	it.startedAt, it.cancelled = max(m.now, 1), NoCause
	m.scanBy(m.now + m.cfg.MaxRuntime)
	if m.cfg.Timeout > 0 {
		m.scanBy(m.now + m.cfg.Timeout)
	}
	m.running++
	m.traceStart(it)
}

func (m *Machine) traceStart(it *Item) {
	it.paid = false
	if !it.ran {
		it.ran = true
		m.counts.Executed++
	}
	m.observe(TraceEvent{Kind: TraceStarted, Item: it, Takeover: it.grant.Takeovers > 0})
}

func (m *Machine) commitTx(lane int) {
	t := &m.lanes[lane].tx
	works := t.works[:0]
	t.works = nil
	for _, it := range t.items {
		it.refs++
		works = append(works, it.work)
	}
	t.state = txCommitting
	m.do(Action{Kind: ActionCommit, Lane: lane, Items: t.items, Works: works})
}

func (m *Machine) ranInTx(it *Item, r *Result) {
	lane := it.lane
	m.runEnded(it, r.Err, m.now-it.startedAt)
	m.took(m.now - it.startedAt)
	it.startedAt = 0
	m.countRun(it, r)
	switch r.Class {
	case OK, Dropped:
		m.succeededInTx(it, r)
		m.lanes[lane].tx.at++
		m.runInTx(lane)
	case Transient:
		m.repeatTx(lane, r)
	default:
		m.failInTx(it, r)
		m.rollback(lane)
	}
}

// succeededInTx prepares what is committed of a successful run.
func (m *Machine) succeededInTx(it *Item, r *Result) {
	f := m.completion(r)
	f.Hold, f.Keep = it.hold, m.cfg.keep(f.Final, r.Class == Dropped)
	n := TraceEvent{Decision: Executed, Reason: f.Reason}
	if r.Class == Dropped {
		n = TraceEvent{Decision: DroppedOnPurpose, Reason: reasonOf(r)}
		f.Result, f.Reason = nil, "dropped: "+reasonOf(r)
	}
	it.trace, it.settlement = n, driver.Settlement{Receipt: it.Receipt, Action: driver.Ack}
	it.work = driver.Work{Finish: f, Effects: r.Effects, Emit: r.Emit}
	if m.cfg.JoinedAck {
		it.work.Ack = &it.settlement
	}
}

// repeatTx repeats a transaction that was refused while its handlers ran. No attempt is spent.
func (m *Machine) repeatTx(lane int, r *Result) {
	t := &m.lanes[lane].tx
	if m.refusedAlone(t, r.Err, *r) {
		m.rollback(lane)
		return
	}
	err := fmt.Errorf("run %d handlers: %w: %w", len(t.items), driver.ErrNotCommitted, r.Err)
	m.refusedTx(t, err)
	m.troubleInTx(lane, err)
	m.rollback(lane)
}

// failInTx remembers the failure of an item. A claim and a finish of its own record it. Its effects were rolled back.
func (m *Machine) failInTx(it *Item, r *Result) {
	failed := *r
	failed.NotApplied = true
	it.unrecorded = &failed
}

func (m *Machine) rollback(lane int) {
	m.lanes[lane].tx.state = txRollingBack
	m.do(Action{Kind: ActionRollback, Lane: lane})
}

func (m *Machine) onRolledBack(ev *Event) { m.requeueTx(ev.Lane) }

// requeueTx puts the members of an ended transaction back, in their order, and the failed ones into the claim queue. If one
// of a group does not run again with the others, those behind it are held until it has ended (law 13).
func (m *Machine) requeueTx(lane int) {
	l := &m.lanes[lane]
	t := &l.tx
	m.endTx(t)
	var again []*Item
	for _, it := range t.items {
		it.phase, it.startedAt, it.work = phQueued, 0, driver.Work{}
		it.lined = !it.preclaimed && m.fitsTx(it)
		if !it.preclaimed {
			m.requeued(it)
		}
		switch {
		case m.isBehind(it):
			it.phase, it.unrecorded = phHeld, nil
			m.releaseShare(it)
			m.holdThoseBehind(it)
		case it.preclaimed && it.unrecorded != nil:
			m.judge(it, it.unrecorded) // its claim is durable already
		case it.lined, it.preclaimed && !it.ownTx():
			again = append(again, it)
			m.scanVisibility(it)
		default:
			m.holdThoseBehind(it)
			if it.preclaimed {
				m.requeued(it)
			}
			l.claims.push(it)
			m.claimable++
		}
	}
	t.queue.prepend(again)
	m.claimable += len(again)
	t.items = t.items[:0]
	m.returnUnstarted()
}

func (m *Machine) troubleInTx(lane int, err error) {
	l := &m.lanes[lane]
	m.unwritten(err)
	// A store that begins every transaction and commits none (its disk is full) must not be called without a pause.
	l.claimAt = m.now + delayAfter(err, max(l.claimTries, l.tx.refused-1), l.tx.items[0].nonce)
	l.claimTries++
}

func (m *Machine) onCommitted(ev *Event) {
	t := &m.lanes[ev.Lane].tx
	for _, it := range t.items {
		it.refs--
		it.kept = it.kept || ev.Err != nil
	}
	culprit, refused := errors.AsType[*driver.ItemError](ev.Err)
	if ev.Err == nil || refused {
		m.storeUp()
	}
	err, unnamed := ev.Err, culprit == nil || culprit.Transient
	if culprit != nil && culprit.Transient {
		err = fmt.Errorf("%w: %w", driver.ErrNotCommitted, err) // the culprit is a member: halving finds it
	}
	switch {
	case ev.Err == nil:
		m.ends, m.writes = m.ends+1, m.writes+1
		items := append([]*Item(nil), t.items...)
		t.items = t.items[:0]
		t.tainted, t.refused = max(t.tainted-t.taken, 0), 0
		clear(ev.Works)
		t.works = ev.Works
		m.endTx(t)
		for _, it := range items {
			m.durable(it, false)
		}
		return
	case unnamed && refusedOnce(err) && m.refusedAlone(t, err, ev.Result):
	case unnamed || culprit.Index >= len(t.items):
		// Rolled back, or unknown: the same claims are repeated (FM33, FM70). They wait for a commit that is still in flight.
		// If it succeeded they return Replay with our own nonce.
		m.refusedTx(t, err)
		m.troubleInTx(ev.Lane, fmt.Errorf("commit %d attempts: %w", len(t.items), err))
	case len(t.items) > 1 && (culprit.Index < 0 || m.cfg.Batched && t.items[culprit.Index].work.Effects != nil):
		m.taint(t, fmt.Errorf("effects of a batch of %d refused: %w", len(t.items), culprit.Err)) // they may be any member's
	default:
		t.tainted = 0
		it := t.items[max(culprit.Index, 0)]
		m.failInTx(it, m.refusedEffects(it, ev, culprit.Err))
	}
	m.requeueTx(ev.Lane)
}
