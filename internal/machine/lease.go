package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is the one heartbeat (law 3) and every deadline. The machine believes only its own monotonic clock: a lease
// counts from before the request was sent, for Lease - Guard (law 7).

func (m *Machine) beat() time.Duration { return min(m.cfg.Lease, m.cfg.Visibility) / 6 }

// lease is how long a claim made now lasts. It ends at Until at the latest, when this process ends or stands still and could
// not renew it.
func (m *Machine) lease() time.Duration {
	if m.cfg.Until == 0 {
		return m.cfg.Lease
	}
	return max(min(m.cfg.Lease, m.cfg.Until-m.now), time.Millisecond)
}

// scanBy makes sure that deadlines are checked no later than t.
func (m *Machine) scanBy(t time.Duration) { m.scanAt = min(m.scanAt, t) }

// scanVisibility checks an unstarted item's visibility again: it was not checked while its claim was in flight.
func (m *Machine) scanVisibility(it *Item) {
	if it.visEnd > 0 {
		m.scanBy(it.visEnd)
	}
}

// elapse does what is due because time passed.
func (m *Machine) elapse() {
	if m.inFlight > 0 && m.now >= m.beatAt {
		m.beatAt = m.now + m.beat()
		m.extendLeases()
		m.prolongVisibility()
	}
	if m.now >= m.scanAt {
		m.scan()
	}
	if m.now >= m.poolAt {
		m.flowPools()
	}
	m.halfOpen()
	if m.draining && m.now >= m.graceAt {
		m.graceOver()
	}
}

// extendLeases renews every claim that is a third of its lease old. One flush at a time.
func (m *Machine) extendLeases() {
	if m.extending {
		return
	}
	var items []*Item
	var holds []driver.Hold
	for it := m.head; it != nil; it = it.next {
		if it.leaseEnd == 0 || it.atCommit || it.noExtend || it.lost || m.now-it.leaseAt < m.cfg.Lease/3 {
			continue
		}
		// Inside a transaction we hold the row's lock: an extension would wait for it, or abort the transaction.
		if p := it.phase; p == phQuarantine || p == phRunning || p == phFinishing || ((p == phQueued || p == phHeld) && it.preclaimed) {
			it.refs++
			items, holds = append(items, it), append(holds, it.hold)
		}
	}
	if len(items) > 0 {
		m.extending, m.extendBy = true, m.lease()
		m.do(Action{Kind: ActionExtend, Items: items, Holds: holds, Lease: m.extendBy})
	}
}

func (m *Machine) onExtended(ev *Event) {
	m.extending = false
	if ev.Err != nil {
		m.unwritten(ev.Err)
		m.beatAt = min(m.beatAt, m.now+delay(0)) // little time is left to try again
	} else {
		m.storeUp()
	}
	for i, it := range ev.Items {
		it.refs--
		o := ev.outcome(i)
		if it.ended {
			m.reuse(it)
			continue
		}
		m.observe(TraceEvent{Kind: TraceExtended, Item: it, Outcome: o, After: m.extendBy, Err: ev.Err})
		switch o {
		case driver.Applied:
			m.writes++
			it.leaseAt, it.leaseEnd = ev.Sent, ev.Sent+m.extendBy-m.cfg.Guard
			m.scanBy(it.leaseEnd)
			if it.beats++; it.beats >= driver.QuarantineBeats(it.grant.Uncertainty) {
				m.endQuarantine(it)
			}
			if it.phase == phRunning {
				m.do(Action{Kind: ActionRenewed, Item: it, Until: it.leaseEnd})
			}
		case driver.Lost:
			m.leaseLost(it)
		}
	}
}

// leaseLost stops the work on a record that another worker owns. An item whose end is being written goes on: the outcome of
// that write decides, and it may be the write that ended the lease.
func (m *Machine) leaseLost(it *Item) {
	switch it.phase {
	case phQuarantine:
		m.quarantine.remove(it)
		m.busy--
		m.fenced(it)
	case phRunning:
		it.lost = true
		m.cancel(it, CauseFenced)
	}
}

// notOurs reports that an item's claim was lost, or has ended by our own clock, while its handler still runs. The worker
// that has the claim needs the message. Inside a transaction the row's lock is the claim.
func (m *Machine) notOurs(it *Item) bool {
	return it.lost || it.phase == phRunning && it.leaseEnd > 0 && it.leaseEnd <= m.now
}

