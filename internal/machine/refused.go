package machine

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// In this file a write that the store refuses for one message does not stop the others (protocol section 3). An end that was
// refused, or got no response, several times together with others is written alone, next to the lane's flush. If it is
// refused alone, again and again, while other writes succeed, that is its message's failure. An item that waits for the
// outcome of its own write is retried at its own time; the lane goes on.

const (
	// refusedTogether is how many flushes of a lane in a row may fail before their ends are written one by one.
	refusedTogether = 3
	// refusedBeside is how many times an end is refused alone before that is its message's failure, if the ends of others
	// were written since the first time. refusedAlone is the same if any write of the store succeeded since.
	refusedBeside, refusedAlone = 3, 8
)

// refusal counts how often an item's end, or its claim, was refused.
type refusal struct {
	apart bool // its end is written alone
	times int  // in a row, alone
	// Machine.ends and writes before the first of them; responses, after the last claim that failed.
	ends, writes, responses int
}

// refusedOnce reports that a write definitely did not happen, though the store can write.
func refusedOnce(err error) bool {
	return errors.Is(err, driver.ErrNotCommitted) && !errors.Is(err, driver.ErrOutage)
}

// mayBlame reports that a refusal can be the message's failure. A lock that others hold is not.
func mayBlame(err error) bool { return refusedOnce(err) && !errors.Is(err, driver.ErrBlocked) }

// struck counts a refusal of what was written for one item alone, and reports whether it is that item's failure.
func (m *Machine) struck(it *Item) bool {
	f := &it.refusal
	if f.times == 0 {
		f.ends, f.writes = m.ends, m.writes
	}
	f.times++
	return f.times >= refusedBeside && m.ends > f.ends || f.times >= refusedAlone && (m.writes > f.writes || m.cfg.Mode == Open)
}

// ---- ends ----------------------------------------------------------------------------------------------------------

// pumpApart writes the next end that is written alone.
func (m *Machine) pumpApart(i int) {
	l := &m.lanes[i]
	if l.writing || l.apart.len() == 0 || m.down && m.now < m.downAt {
		return
	}
	it := l.apart.pop()
	it.refs++
	l.writing = true
	m.do(Action{Kind: ActionFinish, Lane: i, Items: []*Item{it}, Works: []driver.Work{it.work}})
}

// unfinished decides how the ends of a flush that failed, as a whole or for some items, are written again.
func (m *Machine) unfinished(ev *Event, again []*Item, alone bool) {
	l := &m.lanes[ev.Lane]
	switch {
	case ev.Err == nil: // the outcomes of the others are known
		for _, it := range again {
			m.later(it, nil)
		}
	case alone:
		m.unwrittenAlone(ev, again[0])
	default:
		m.unwritten(fmt.Errorf("finish %d attempts: %w", len(again), ev.Err))
		if m.spread(l, ev.Err) {
			for _, it := range again {
				m.goAlone(it)
			}
			return
		}
		l.doneAt = m.now + delayAfter(ev.Err, l.tries, again[0].nonce)
		l.tries++
		l.finishes.prepend(again)
	}
}

// spread counts a failed flush and reports whether its ends are to be written one by one: it failed several times, and was
// definitely refused, or the store responded to other requests meanwhile.
func (m *Machine) spread(l *lane, err error) bool {
	switch {
	case mayBlame(err):
		l.refused++
	case errors.Is(err, driver.ErrBlocked) && !errors.Is(err, driver.ErrOutage):
		return false // no end can be written
	default:
		if l.noResponse++; l.noResponse == 1 {
			l.responses = m.responses
		}
	}
	if l.refused < refusedTogether && (l.noResponse < refusedTogether || m.responses == l.responses) {
		return false
	}
	l.refused, l.noResponse = 0, 0
	return true
}

// goAlone has the end of an item written alone.
func (m *Machine) goAlone(it *Item) {
	it.refusal = refusal{apart: true}
	it.tries = 0
	m.lanes[it.lane].apart.push(it)
}

// unwrittenAlone handles the failure of an end that was written alone.
func (m *Machine) unwrittenAlone(ev *Event, it *Item) {
	err := fmt.Errorf("finish the attempt of key %q alone: %w", it.Key.Raw, ev.Err)
	if f := &it.refusal; errors.Is(err, driver.ErrOutage) {
		// Never its message's failure. If other ends are written, only a part of the store is down (one disk is full).
		if f.times = 0; m.ends > f.ends {
			m.observe(TraceEvent{Kind: TraceTrouble, Item: it, Err: err})
		} else {
			m.unwritten(err)
		}
		f.ends = m.ends
		m.later(it, err)
		return
	}
	m.observe(TraceEvent{Kind: TraceTrouble, Item: it, Err: err})
	switch brings := it.work.Effects != nil || len(it.work.Emit) > 0; {
	case !brings:
		// The effect happened elsewhere, and only the record is missing. While the lease is ours no worker repeats the run.
		m.later(it, err)
	case errors.Is(err, driver.ErrBlocked) || !m.struck(it):
		m.later(it, err)
	case mayBlame(err):
		m.judge(it, m.refusedEffects(it, ev, ev.Err))
	default:
		// The outcome is unknown: its lease is not extended anymore, and the next delivery reads the record.
		it.noExtend = true
		m.later(it, err)
	}
}

// later retries an item after a pause of its own. The others of its lane go on.
func (m *Machine) later(it *Item, err error) {
	it.wakeAt = m.now + delayAfter(err, it.tries, it.nonce)
	it.tries++
	m.scanBy(it.wakeAt)
}

