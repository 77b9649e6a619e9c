package machine

import (
	"errors"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Step processes one event; see [Machine.Steps].
func (m *Machine) Step(now time.Duration, ev *Event, out []Action) []Action {
	m.enter(now, out)
	m.on(ev)
	return m.leave()
}

// Steps processes the events up to now (a monotonic reading) and appends the actions that follow to out. Events of one call
// share flushes. Every action but ActionCancel, ActionRenewed, ActionTrace and ActionStop is completed by exactly one event,
// sooner or later.
func (m *Machine) Steps(now time.Duration, evs []Event, out []Action) []Action {
	m.enter(now, out)
	for i := range evs {
		m.on(&evs[i])
	}
	return m.leave()
}

func (m *Machine) enter(now time.Duration, out []Action) {
	m.now, m.out = max(now, m.now), out
	m.free, m.freed = append(m.free, m.freed...), m.freed[:0]
}

func (m *Machine) leave() []Action {
	if m.opened {
		m.opened = false
		m.returnUnstarted()
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

// Next is when Step(Wake) is needed at the latest, if no event comes before. Work that was due at the last step and was not
// done waits for an event, not for the clock.
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
			due(l.gathering + m.flushDelay(l))
		}
		if l.claims.len()+l.tx.queue.len()+m.quarantine.len() > 0 && !l.claiming {
			due(l.claimAt)
			if m.mayStart() < 1 {
				due(m.starts.due(m.cfg.Every))
			}
			due(m.lastStart + m.flushDelay(l))
		}
	}
	if m.down {
		due(m.downAt)
	}
	due(m.poolAt)
	if m.quarantine.len() > 0 {
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

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) observe(n TraceEvent) {
	if m.cfg.Trace != nil && m.cfg.Trace(n) {
		m.do(Action{Kind: ActionTrace, TraceEvent: n})
	}
}

// pump starts every flush that can start. Smart batching: while one flush is in flight the next requests gather. Without
// timers nothing waits when idle, and batches grow under load.
func (m *Machine) pump() {
	if m.stopped {
		return
	}
	m.pumpQuarantine()
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

// storeDown and storeUp record whether the store responds. Polling pauses while it does not.
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

// unwritten counts a failed write. A write that definitely did not happen is no outage, unless maxRefusals happen in a row
// without another response of the store.
func (m *Machine) unwritten(err error) {
	if !refusedOnce(err) || m.refusals >= maxRefusals {
		m.storeDown(err)
		return
	}
	m.refusals++
	m.observe(TraceEvent{Kind: TraceTrouble, Err: err})
}

// maxRefusals is how many writes in a row may definitely not happen before that counts as an outage. A serialization failure
// or a deadlock has a winner, so something else succeeds meanwhile.
const maxRefusals = 8

func (m *Machine) storeUp() {
	m.refusals = 0
	m.responses++
	if m.down {
		m.down = false
		m.observe(TraceEvent{Kind: TraceResumed})
	}
}

// delay is the pause before the n-th repetition of an operation: 50 ms doubling to 3.2 s.
func delay(n int) time.Duration { return 50 * time.Millisecond << min(n, 6) }

// delayAfter is the pause before a failed write is repeated. A write that definitely did not happen met another one, which
// ends soon: 5 ms doubling to 320 ms, and up to as much again by the nonce, so that two do not meet again.
func delayAfter(err error, n int, nonce driver.Nonce) time.Duration {
	if !errors.Is(err, driver.ErrNotCommitted) || errors.Is(err, driver.ErrOutage) {
		return delay(n)
	}
	d := delay(n) / 10
	return d + jitter(nonce, d)
}
