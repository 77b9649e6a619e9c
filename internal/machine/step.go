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
// that are told together are flushed together. Every action but ActionCancel, ActionRenewed, ActionTrace and ActionStop is answered by exactly
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
	if m.opened {
		m.opened = false
		m.handBack()
	}
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
		m.onRan(ev)
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
	if m.inFlight > 0 {
		due(m.beatAt)
	}
	if m.settles.len() > 0 && !m.settling {
		due(m.settleAt)
	}
	for i := range m.lanes {
		l := &m.lanes[i]
		if l.finishes.len() > 0 && !l.finishing {
			due(l.doneAt)
			due(l.gathering + m.patience(l))
		}
		if l.claims.len()+l.tx.queue.len()+m.ready.len() > 0 && !l.claiming {
			due(l.claimAt)
			if m.mayStart() < 1 {
				due(m.starts.due(m.cfg.Every))
			}
			due(m.lastStart + m.patience(l))
		}
	}
	if m.down {
		due(m.downAt)
	}
	due(m.poolAt)
	if m.ready.len() > 0 {
		due(m.restUntil)
	}
	if m.brk.state == brkOpen {
		due(m.brk.until)
	}
	if m.draining {
		due(m.graceAt)
	} else if !m.receiving && m.room() > 0 {
		due(m.receiveAt)
	}
	return t
}

func (m *Machine) act(a Action) { m.out = append(m.out, a) }

