package machine

// This file lets a key run alone that may have killed its process (law 12).

// startReady starts the run of one that has to be alone, when it is: no handler runs, no claim is under way that would
// start one. Else all of them wait without a claim, because a neighbour that kills the process would be charged to
// them: only runs that were alone count towards a key's death (law 12).
func (m *Machine) startReady() {
	if m.ready.len() == 0 {
		return
	}
	if it := m.ready.items[m.ready.at]; it.phase == phReady && m.ready.len() == 1 && m.quiet() {
		m.ready.pop()
		m.alone = it
		m.run(it)
		return
	}
	for i := m.ready.at; i < len(m.ready.items); {
		if it := m.ready.items[i]; it.phase == phReady {
			m.ready.remove(it)
			m.giveUpClaim(it)
		} else {
			i++
		}
	}
	if m.ready.len() == 0 || !m.quiet() || (m.down && m.now < m.downAt) || !m.admits(nil) || m.mayStart() < 1 {
		return
	}
	if it := m.ready.items[m.ready.at]; m.now >= m.lanes[it.lane].claimAt {
		m.ready.pop()
		m.claimAlone(it)
	}
}

// giveUpClaim releases a claim whose item stays in hand.
func (m *Machine) giveUpClaim(it *Item) {
	m.busy--
	m.suspects++
	it.suspect = true
	m.releaseUnstarted(it, GivenBack)
	it.work.Ack = nil
}

// claimAlone claims a key that waited for quiet; until it has run nothing else starts.
func (m *Machine) claimAlone(it *Item) {
	m.alone = it
	m.busy++
	m.take(it)
	it.phase = phClaiming
	it.refs++
	l := &m.lanes[it.lane]
	items, claims := l.claimBuf.take(1)
	l.claiming = true
	m.act(Action{Kind: ActClaim, Lane: it.lane, Items: append(items, it), Claims: append(claims, m.claimOf(it))})
}

func (m *Machine) quiet() bool {
	if m.alone != nil || m.running > 0 || m.suspects > 0 {
		return false
	}
	for i := range m.lanes {
		if l := &m.lanes[i]; l.claiming || l.tx.state != txIdle {
			return false
		}
	}
	return true
}