// prolongVisibility keeps every delivery in flight invisible to others: best effort, from the return of Receive. A failure
// does not stop a run.
func (m *Machine) prolongVisibility() {
	if m.prolong || !m.cfg.Extends {
		return
	}
	var items []*Item
	var receipts []any
	for it := m.head; it != nil; it = it.next {
		if it.visEnd == 0 || it.phase == phSettling || it.noExtend || m.now-it.visAt < m.cfg.Visibility/3 || m.notOurs(it) {
			continue
		}
		it.refs++
		items, receipts = append(items, it), append(receipts, it.Receipt)
	}
	if len(items) > 0 {
		m.prolong = true
		m.do(Action{Kind: ActionProlong, Items: items, Receipts: receipts})
	}
}

func (m *Machine) onProlonged(ev *Event) {
	m.prolong = false
	for i, it := range ev.Items {
		it.refs--
		o := ev.outcome(i)
		if it.ended {
			m.reuse(it)
			continue
		}
		m.observe(TraceEvent{Kind: TraceProlonged, Item: it, Outcome: o, After: m.cfg.Visibility, Err: ev.Err})
		switch {
		case o == driver.Applied:
			it.visAt, it.visEnd = ev.Sent, ev.Sent+m.cfg.Visibility
			m.scanBy(it.visEnd)
		case o == driver.Lost && (it.phase == phHeld || it.phase == phWaiting || it.phase == phQueued):
			m.expire(it)
		}
	}
}

// scan checks every deadline and finds the next one.
func (m *Machine) scan() {
	m.scanAt = never
	for it := m.head; it != nil; {
		next := it.next
		m.deadlines(it)
		it = next
	}
}

func (m *Machine) deadlines(it *Item) {
	switch it.phase {
	case phHeld, phWaiting, phQueued:
		if it.visEnd > 0 {
			if it.visEnd <= m.now {
				m.expire(it)
				return
			}
			m.scanBy(it.visEnd)
		}
		if it.wakeAt > 0 {
			if it.wakeAt > m.now {
				m.scanBy(it.wakeAt)
				return
			}
			it.wakeAt = 0
			m.enqueue(it)
		}
	case phFinishing, phSettling:
		m.wakeEnd(it)
	case phQuarantine:
		if it.leaseEnd <= m.now {
			m.leaseLost(it)
			return
		}
		m.scanBy(it.leaseEnd)
	case phRunning, phTx:
		m.runDeadlines(it)
	}
}

func (m *Machine) runDeadlines(it *Item) {
	if it.phase == phTx && it.startedAt == 0 {
		return // waits for its turn in the transaction
	}
	if end := it.startedAt + m.cfg.MaxRuntime; end <= m.now {
		it.noExtend = true // FM8: a wedged handler does not keep its claim forever
		m.endQuarantine(it)
		m.cancel(it, CauseTimeout)
	} else {
		m.scanBy(end)
	}
	if m.cfg.Timeout > 0 {
		if end := it.startedAt + m.cfg.Timeout; end <= m.now {
			m.cancel(it, CauseTimeout)
		} else {
			m.scanBy(end)
		}
	}
	if it.leaseEnd > 0 && it.phase == phRunning {
		if it.leaseEnd <= m.now {
			m.cancel(it, CauseFenced)
		} else {
			m.scanBy(it.leaseEnd)
		}
	}
}

func (m *Machine) cancel(it *Item, c Cause) {
	if it.cancelled == NoCause {
		it.cancelled = c
		m.do(Action{Kind: ActionCancel, Item: it, Cause: c})
	}
}

// expire drops an unstarted delivery past its own visibility: it is redelivered to another worker (FM27). Nothing is
// written.
func (m *Machine) expire(it *Item) {
	m.dequeue(it)
	if it.holds() {
		m.leaveLeader(it)
		m.releaseUnstarted(it, Expired)
		return
	}
	m.counts.Returned++
	it.trace = TraceEvent{Decision: Expired}
	m.decide(it)
	m.recycle(it)
}

// dequeue takes an unstarted item out of its lane's queue.
func (m *Machine) dequeue(it *Item) {
	if it.phase == phHeld {
		m.quarantine.remove(it)
	}
	if it.phase == phQueued {
		m.lanes[it.lane].claims.remove(it)
		m.lanes[it.lane].tx.queue.remove(it)
		m.claimable--
		it.phase = phHeld
		m.releaseShare(it)
	}
	if it.phase == phWaiting {
		m.leavePool(it)
	}
}
