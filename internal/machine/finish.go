package machine

import (
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// The second half of a delivery's life: the decision about its run, its durable end in the store, and its settlement in the
// queue.

// ---- judged --------------------------------------------------------------------------------------------------------

// judge decides what becomes of a run. A loser of its lease writes nothing (law 2).
func (m *Machine) judge(it *Item, r *Result) {
	if it.unprotected() {
		m.judgeUnkeyed(it, r)
		return
	}
	if it.lost || (it.cancelled == CauseFenced && r.Class != OK) {
		// Definitely lost, or failed after our own deadline: no ack, no release. A success after our own deadline is
		// completed all the same: the store compares token and nonce, and decides.
		m.fenced(it)
		return
	}
	if it.atCommit && r.Class != OK && r.Class != Dropped {
		failed := *r
		it.unrecorded = &failed
		m.claimDurably(it)
		return
	}
	defer m.explain(it, r)
	m.failed(it, r)
	switch {
	case r.Class == OK:
		m.complete(it, r)
	case r.Class == Dropped:
		m.finish(it, driver.Finish{Final: driver.Complete, Reason: "dropped: " + reasonOf(r)},
			driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: DroppedOnPurpose, Reason: reasonOf(r)})
	case it.grant.Takeover == driver.Once && !r.NotApplied && r.Class != Parked:
		m.park(it, "the run failed, and it is unknown whether its effect happened: "+reasonOf(r))
	case r.Class == Parked:
		m.park(it, reasonOf(r))
	case r.Class == Permanent:
		m.deadLetter(it, reasonOf(r), ranOf(r))
		it.work.Finish.Compensated = r.Compensated
	case it.cancelled == CauseDraining && r.Class == Failed:
		m.release(it, r, 0, true, driver.Defer, TraceEvent{Decision: Retried, Reason: "cancelled: the worker stops"})
	case r.Class == Unavailable:
		m.release(it, r, m.afterOutage(it, r), true, driver.Defer, TraceEvent{Decision: Retried, Reason: reasonOf(r)})
	case r.Class == Deferred:
		m.release(it, r, m.deferral(it, r), true, driver.Defer, TraceEvent{Decision: Retried, Reason: reasonOf(r)})
	case it.grant.Failures+1 >= m.maxAttempts(r):
		m.deadLetter(it, fmt.Sprintf("%s (%s, limit %d)", reasonOf(r), failedRuns(it.grant.Failures+1), m.maxAttempts(r)), ranOf(r))
	default:
		after := m.backoffOf(r, it.grant.Failures, it.nonce)
		if r.HasAfter {
			after = r.After
		}
		m.release(it, r, after, false, driver.Retry, TraceEvent{Decision: Retried, Reason: reasonOf(r)})
	}
}

// claimDurably has an item claimed whose commit was to claim it, and that wrote nothing: its run failed, which the claim's
// attempt records, or its key had a record, which decides.
func (m *Machine) claimDurably(it *Item) {
	m.endsSoon(it, false)
	it.atCommit, it.durably, it.leaseEnd, it.noExtend = false, true, 0, false
	it.work, it.tries, it.wakeAt, it.refusal = driver.Work{}, 0, 0, refusal{}
	if it.unrecorded == nil {
		m.counts.Fenced++ // its run has lost
		it.ran = false
	}
	m.releaseShare(it)
	m.enqueue(it)
	m.scanVisibility(it)
	m.returnUnstarted()
}

// forgotten reports that the run of an item failed, and that this was not recorded: its claim was not granted.
func (m *Machine) forgotten(it *Item) bool { return it.unrecorded != nil && m.cfg.AtCommit }

// failedRuns formats the number of failed runs. Runs that crashed or were deferred are not among them.
func failedRuns(n int) string {
	if n == 1 {
		return "1 failed run"
	}
	return fmt.Sprintf("%d failed runs", n)
}

// deferral is the delay of a deferred message: the handler's own, else a backoff that grows with the message's deliveries.
func (m *Machine) deferral(it *Item, r *Result) time.Duration {
	if r.HasAfter || r.Rule == nil {
		return r.After
	}
	return m.backoffOf(r, max(it.Count-1, 0), it.nonce)
}

