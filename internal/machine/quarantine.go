package machine

import "github.com/semel-dev/semel/driver"

// This file is quarantine (law 12). A key that may have killed its process runs in quarantine: nothing else starts from the
// start of its run until the run has outlived driver.QuarantineBeats. If the process dies in that time, the crash is charged
// to this key alone. A later crash is charged to no key. The first run in quarantine may start beside runs that have lasted
// for a while. Later ones run all alone, because the key may be dead-lettered after them.
//
// Quarantine takes turns with everything else. A turn lasts until its run has ended or has outlived its quarantine. Then the
// others go on for as long, if any of them waits. So a few keys that were in flight when a process died do not block a
// worker.

// pumpQuarantine starts the next run in quarantine when its turn has come. Keys wait for it without a claim: otherwise they
// would be charged if a neighbour kills the process.
func (m *Machine) pumpQuarantine() {
	if m.quarantine.len() == 0 {
		if m.quarantined == nil {
			m.turnAt = 0
		}
		return
	}
	others := m.now < m.restUntil // it is the others' turn
	if it := m.quarantine.first(); it.phase == phQuarantine && m.quarantine.len() == 1 && !others && m.mayQuarantine(it) {
		m.quarantine.pop()
		m.quarantined, m.turnAt = it, max(m.now, 1)
		m.run(it)
		return
	}
	for i := m.quarantine.at; i < len(m.quarantine.items); {
		if it := m.quarantine.items[i]; it.phase == phQuarantine {
			m.quarantine.remove(it)
			m.releaseClaim(it)
		} else {
			i++
		}
	}
	if m.quarantine.len() == 0 || m.quarantined != nil || others || m.busy >= m.cfg.Concurrency || (m.down && m.now < m.downAt) ||
		!m.admits(nil) || m.mayStart() < 1 {
		return
	}
	it := m.quarantine.first()
	if m.turnAt == 0 {
		m.turnAt, m.turnWait = max(m.now, 1), max(m.turnWait, m.cfg.Lease)
	}
	switch {
	case !m.mayQuarantine(it):
		if m.now >= m.turnAt+m.turnWait {
			// A handler runs for long: others go on for as long, and the next turn waits longer.
			m.turnWait = min(2*m.turnWait, max(m.cfg.MaxRuntime, m.cfg.Lease))
			m.quarantine.pop()
			m.quarantine.push(it)
			m.endTurn()
		}
	case m.now >= m.lanes[it.lane].claimAt:
		m.turnWait = 0
		m.quarantine.pop()
		m.claimQuarantined(it)
	}
}

// releaseClaim releases the claim of an item that stays in flight.
func (m *Machine) releaseClaim(it *Item) {
	m.busy--
	m.releasing++
	it.releasing = true
	m.releaseUnstarted(it, Returned)
	it.work.Ack = nil
}

// claimQuarantined claims the key whose turn it is.
func (m *Machine) claimQuarantined(it *Item) {
	m.quarantined = it
	m.busy++
	m.take(it)
	it.phase = phClaiming
	it.refs++
	l := &m.lanes[it.lane]
	items, claims := l.claimBuf.take(1)
	l.claiming = true
	m.do(Action{Kind: ActionClaim, Lane: it.lane, Items: append(items, it), Claims: append(claims, m.claimOf(it))})
}

// inQuarantine reports that nothing else may start.
func (m *Machine) inQuarantine() bool { return m.quarantined != nil || m.turnAt > 0 }

// endQuarantine ends the turn of the key that runs in quarantine: others may start.
func (m *Machine) endQuarantine(it *Item) {
	if it != nil && m.quarantined == it {
		m.quarantined = nil
		m.endTurn()
	}
}

// endTurn ends a turn. The others' turn is as long, if any of them waits.
func (m *Machine) endTurn() {
	if m.claimable > 0 && m.turnAt > 0 {
		m.restUntil = m.now + (m.now - m.turnAt)
	}
	m.turnAt = 0
}

// mayQuarantine reports that a key may start in quarantine: no claim in flight would start a run, and the running handlers
// may run beside it.
func (m *Machine) mayQuarantine(it *Item) bool {
	if m.quarantined != nil || m.releasing > 0 {
		return false
	}
	for i := range m.lanes {
		if l := &m.lanes[i]; l.claiming || l.tx.state != txIdle {
			return false
		}
	}
	return m.fitsBeside(it)
}

// fitsBeside reports that a key may run in quarantine beside the running handlers.
func (m *Machine) fitsBeside(it *Item) bool {
	if m.running == 0 {
		return true
	}
	if m.cfg.Mode == Open || it.grant.Takeovers > driver.QuarantineAfter {
		return false
	}
	for o := m.head; o != nil; o = o.next {
		if o.phase == phRunning && m.now-o.startedAt < m.cfg.Lease/3 {
			return false // it may be the one that kills the process
		}
	}
	return true
}