func (m *Machine) observe(n TraceEvent) {
	if m.cfg.Trace != nil && m.cfg.Trace(n) {
		m.act(Action{Kind: ActionTrace, TraceEvent: n})
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
		m.pumpApart(i)
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
	n := min(m.settles.len(), m.cfg.Batch*m.cfg.Lanes)
	items, sets := m.settleBuf.take(n)
	for range n {
		it := m.settles.pop()
		it.refs++
		items, sets = append(items, it), append(sets, it.settlement)
	}
	m.settling = true
	m.act(Action{Kind: ActionSettle, Items: items, Settlements: sets})
}

func (m *Machine) pumpFinishes(i int) {
	l := &m.lanes[i]
	if l.finishing || l.finishes.len() == 0 || m.now < l.doneAt {
		return
	}
	n := min(l.finishes.len(), m.cfg.Batch)
	if n < m.cfg.Batch && l.running > 0 && m.now < l.gathering+m.patience(l) {
		return
	}
	items, works := l.finishBuf.take(n)
	for range n {
		it := l.finishes.pop()
		it.refs++
		items, works = append(items, it), append(works, it.work)
	}
	l.finishing, l.finishAt, l.gathering = true, m.now, 0
	m.act(Action{Kind: ActionFinish, Lane: i, Items: items, Works: works})
}

// patience is how long a flush waits for handlers that are about to return, so that it does not leave with the first of
// a hundred. It is a part of what the flush itself takes, and nothing where handlers take longer than that: then there
// is nothing to wait for.
func (m *Machine) patience(l *lane) time.Duration {
	if p := l.trip / 4; m.pace < p {
		return p
	}
	return 0
}

// pumpClaims claims only for free slots (law 1): a delivery that waits for a slot keeps its visibility alive, not a
// claim, so that a message that kills its process takes no others with it.
func (m *Machine) pumpClaims(i int) {
	l := &m.lanes[i]
	if l.claiming || l.claims.len() == 0 || m.now < l.claimAt || m.quarantine() {
		return
	}
	n := min(l.claims.len(), m.cfg.Batch, m.cfg.Concurrency-m.busy)
	if l.claimMost > 0 {
		n = min(n, l.claimMost)
	}
	if m.down {
		if m.now < m.downAt || m.probing() {
			return
		}
		n = min(n, 1) // half-open: one probe
	}
	if n <= 0 {
		return
	}
	if n == l.claims.len() && n < m.cfg.Batch/2 && m.receiving && m.backlog && l.finishing {
		return // a remnant: more is on its way, and the lane is not idle
	}
	if n < min(l.claims.len(), m.cfg.Batch) && m.running > 0 && m.now < m.lastStart+m.patience(l) {
		return // the slots of a batch become free one by one
	}
	ahead := m.claimsAhead(l)
	items, claims := l.claimBuf.take(n)
	for range n {
		if it := l.claims.first(); it.condemned == nil {
			if !m.admits(nil) || m.mayStart() < 1 || ahead <= 0 {
				break
			}
			ahead--
			m.take(it)
		}
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
		return
	}
	l.claiming = true
	m.act(Action{Kind: ActionClaim, Lane: i, Items: items, Claims: claims})
}

// claimOf makes the claim of an item. An unanswered claim is repeated with the same nonce (law 5); any other gets a
// fresh one.
func (m *Machine) claimOf(it *Item) driver.Claim {
	if !it.asked {
		it.nonce = m.cfg.Nonce()
		it.asked = true
	}
	it.leased = m.lease()
	return driver.Claim{
		Key: it.Key, NewKey: it.NewKey, Nonce: it.nonce, Fingerprint: it.Fingerprint, DeliveryID: it.ID,
		BodyDigest: it.BodyDigest, WholeBody: it.WholeBody,
		Lease: it.leased, Takeover: m.cfg.Takeover,
		Version: it.Version, After: it.After, NoWait: m.cannotWait(it),
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

// slowRun is how long handlers (in an open transaction: those of a batch) have to take for nothing to be fetched ahead of
// them: a fetch takes milliseconds, and what waits here is kept from other workers, which may have nothing to do.
const (
	slowRun   = 50 * time.Millisecond
	slowBatch = 500 * time.Millisecond
)

// took notes how long a handler ran for one message.
func (m *Machine) took(d time.Duration) {
	m.pace, m.paced = m.pace+(d-m.pace)/8, true
}

// most is how many deliveries may be in flight whose end is still to come.
func (m *Machine) most() int {
	slow, needed := m.pace > slowRun, m.cfg.Concurrency
	if m.cfg.Mode == Open {
		slow, needed = m.pace*time.Duration(m.cfg.Batch) > slowBatch, m.cfg.Batch*m.cfg.Lanes
	}
	if slow || !m.paced {
		return min(needed, m.cfg.InFlight)
	}
	return m.cfg.InFlight
}

func (m *Machine) room() int {
	flight := m.cfg.Batch * m.cfg.Lanes
	most := m.ahead(m.most())
	waiting := min(m.waiting+m.following+m.ready.len(), m.cfg.InFlight) // they keep nobody else out
	n := min(most-(m.inFlight-m.ending-waiting), most+2*flight-(m.inFlight-waiting), flight)
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
		// Fail closed (law 8): polling pauses, so that receive counts do not burn. With nothing in flight one delivery is
		// fetched to probe with.
		if m.now < m.downAt || m.inFlight > 0 {
			return
		}
		n = 1
	case m.brk.state != brkClosed:
		if !m.wants() {
			return
		}
		n = 1 // to try with
	case m.claimable > 0 && n < min(m.cfg.Batch, m.most())/2:
		return // there is work in flight: wait for a batch worth a round trip
	}
	m.receiving, m.asked = true, n
	m.act(Action{Kind: ActionReceive, Max: n})
}

// storeDown and storeUp keep the breaker: polling pauses while the store does not answer.
func (m *Machine) storeDown(err error) {
	if !m.down {
		m.down, m.downTries = true, 0
		m.observe(TraceEvent{Kind: TracePaused, Err: err})
	} else {
		m.observe(TraceEvent{Kind: TraceTrouble, Err: err})
	}
	m.downAt = m.now + delay(m.downTries)
	m.downTries++
}

// unwritten tells of a write that failed. One that certainly did not happen says nothing of the store's health, unless
// nothing else is heard of it.
func (m *Machine) unwritten(err error) {
	if !refusedOnce(err) || m.refusals >= maxRefusals {
		m.storeDown(err)
		return
	}
	m.refusals++
	m.observe(TraceEvent{Kind: TraceTrouble, Err: err})
}

// maxRefusals is how many writes in a row may certainly not happen before that counts as an outage: a serialization
// failure or a deadlock has a winner, so that something else succeeds meanwhile.
const maxRefusals = 8

func (m *Machine) storeUp() {
	m.refusals = 0
	m.answers++
	if m.down {
		m.down = false
		m.observe(TraceEvent{Kind: TraceResumed})
	}
}

// delay is the pause before the n-th repetition of an operation: 50 ms doubling to 3.2 s.
func delay(n int) time.Duration { return 50 * time.Millisecond << min(n, 6) }

// delayAfter is the pause before a failed write is repeated. What certainly did not happen met somebody else's write,
// which is over soon: 5 ms doubling to 320 ms, and as much again by the nonce, so that two do not meet again.
func delayAfter(err error, n int, nonce driver.Nonce) time.Duration {
	if !errors.Is(err, driver.ErrNotCommitted) || errors.Is(err, driver.ErrOutage) {
		return delay(n)
	}
	d := delay(n) / 10
	return d + jitter(nonce, d)
}