func reasonOf(r *Result) string {
	if r.Err == nil {
		return ""
	}
	return r.Err.Error()
}

// judgeUnkeyed settles a run without protection. Only the broker's redelivery repeats it.
func (m *Machine) judgeUnkeyed(it *Item, r *Result) {
	m.counts.Unprotected++
	m.failed(it, r)
	switch {
	case r.Class == OK || r.Class == Dropped:
		m.proven()
		m.settle(it, driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: Unprotected})
	case r.Class == Permanent, r.Class == Failed && it.Count >= m.maxAttempts(r):
		// No record counts its attempts: the broker's delivery count does.
		l := m.newKeylessDeadLetter(it, explained(reasonOf(r), r.Err))
		m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: l}, TraceEvent{Decision: Unprotected, Reason: l.Reason})
	case r.Class == Unavailable || r.Class == Deferred:
		after := m.deferral(it, r)
		if r.Class == Unavailable {
			after = m.afterOutage(it, r)
		}
		m.settle(it, driver.Settlement{Action: driver.Defer, After: after}, TraceEvent{Decision: Unprotected, Reason: reasonOf(r)})
	default:
		after := m.backoffOf(r, max(it.Count-1, 0), m.cfg.Nonce())
		if r.HasAfter {
			after = r.After
		}
		m.settle(it, driver.Settlement{Action: driver.Retry, After: after}, TraceEvent{Decision: Unprotected, Reason: reasonOf(r)})
	}
}

func (m *Machine) complete(it *Item, r *Result) {
	f := m.completion(r)
	m.finish(it, f, driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: Executed, Reason: f.Reason})
	it.work.Effects, it.work.Emit = r.Effects, r.Emit
}

// completion is the end of a successful run.
func (m *Machine) completion(r *Result) driver.Finish {
	f := driver.Finish{Final: driver.Complete, Result: r.Value}
	if m.cfg.ResultMax > 0 && len(r.Value) > m.cfg.ResultMax {
		// The effect happened: a result that cannot be stored must not make it happen again (FM58).
		f.Result, f.Reason = nil, fmt.Sprintf("%sit has %d bytes, and the limit is %d", NotStored, len(r.Value), m.cfg.ResultMax)
	}
	return f
}

// NotStored begins the reason of a completed record whose result could not be stored. Records keep it: readers use it to
// tell a missing result from an empty one.
const NotStored = "result was not stored: "

func (m *Machine) release(it *Item, r *Result, after time.Duration, refund bool, a driver.Action, n TraceEvent) {
	f := driver.Finish{Final: driver.Release, Ran: ranOf(r), Refund: refund, RetryAfter: after, Reason: reasonOf(r)}
	m.traceDoubt(it, f.Ran, f.Reason)
	n.After = after
	m.finish(it, f, driver.Settlement{Action: a, After: after}, n)
}

// ranOf returns whether a failed run may have had its effect.
func ranOf(r *Result) driver.Ran {
	if r.NotApplied {
		return driver.NotApplied
	}
	return driver.MaybeApplied
}

func (m *Machine) traceDoubt(it *Item, ran driver.Ran, reason string) {
	if ran == driver.MaybeApplied {
		m.observe(TraceEvent{Kind: TraceDoubt, Item: it, Reason: "the run failed after it had begun: " + reason})
	}
}

// deadLetter fails the key for good. Its dead letter follows. If the last run may have had its effect, that doubt stays in
// the record: a redrive has to probe.
func (m *Machine) deadLetter(it *Item, reason string, ran driver.Ran) {
	m.traceDoubt(it, ran, reason)
	m.finish(it, driver.Finish{Final: driver.Fail, Ran: ran, Reason: reason},
		driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterFailed, reason)},
		TraceEvent{Decision: DeadLettered, Reason: reason})
}

// park leaves the key to an operator. Its dead letter follows.
func (m *Machine) park(it *Item, reason string) {
	m.finish(it, driver.Finish{Final: driver.Park, Reason: reason},
		driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterUncertain, reason)},
		TraceEvent{Decision: ParkedUncertain, Reason: reason})
	m.observe(TraceEvent{Kind: TraceDoubt, Item: it, Reason: reason})
}

