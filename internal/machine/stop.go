package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// drain stops the consumer: nothing new is received, what has not started is returned at once, what runs may end
// within the grace period.
func (m *Machine) drain() {
	if m.draining {
		return
	}
	m.draining = true
	m.graceAt = m.now + m.cfg.Grace
	m.drainItems()
}

func (m *Machine) drainItems() {
	for it := m.head; it != nil; it = it.next {
		switch it.phase {
		case phHeld, phWaiting, phQueued:
			m.dequeue(it)
			m.leaveLeader(it)
			if it.holds() {
				m.releaseUnstarted(it, Returned)
				continue
			}
			// A claim with an unknown outcome may be ours: then the next one finds the key busy until its lease ends, and the
			// delivery need not be redelivered before.
			after := m.cfg.Lease
			if !it.asked {
				after = 0
			}
			m.returnDelivery(it, after)
		case phQuarantine:
			m.quarantine.remove(it)
			m.busy--
			m.releaseUnstarted(it, Returned)
		}
	}
}

// holds reports that an unstarted item has a durable claim: it waits for a transaction.
func (it *Item) holds() bool { return it.preclaimed && it.leaseEnd > 0 }

// releaseUnstarted releases a claim and returns its delivery: the run never began.
func (m *Machine) releaseUnstarted(it *Item, d Decision) { m.releaseFor(it, d, 0) }

// releaseFor is releaseUnstarted for a delivery that is to be redelivered later.
func (m *Machine) releaseFor(it *Item, d Decision, after time.Duration) {
	m.finish(it, driver.Finish{Final: driver.Release, Ran: driver.Unstarted},
		driver.Settlement{Action: driver.Defer, After: after}, TraceEvent{Decision: d, After: after})
}

// graceOver cancels the running handlers. The second time it gives up on those that ignore that.
func (m *Machine) graceOver() {
	if m.graced {
		m.stop(m.running)
		return
	}
	m.graced = true
	m.graceAt = m.now + m.cfg.HardStop
	if m.running == 0 {
		m.graceAt = m.now + m.cfg.HardStop/5 // no handler is left to cancel: only writes are pending
	}
	for it := m.head; it != nil; it = it.next {
		if it.phase == phRunning || (it.phase == phTx && it.startedAt > 0) {
			m.cancel(it, CauseDraining)
		}
	}
}

func (m *Machine) pumpStop() {
	limited := m.cfg.Limit > 0 && m.counts.Received >= int64(m.cfg.Limit)
	if (m.draining || limited) && m.inFlight == 0 && !m.receiving {
		m.stop(0)
	}
}

func (m *Machine) stop(stuck int) {
	if !m.stopped {
		m.stopped = true
		for it := m.head; it != nil; it = it.next {
			if it.ran && (it.phase != phSettling || m.forgotten(it)) {
				m.counts.Fenced++ // it ran, and its end is not recorded: its lease expires
			}
		}
		m.do(Action{Kind: ActionStop, Stuck: stuck})
	}
}