// wakeEnd writes an end, or settles a delivery, when its pause has ended.
func (m *Machine) wakeEnd(it *Item) {
	switch {
	case it.wakeAt == 0:
		return
	case it.wakeAt > m.now:
		m.scanBy(it.wakeAt)
		return
	}
	it.wakeAt = 0
	switch {
	case it.phase == phSettling:
		m.settles.push(it)
	case it.leaseEnd <= m.now:
		m.fenced(it)
	case it.refusal.apart:
		m.lanes[it.lane].apart.push(it)
	default:
		m.lanes[it.lane].finishes.push(it)
	}
}

// refusedEffects is the result of a run whose effects were refused: the shell's, else a failed run. Collected effects were
// definitely not written. A handler without them had its effect elsewhere.
func (m *Machine) refusedEffects(it *Item, ev *Event, err error) *Result {
	r := ev.Result
	if r.Class == OK {
		r = Result{Class: Failed, Err: fmt.Errorf("effects refused: %w", err)}
	}
	r.NotApplied = r.NotApplied || it.work.Effects != nil
	if errors.Is(err, driver.ErrBlocked) {
		m.putOffBlocked(it, &r, err)
	}
	return &r
}

// putOffBlocked makes a result that of a run whose effects wait for another's lock. That is not a failure: it is retried as
// often as it takes, with a growing delay.
func (m *Machine) putOffBlocked(it *Item, r *Result, err error) {
	*r = Result{Class: Deferred, NotApplied: true, Err: err, HasAfter: true, After: m.backoff(max(it.Count-1, 0), it.nonce)}
}

// ---- open transactions ---------------------------------------------------------------------------------------------

// refusedAlone sets the only member of a transaction aside if it was refused again and again while others were committed. It
// also sets a member aside whose handler waits for another's lock, in a batch too unless one call handles all.
func (m *Machine) refusedAlone(t *txLane, err error, r Result) bool {
	at := 0
	if !m.cfg.Batched && t.state == txRunning {
		at = t.at
	}
	alone := len(t.items) == 1
	it := t.items[at]
	switch {
	case errors.Is(err, driver.ErrOutage):
		return false
	case errors.Is(err, driver.ErrBlocked) && (alone || t.state == txRunning && !m.cfg.Batched):
		m.putOffBlocked(it, &r, err)
	case alone && m.struck(it):
		if r.Class == OK || r.Class == Transient {
			r.Class = Failed
		}
		if r.Err == nil {
			r.Err = fmt.Errorf("effects refused: %w", err)
		}
	default:
		return false
	}
	t.tainted, t.refused = 0, 0
	m.failInTx(it, &r)
	return true
}

// refusedTx makes the next transaction smaller when one was refused twice: one that is open for longer than the store
// allows, or whose rows others write all the time, would be refused forever.
func (m *Machine) refusedTx(t *txLane, err error) {
	if !refusedOnce(err) {
		return
	}
	switch t.refused++; {
	case len(t.items) == 1:
		// Its pauses grow with its own refusals. With those of earlier deliveries they would be so long that each delivery
		// expires before it is refused often enough to fail.
		t.refused = t.items[0].refusal.times
	case t.refused > 1:
		t.tainted = len(t.items)
	}
}

// ---- claims --------------------------------------------------------------------------------------------------------

// unclaimed handles a claim that failed by itself. It is repeated with the same nonce (laws 4, 5), after a pause of its own.
func (m *Machine) unclaimed(it *Item, err error) {
	m.observe(TraceEvent{Kind: TraceTrouble, Item: it, Err: fmt.Errorf("claim key %q: %w", it.Key.Raw, err)})
	m.releaseShare(it)
	if errors.Is(err, driver.ErrUnreadable) {
		m.unreadable(it, err)
		return
	}
	it.phase = phHeld
	m.later(it, err)
	m.scanVisibility(it)
}

// ownError records which claims were in a call that failed. It reports whether that is the only item's own error: the item
// was claimed alone, and the store has responded to others since its last failure.
func (m *Machine) ownError(ev *Event) (own bool) {
	if ev.Err == nil {
		return false
	}
	for _, it := range ev.Items {
		f := &it.refusal
		own = len(ev.Items) == 1 && f.responses > 0 && m.responses >= f.responses
		f.responses = m.responses + 1
	}
	return own
}

// boundClaims halves the next claim flush after a failure, to find a key that makes it fail, and doubles it after a success.
// A flush that was refused once or twice met another write.
func (m *Machine) boundClaims(l *lane, n int, err error) {
	switch {
	case err != nil && n > 1 && (!refusedOnce(err) || m.refusals > 2):
		l.claimMost = n / 2
	case err == nil && l.claimMost > 0:
		if l.claimMost *= 2; l.claimMost >= m.cfg.Batch {
			l.claimMost = 0
		}
	}
}

// unreadable returns a delivery whose record this program cannot read: a newer one may. After MaxAttempts deliveries it
// becomes a dead letter. Nothing is written to the record.
func (m *Machine) unreadable(it *Item, err error) {
	it.asked = false
	reason := fmt.Sprintf("the record of key %q cannot be read: %v; if a newer version of semel wrote it, upgrade this worker, "+
		"else restore or delete the record, and redrive the message", it.Key.Raw, err)
	if it.Count < m.cfg.MaxAttempts {
		after := m.backoff(max(it.Count-1, 0), it.nonce)
		m.counts.Returned++
		m.settle(it, driver.Settlement{Action: driver.Retry, After: after}, TraceEvent{Decision: Returned, After: after, Reason: reason})
		return
	}
	m.counts.Rejected++
	l := m.newKeylessDeadLetter(it, reason)
	l.Key.Raw = "" // a dead letter of a key needs the token of its record, which cannot be read
	m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: l}, TraceEvent{Decision: DeadLettered, Reason: reason})
}