func (m *Machine) newDeadLetter(it *Item, kind driver.DeadLetterKind, reason string) *driver.DeadLetter {
	l := &driver.DeadLetter{
		ID: driver.DeadLetterID(kind, it.deadLetterKey(), it.hold.Token, it.Fingerprint), Kind: kind, Reason: reason,
		Key: it.deadLetterKey(), Generation: it.hold.Generation, Token: it.hold.Token, Version: it.Version, Attempts: it.grant.Attempt,
		Message: it.Message.Detached(), FirstReceived: it.grant.Created,
	}
	switch kind {
	case driver.DeadLetterBusy:
		l.ID, l.Attempts = driver.BusyDeadLetterID(l.Key, &it.Message), 0
	case driver.DeadLetterLate:
		l.ID = driver.LateDeadLetterID(it.Key, it.Version, it.Fingerprint, &it.Message)
	case driver.DeadLetterMismatch:
		l.ID = driver.MismatchDeadLetterID(it.deadLetterKey(), it.Fingerprint, it.Version, &it.Message)
	}
	return l
}

// newKeylessDeadLetter is the dead letter of a message without a usable key. Its id comes from the message itself.
func (m *Machine) newKeylessDeadLetter(it *Item, reason string) *driver.DeadLetter {
	l := m.newDeadLetter(it, driver.DeadLetterFailed, reason)
	l.ID = driver.DeadLetterID(driver.DeadLetterFailed, it.Message.StandIn(it.Key.Consumer), 0, "")
	return l
}

// ---- finished ------------------------------------------------------------------------------------------------------

func (m *Machine) finish(it *Item, f driver.Finish, s driver.Settlement, n TraceEvent) {
	f.Hold, f.Keep = it.hold, m.cfg.keep(f.Final, n.Decision == DroppedOnPurpose)
	s.Receipt = it.Receipt
	it.work, it.settlement, it.trace = driver.Work{Finish: f}, s, n
	if m.cfg.Mode == Joined || (m.cfg.Mode == Open && m.cfg.JoinedAck) {
		it.work.Ack = &it.settlement
	}
	if it.atCommit {
		// A commit without a response is repeated for a lease.
		it.work.Claim, it.leaseEnd = &it.claim, m.now+m.lease()-m.cfg.Guard
	}
	it.phase, it.tries, it.wakeAt, it.refusal = phFinishing, 0, 0, refusal{}
	m.releaseShare(it)
	m.endsSoon(it, true)
	l := &m.lanes[it.lane]
	l.finishes.push(it)
	if l.gathering == 0 {
		l.gathering = m.now
	}
}

func (m *Machine) pumpFinishes(i int) {
	l := &m.lanes[i]
	if l.finishing || l.finishes.len() == 0 || m.now < l.doneAt {
		return
	}
	n := min(l.finishes.len(), m.cfg.Batch)
	if n < m.cfg.Batch && l.running > 0 && m.now < l.gathering+m.flushDelay(l) {
		return
	}
	items, works := l.finishBuf.take(n)
	for range n {
		it := l.finishes.pop()
		it.refs++
		items, works = append(items, it), append(works, it.work)
	}
	l.finishing, l.finishAt, l.gathering = true, m.now, 0
	m.do(Action{Kind: ActionFinish, Lane: i, Items: items, Works: works})
}

// flushDelay is how long a flush waits for handlers that are about to return, so that it does not leave with the first of
// a hundred. It is a quarter of the time that a flush takes, and 0 if handlers take longer than that on average.
func (m *Machine) flushDelay(l *lane) time.Duration {
	if p := l.trip / 4; m.avgHandler < p {
		return p
	}
	return 0
}

// keep is how long the record of an attempt with this end is kept. The store keeps the record of a parked attempt forever,
// and after a late completion as that of a completed one.
func (c *Config) keep(f driver.Final, dropped bool) time.Duration {
	d := c.Keeps.Completed
	switch {
	case f == driver.Fail:
		d = c.Keeps.Failed
	case f == driver.Release:
		d = c.Keeps.Released
	case dropped:
		d = c.Keeps.Dropped
	}
	if d == 0 {
		return c.Keep
	}
	return d
}

