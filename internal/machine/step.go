package machine

import (
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Step tells the machine that one thing happened at now; see [Machine.Steps].
func (m *Machine) Step(now time.Duration, ev *Event, out []Action) []Action {
	m.enter(now, out)
	m.on(ev)
	return m.leave()
}

// Steps tells the machine what happened up to now (a monotonic reading) and appends what is to be done to out. Events
// that are told together are flushed together. Every action but ActCancel, ActNote and ActStop is answered by exactly
// one event, sooner or later.
func (m *Machine) Steps(now time.Duration, evs []Event, out []Action) []Action {
	m.enter(now, out)
	for i := range evs {
		m.on(&evs[i])
	}
	return m.leave()
}

func (m *Machine) enter(now time.Duration, out []Action) {
	m.now, m.out = max(now, m.now), out
	m.free, m.limbo = append(m.free, m.limbo...), m.limbo[:0]
}

func (m *Machine) leave() []Action {
	m.elapse()
	m.pump()
	out := m.out
	m.out = nil
	return out
}

func (m *Machine) on(ev *Event) {
	switch ev.Kind {
	case Wake:
	case Received:
		m.onReceived(ev)
	case Claimed:
		m.onClaimed(ev)
		m.lanes[ev.Lane].claimBuf.put(ev.Items, ev.Claims, ev.Err)
	case Ran:
		m.onRan(ev.Item, &ev.Result)
	case Finished:
		m.onFinished(ev)
		m.lanes[ev.Lane].finishBuf.put(ev.Items, ev.Works, ev.Err)
	case Settled:
		m.onSettled(ev)
		m.settleBuf.put(ev.Items, ev.Settlements, ev.Err)
	case Extended:
		m.onExtended(ev)
	case Prolonged:
		m.onProlonged(ev)
	case Begun:
		m.onBegun(ev)
	case Committed:
		m.onCommitted(ev)
	case RolledBack:
		m.onRolledBack(ev)
	case Drain:
		m.drain()
	}
}

// Next is when Step(Wake) has something to do at the latest, if nothing happens before. What is due already and was not
// done by the last step waits for an event, not for the clock.
func (m *Machine) Next() time.Duration {
	t := never
	due := func(at time.Duration) {
		if at > m.now {
			t = min(t, at)
		}
	}
	due(m.scanAt)
	if m.inHand > 0 {
		due(m.beatAt)
	}
	if m.settles.len() > 0 && !m.settling {
		due(m.settleAt)
	}
	for i := range m.lanes {
		l := &m.lanes[i]
		if l.finishes.len() > 0 && !l.finishing {
			due(l.doneAt)
		}
		if l.claims.len()+l.tx.queue.len()+m.ready.len() > 0 && !l.claiming {
			due(l.claimAt)
		}
	}
	if m.down {
		due(m.downAt)
	}
	if m.draining {
		due(m.graceAt)
	} else if !m.receiving && m.room() > 0 {
		due(m.receiveAt)
	}
	return t
}

func (m *Machine) act(a Action) { m.out = append(m.out, a) }

func (m *Machine) observe(n Note) {
	if m.cfg.Notes {
		m.act(Action{Kind: ActNote, Note: n})
	}
}

// pump starts every flush that can start. Smart batching: while one flush is under way the next requests gather; no
// timers, so nothing waits when idle, and batches grow under load.
func (m *Machine) pump() {
	if m.stopped {
		return
	}
	m.startReady()
	m.pumpSettles()
	for i := range m.lanes {
		m.pumpFinishes(i)
	}
	for i := range m.lanes {
		m.pumpTx(i)
		m.pumpClaims(i)
	}
	m.pumpReceive()
	m.pumpStop()
}

func (m *Machine) pumpSettles() {
	if m.settling || m.settles.len() == 0 || m.now < m.settleAt {
		return
	}
	n := min(m.settles.len(), m.cfg.Batch)
	items, sets := m.settleBuf.take(n)
	for range n {
		it := m.settles.pop()
		it.refs++
		items, sets = append(items, it), append(sets, it.settlement)
	}
	m.settling = true
	m.act(Action{Kind: ActSettle, Items: items, Settlements: sets})
}

func (m *Machine) pumpFinishes(i int) {
	l := &m.lanes[i]
	if l.finishing || l.finishes.len() == 0 || m.now < l.doneAt {
		return
	}
	n := min(l.finishes.len(), m.cfg.Batch)
	items, works := l.finishBuf.take(n)
	for range n {
		it := l.finishes.pop()
		it.refs++
		items, works = append(items, it), append(works, it.work)
	}
	l.finishing = true
	m.act(Action{Kind: ActFinish, Lane: i, Items: items, Works: works})
}

// pumpClaims claims only for free slots (law 1): a delivery that waits for a slot keeps its visibility alive, not a
// claim, so that a message that kills its process takes no others with it.
func (m *Machine) pumpClaims(i int) {
	l := &m.lanes[i]
	if l.claiming || l.claims.len() == 0 || m.now < l.claimAt || m.alone != nil || m.ready.len() > 0 {
		return
	}
	n := min(l.claims.len(), m.cfg.Batch, m.cfg.Concurrency-m.busy)
	if m.down {
		if m.now < m.downAt || m.probing() {
			return
		}
		n = min(n, 1) // half-open: one probe
	}
	if n <= 0 {
		return
	}
	items, claims := l.claimBuf.take(n)
	for range n {
		it := l.claims.pop()
		m.claimable--
		m.busy++
		if it.unprotected() {
			m.start(it)
			continue
		}
		it.phase = phClaiming
		it.refs++
		items, claims = append(items, it), append(claims, m.claimOf(it))
	}
	if len(items) == 0 {
		l.claimBuf.put(items, claims, nil)
	} else {
		l.claiming = true
		m.act(Action{Kind: ActClaim, Lane: i, Items: items, Claims: claims})
	}
}

// claimOf makes the claim of an item. An unanswered claim is repeated with the same nonce (law 5); any other gets a
// fresh one.
func (m *Machine) claimOf(it *Item) driver.Claim {
	if !it.asked {
		it.nonce = m.cfg.Nonce()
		it.asked = true
	}
	return driver.Claim{
		Key: it.Key, Nonce: it.nonce, Fingerprint: it.Fingerprint, DeliveryID: it.ID,
		Lease: m.cfg.Lease, Takeover: m.cfg.Takeover,
	}
}

func (m *Machine) probing() bool {
	for i := range m.lanes {
		if m.lanes[i].claiming {
			return true
		}
	}
	return false
}

func (m *Machine) room() int {
	n := min(m.cfg.InHand-m.inHand, m.cfg.Batch*m.cfg.Lanes)
	if m.cfg.Limit > 0 {
		n = min(n, m.cfg.Limit-int(m.counts.Received))
	}
	return n
}

func (m *Machine) pumpReceive() {
	n := m.room()
	if m.receiving || m.draining || n <= 0 || m.now < m.receiveAt {
		return
	}
	switch {
	case m.down:
		// Fail closed (law 8): polling pauses, so that receive counts do not burn. With nothing in hand one delivery is
		// fetched to probe with.
		if m.now < m.downAt || m.inHand > 0 {
			return
		}
		n = 1
	case m.claimable > 0 && n < min(m.cfg.Batch, m.cfg.InHand)/2:
		return // there is work in hand: wait for a batch worth a round trip
	}
	m.receiving = true
	m.act(Action{Kind: ActReceive, Max: n})
}

// storeDown and storeUp keep the breaker: polling pauses while the store does not answer.
func (m *Machine) storeDown(err error) {
	if !m.down {
		m.down, m.downTries = true, 0
		m.observe(Note{Kind: NotePaused, Err: err})
	} else {
		m.observe(Note{Kind: NoteTrouble, Err: err})
	}
	m.downAt = m.now + delay(m.downTries)
	m.downTries++
}

// unwritten tells of a write that failed. One that certainly did not happen says nothing of the store's health.
func (m *Machine) unwritten(err error) {
	if errors.Is(err, driver.ErrNotCommitted) {
		m.observe(Note{Kind: NoteTrouble, Err: err})
	} else {
		m.storeDown(err)
	}
}

func (m *Machine) storeUp() {
	if m.down {
		m.down = false
		m.observe(Note{Kind: NoteResumed})
	}
}

// delay is the pause before the n-th repetition of an operation: 50 ms doubling to 3.2 s.
func delay(n int) time.Duration { return 50 * time.Millisecond << min(n, 6) }