func (m *Machine) onFinished(ev *Event) {
	l := &m.lanes[ev.Lane]
	alone := len(ev.Items) == 1 && ev.Items[0].refusal.apart
	if alone {
		l.writing = false
	} else {
		l.finishing, l.trip = false, m.now-l.finishAt
	}
	culprit, refused := errors.AsType[*driver.ItemError](ev.Err)
	if ev.Err == nil || refused {
		if !alone {
			l.tries, l.refused, l.noResponse = 0, 0, 0
		}
		m.storeUp()
	}
	if culprit != nil && culprit.Index >= 0 && culprit.Index < len(ev.Items) {
		m.excluded(ev, culprit, alone)
		return
	}
	var again []*Item
	for i, it := range ev.Items {
		it.refs--
		it.kept = it.kept || ev.Err != nil
		o := ev.outcome(i)
		switch o {
		case driver.Applied, driver.Recovered, driver.Settled:
			m.ends, m.writes = m.ends+1, m.writes+1
			m.durable(it, o == driver.Recovered)
		case driver.Lost:
			if it.atCommit {
				m.claimDurably(it)
				break
			}
			m.fenced(it)
		default:
			again = append(again, it)
		}
	}
	// The outcome is unknown: the same write is repeated until the store responds, or the lease has ended (law 4).
	keep := again[:0]
	for _, it := range again {
		if it.leaseEnd <= m.now {
			m.fenced(it) // the outcome is unknown: no ack, no release; the next delivery reads the record
			continue
		}
		m.scanBy(it.leaseEnd)
		keep = append(keep, it)
	}
	if len(keep) > 0 {
		m.unfinished(ev, keep, alone)
	} else if ev.Err != nil {
		m.unwritten(fmt.Errorf("finish %d attempts: %w", len(again), ev.Err))
	}
}

// excluded takes the item whose effects were refused out of a batch that was rolled back. The others are sent again, without
// another run of their handlers.
func (m *Machine) excluded(ev *Event, e *driver.ItemError, alone bool) {
	rest := make([]*Item, 0, len(ev.Items)-1)
	for i, it := range ev.Items {
		it.refs--
		it.kept = true
		if i != e.Index {
			rest = append(rest, it)
		}
	}
	m.lanes[ev.Lane].finishes.prepend(rest)
	it := ev.Items[e.Index]
	waits := errors.Is(e.Err, driver.ErrBlocked)
	switch {
	case waits && it.work.Effects == nil, e.Transient && !waits && !(alone && m.struck(it)):
		// The item need not be the cause.
		m.observe(TraceEvent{Kind: TraceTrouble, Item: it, Err: fmt.Errorf("finish the attempt of key %q: %w", it.Key.Raw, e.Err)})
		switch {
		case it.leaseEnd <= m.now:
			m.fenced(it)
		case alone:
			m.later(it, driver.ErrNotCommitted)
		default:
			m.goAlone(it)
		}
	default:
		m.judge(it, m.refusedEffects(it, ev, e.Err))
	}
}

// durable: the end of the attempt is in the store. The delivery is settled next.
func (m *Machine) durable(it *Item, recovered bool) {
	if it.releasing {
		m.releasing--
		it.releasing, it.work, it.leaseEnd = false, driver.Work{}, 0
		it.phase = phHeld
		m.endsSoon(it, false)
		m.quarantine.push(it)
		m.returnUnstarted()
		return
	}
	m.countFinished(it)
	if recovered {
		it.settlement.Close = driver.DeadLetterID(driver.DeadLetterUncertain, it.Key, it.hold.Token, "")
	}
	joined := it.work.Ack != nil
	it.work = driver.Work{}
	if joined && !recovered {
		m.settled(it, driver.Applied)
		return
	}
	m.queueSettle(it)
}

func (m *Machine) countFinished(it *Item) {
	c := &m.counts
	switch it.trace.Decision {
	case Executed:
		c.Effects++
		m.proven()
	case Replayed:
		c.Replayed++
	case DroppedOnPurpose:
		c.Dropped++
		m.proven()
	case Retried:
		c.Retried++
	case DeadLettered, ParkedUncertain:
		switch {
		case !it.ran:
			c.Rejected++
		case it.trace.Decision == DeadLettered:
			c.Dead++
		default:
			c.Uncertain++
		}
	}
}

// fenced: another worker owns the record, or our own deadline passed without a response. Nothing more is written: no ack, no
// release (law 2). The message is redelivered when its visibility ends. Where there is none, it is returned: otherwise it would
// stay with this worker for as long as its connection lasts.
func (m *Machine) fenced(it *Item) {
	if it.releasing {
		m.releasing--
		it.releasing = false
	}
	if it.ran {
		m.counts.Fenced++
	}
	if it.visEnd == 0 {
		m.settle(it, driver.Settlement{Action: driver.Defer}, TraceEvent{Decision: Fenced})
		return
	}
	it.trace = TraceEvent{Decision: Fenced}
	m.decide(it)
	m.recycle(it)
}

// ---- settled -------------------------------------------------------------------------------------------------------

func (m *Machine) settle(it *Item, s driver.Settlement, n TraceEvent) {
	s.Receipt = it.Receipt
	it.settlement, it.trace = s, n
	m.queueSettle(it)
}

func (m *Machine) queueSettle(it *Item) {
	it.phase, it.tries, it.wakeAt = phSettling, 0, 0
	m.releaseShare(it)
	m.endsSoon(it, true)
	m.settles.push(it)
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
	m.do(Action{Kind: ActionSettle, Items: items, Settlements: sets})
}

func (m *Machine) onSettled(ev *Event) {
	m.settling = false
	if ev.Err != nil {
		m.observe(TraceEvent{Kind: TraceTrouble, Err: fmt.Errorf("settle %d deliveries: %w", len(ev.Items), ev.Err)})
	}
	responded := false
	for i, it := range ev.Items {
		it.refs--
		o := ev.outcome(i)
		if o != driver.Unknown {
			responded = true
			m.settled(it, o)
			continue
		}
		// A lost ack costs one redelivery, which the record replays. So giving up is safe where the visibility or the consumer ends,
		// but a retry is cheaper. Elsewhere nothing else would settle the delivery.
		ends := it.visEnd > 0 || m.draining || m.cfg.Limit > 0
		if ends && it.tries >= settleTries || it.visEnd > 0 && it.visEnd <= m.now {
			m.counts.SettleFails++
			m.settled(it, driver.Unknown)
			continue
		}
		m.later(it, nil)
	}
	if m.settleErr++; responded || ev.Err == nil {
		m.settleErr = 0
	} else {
		m.settleAt = m.now + delay(m.settleErr)
	}
}

const settleTries = 6

func (m *Machine) settled(it *Item, o driver.Outcome) {
	m.decide(it)
	m.observe(TraceEvent{
		Kind: TraceSettled, Item: it, Action: it.settlement.Action, Outcome: o, After: it.settlement.After,
		Held: m.now - it.arrivedAt, Handled: it.handled,
	})
	m.recycle(it)
}

func (m *Machine) decide(it *Item) {
	n := it.trace
	n.Kind, n.Item = TraceDecided, it
	m.observe(n)
}

// returnDelivery returns an unstarted delivery at once: it spends no attempt.
func (m *Machine) returnDelivery(it *Item, after time.Duration) {
	m.counts.Returned++
	m.settle(it, driver.Settlement{Action: driver.Defer, After: after}, TraceEvent{Decision: Returned})
}

// ---- recycled ------------------------------------------------------------------------------------------------------

// recycle ends an item. Its local duplicates and its group go on.
func (m *Machine) recycle(it *Item) {
	if it.ended {
		return
	}
	it.ended = true
	m.counts.Fenced += int64(b2i(m.forgotten(it)))
	m.releaseShare(it)
	if it.leader {
		delete(m.leaders, it.Key)
		if it.migrating() {
			delete(m.leaders, it.NewKey)
		}
	}
	m.endsSoon(it, false)
	m.unlink(it)
	m.releaseDuplicates(it)
	m.leaveGroup(it)
	m.reuse(it)
}

// reuse frees an ended item when no action in flight names it anymore.
func (m *Machine) reuse(it *Item) {
	if it.ended && it.refs == 0 && it.phase != phFree {
		it.phase = phFree
		if !it.kept {
			m.freed = append(m.freed, it)
		}
	}
}
