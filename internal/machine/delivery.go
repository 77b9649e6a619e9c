package machine

import (
	"fmt"
	"strconv"
	"time"

	"github.com/semel-dev/semel/driver"
)

// A delivery's life: received → claimed → running (this file) → judged → finished → settled → recycled (finish.go).

// ---- received ------------------------------------------------------------------------------------------------------

// slowRun is the average handler time above which nothing is fetched ahead (slowBatch: of a batch in an open transaction). A
// fetch takes milliseconds, and a delivery that waits here is kept from other workers, which may be idle.
const (
	slowRun   = 50 * time.Millisecond
	slowBatch = 500 * time.Millisecond
)

// took records how long a handler ran for one message.
func (m *Machine) took(d time.Duration) {
	m.avgHandler, m.anyHandler = m.avgHandler+(d-m.avgHandler)/8, true
}

// most is how many deliveries may be in flight that are not being finished or settled.
func (m *Machine) most() int {
	slow, needed := m.avgHandler > slowRun, m.cfg.Concurrency
	if m.cfg.Mode == Open {
		slow, needed = m.avgHandler*time.Duration(m.cfg.Batch) > slowBatch, m.cfg.Batch*m.cfg.Lanes
	}
	if slow || !m.anyHandler {
		return min(needed, m.cfg.InFlight)
	}
	return m.cfg.InFlight
}

func (m *Machine) room() int {
	flight := m.cfg.Batch * m.cfg.Lanes
	most := m.ahead(m.most())
	waiting := min(m.waiting+m.following+m.quarantine.len(), m.cfg.InFlight) // they take no room
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
		// fetched as a probe.
		if m.now < m.downAt || m.inFlight > 0 {
			return
		}
		n = 1
	case m.brk.state != brkClosed:
		if !m.wants() {
			return
		}
		n = 1 // the trial
	case m.claimable > 0 && n < min(m.cfg.Batch, m.most())/2:
		return // there is work in flight: wait for a batch worth a round trip
	}
	m.receiving, m.asked = true, n
	m.do(Action{Kind: ActionReceive, Max: n})
}

func (m *Machine) onReceived(ev *Event) {
	m.receiving, m.backlog = false, len(ev.Arrivals) >= m.asked
	if ev.Err != nil {
		m.observe(TraceEvent{Kind: TraceTrouble, Err: ev.Err})
		m.receiveAt = m.now + delay(m.recvTries)
		m.recvTries++
	} else {
		m.recvTries = 0
	}
	for i := range ev.Arrivals {
		m.arrive(&ev.Arrivals[i], ev.Sent)
	}
}

func (m *Machine) arrive(a *Arrival, returned time.Duration) {
	it := m.newItem()
	it.Arrival, it.arrivedAt = *a, m.now
	if len(m.lanes) > 1 {
		it.lane = laneOf(a.Key.Raw, len(m.lanes))
		if m.cfg.Batched && m.cfg.Orders && a.Group != "" {
			it.lane = laneOf(a.Group, len(m.lanes)) // so that one batch can take several of a group
		}
	}
	if a.Visible > 0 {
		it.visAt, it.visEnd = returned, returned+a.Visible
		m.scanBy(it.visEnd)
		if a.Visible < m.cfg.Visibility {
			// The queue's timeout is shorter than the heartbeat assumes: the first one comes earlier.
			it.visAt -= m.cfg.Visibility - a.Visible
			m.beatAt = min(m.beatAt, returned+a.Visible/3)
		}
	}
	m.counts.Received++
	m.observe(TraceEvent{Kind: TraceReceived, Item: it})
	switch {
	case m.draining:
		m.returnDelivery(it, 0)
	case a.KeyErr != nil && !a.Unkeyed:
		m.rejectKey(it)
	case !m.wants():
		m.returnDelivery(it, m.shutFor())
	case m.cfg.Orders && a.Group != "":
		m.joinGroup(it)
	default:
		m.offer(it)
	}
}

// rejectKey dead-letters a message without a usable key: it cannot be protected, and it must not be lost.
func (m *Machine) rejectKey(it *Item) {
	m.counts.Rejected++
	what := "key_invalid: "
	if it.BadVersion {
		what = "version_invalid: "
	}
	l := m.newKeylessDeadLetter(it, what+it.KeyErr.Error())
	l.Key.Raw = ""
	m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: l},
		TraceEvent{Decision: DeadLettered, Reason: l.Reason})
}

// offer makes an item claimable. A local duplicate of an item in flight waits for that one's end instead: one process never
// runs a key twice at once (FM15).
func (m *Machine) offer(it *Item) {
	it.phase = phHeld
	switch {
	case m.draining:
		m.returnDelivery(it, 0)
		return
	case !m.wants():
		m.returnDelivery(it, m.shutFor())
		return
	}
	if it.unprotected() {
		if it.Count <= 1 && m.tooOld(it) {
			m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.newKeylessDeadLetter(it, m.oldReason(it))},
				TraceEvent{Decision: DeadLettered, Reason: m.oldReason(it)})
			return
		}
		m.enqueue(it)
		return
	}
	if first := m.leaderOf(it); first != nil {
		m.waitForLeader(it, first)
		return
	}
	it.leader = true
	m.leaders[it.Key] = it
	if it.migrating() {
		m.leaders[it.NewKey] = it
	}
	m.enqueue(it)
}

func (m *Machine) enqueue(it *Item) {
	if m.joinPool(it) {
		m.queueUp(it)
	}
}

func (m *Machine) queueUp(it *Item) {
	it.phase = phQueued
	l := &m.lanes[it.lane]
	if it.lined = m.cfg.Mode == Open && m.fitsTx(it); it.lined {
		l.tx.queue.push(it)
	} else {
		l.claims.push(it)
	}
	m.claimable++
}

// ---- claimed -------------------------------------------------------------------------------------------------------

// pumpClaims claims only for free slots (law 1). A delivery that waits for a slot extends its visibility, but holds no
// claim: if a message kills the process, the deliveries that wait are not charged.
func (m *Machine) pumpClaims(i int) {
	l := &m.lanes[i]
	if l.claiming || l.claims.len() == 0 || m.now < l.claimAt || m.inQuarantine() {
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
		return // a small batch: more deliveries are on their way, and the lane is not idle
	}
	if n < min(l.claims.len(), m.cfg.Batch) && m.running > 0 && m.now < m.lastStart+m.flushDelay(l) {
		return // the slots of a batch become free one by one
	}
	ahead := m.claimsAhead(l)
	items, claims := l.claimBuf.take(n)
	for range n {
		if it := l.claims.first(); it.unrecorded == nil {
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
	m.do(Action{Kind: ActionClaim, Lane: i, Items: items, Claims: claims})
}

// claimOf makes the claim of an item. A claim whose outcome is unknown is repeated with the same nonce (law 5). Any other
// gets a fresh one.
func (m *Machine) claimOf(it *Item) driver.Claim {
	if !it.asked {
		it.nonce = m.cfg.Nonce()
		it.asked = true
	}
	it.leased = m.lease()
	c := driver.Claim{
		Key: it.Key, NewKey: it.NewKey, Nonce: it.nonce, Fingerprint: it.Fingerprint, DeliveryID: it.ID,
		BodyDigest: it.BodyDigest, WholeBody: it.WholeBody,
		Lease: it.leased, Takeover: m.cfg.Takeover,
		Version: it.Version, After: it.After, NoWait: m.cannotWait(it), AtCommit: m.mayClaimAtCommit(it),
	}
	if c.AtCommit {
		it.claim = c
	}
	return c
}

func (m *Machine) probing() bool {
	for i := range m.lanes {
		if m.lanes[i].claiming {
			return true
		}
	}
	return false
}

func (m *Machine) onClaimed(ev *Event) {
	l := &m.lanes[ev.Lane]
	l.claiming = false
	own := m.ownError(ev)
	if ev.Err != nil && !own {
		m.unwritten(fmt.Errorf("claim %d keys: %w", len(ev.Items), ev.Err))
		if !m.down { // else downAt says when
			l.claimAt = m.now + delayAfter(ev.Err, l.claimTries, ev.Items[0].nonce)
			l.claimTries++
		}
	} else if !own {
		l.claimTries = 0
	}
	m.boundClaims(l, len(ev.Items), ev.Err)
	var again []*Item
	for i, it := range ev.Items {
		it.refs--
		m.busy--
		switch {
		case ev.Err == nil && ev.Grants[i].Err != nil:
			m.unclaimed(it, ev.Grants[i].Err)
		case ev.Err != nil && own:
			m.unclaimed(it, ev.Err)
		case ev.Err != nil:
			// The outcome is unknown: the claim may be ours. It is repeated with the same nonce, in the same place (laws 4, 5).
			if m.quarantined == it {
				m.releaseShare(it)
				it.phase = phHeld
				m.quarantine.prepend([]*Item{it})
				break
			}
			it.phase = phQueued
			m.requeued(it)
			m.scanVisibility(it)
			again = append(again, it)
		default:
			m.storeUp()
			m.writes += b2i(ev.Grants[i].Verdict == driver.Acquired && ev.Grants[i].Hold.Token > 0)
			it.tries = 0
			m.granted(it, &ev.Grants[i], ev.Sent)
		}
		if it.phase != phRunning && it.phase != phTx {
			m.endQuarantine(it)
		}
	}
	if m.claimable += len(again); len(ev.Items) == 1 && len(again) == 1 {
		l.claims.push(again[0]) // the next probe is another's
	} else {
		l.claims.prepend(again)
	}
	m.returnUnstarted()
}

func (m *Machine) granted(it *Item, g *driver.Grant, sent time.Duration) {
	it.asked, it.preclaimed, it.refusal.responses = false, false, 0
	it.grant, it.hold = *g, g.Hold
	if g.Verdict != driver.Acquired {
		m.releaseShare(it)
	}
	switch g.Verdict {
	case driver.Acquired:
		m.acquired(it, sent)
	case driver.Busy:
		if g.Gap {
			m.waitForGap(it, g)
			return
		}
		m.busyElsewhere(it, g)
	case driver.Replay:
		m.replay(it, g)
	case driver.Failed:
		m.counts.Rejected++
		if g.Disposed {
			m.settle(it, driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: DeadLettered, Duplicate: cause(g), Reason: "discarded earlier"})
			return
		}
		m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterFailed, g.Reason)},
			TraceEvent{Decision: DeadLettered, Duplicate: cause(g), Reason: g.Reason + notInDeadLetter(g)})
	case driver.Parked:
		// The worker that parked it may have crashed before it wrote the dead letter: write it again (FM77).
		m.counts.Rejected++
		m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterUncertain, g.Reason)},
			TraceEvent{Decision: ParkedUncertain, Duplicate: cause(g), Reason: g.Reason + notInDeadLetter(g)})
	case driver.Mismatch:
		m.mismatch(it, g)
	case driver.Stale:
		m.stale(it, g)
	case driver.Late:
		m.late(it, g)
	}
}

func cause(g *driver.Grant) DuplicateCause {
	if g.Redelivery {
		return Redelivery
	}
	return ProducerDuplicate
}

// replay acks a duplicate of a completed key.
func (m *Machine) replay(it *Item, g *driver.Grant) {
	n := TraceEvent{Decision: Replayed, Duplicate: cause(g)}
	if it.ran && g.Hold.Nonce == it.nonce {
		// Open mode: the outcome of our commit was unknown. Our nonce in the record shows that it was applied.
		m.counts.Effects++
		m.proven()
		n = TraceEvent{Decision: Executed}
	} else {
		m.counts.Replayed++
		if g.OtherPayload {
			m.counts.OtherPayload++
			n.Decision, n.Reason = ReplayedOtherPayload, otherPayload
		}
	}
	s := driver.Settlement{Action: driver.Ack}
	if g.Uncertainty > 0 && g.Hold.Version == it.Version { // else the dead letter is a newer version's
		s.Close = driver.DeadLetterID(driver.DeadLetterUncertain, it.deadLetterKey(), g.Hold.Token, "")
	}
	m.settle(it, s, n)
}

// busyElsewhere returns a duplicate of a key in progress. It is never acked, because the run may still fail (FM16).
func (m *Machine) busyElsewhere(it *Item, g *driver.Grant) {
	if m.failsBusy(it, g.Redelivery) {
		m.failBusy(it, cause(g))
		return
	}
	m.counts.Busy++
	wait := g.Wait + jitter(it.nonce, g.Wait/8+5*time.Millisecond)
	if it.group != nil && !m.draining && m.brk.state != brkOpen {
		// The head of an ordered group is kept in flight, and holds its group (law 6).
		it.phase, it.wakeAt = phHeld, m.now+wait
		m.scanBy(it.wakeAt)
		m.stopGroup(it)
		m.observe(TraceEvent{Kind: TraceDecided, Item: it, Decision: BusyDeferred, Duplicate: cause(g), After: wait})
		return
	}
	// The delay doubles, so that duplicates of a long run are not redelivered all the time. It is at most a lease, because the
	// run may end long before. If the broker counts deliveries, it is at most MaxRuntime, so that they stay few.
	most := m.cfg.Lease
	if m.cfg.Redrives {
		most = m.cfg.MaxRuntime
	}
	for n := 1; n < it.Count && wait < most; n++ {
		wait *= 2
	}
	wait = max(min(wait, most), g.Wait)
	m.settle(it, driver.Settlement{Action: driver.Defer, After: wait},
		TraceEvent{Decision: BusyDeferred, Duplicate: cause(g), After: wait})
}

func (m *Machine) acquired(it *Item, sent time.Duration) {
	g := &it.grant
	if it.atCommit = m.cfg.AtCommit && g.Hold.Token == 0; it.atCommit {
		m.unclaimedYet(it)
		return
	}
	it.leaseAt, it.leaseEnd = sent, sent+it.leased-m.cfg.Guard
	it.beats = 0
	m.scanBy(it.leaseEnd)
	if g.Takeovers > 0 && m.quarantined != it { // else it was counted at its first claim
		m.counts.TakenOver++
		// The doubt is about the run before this one, whose token is not known here.
		m.observe(TraceEvent{Kind: TraceDoubt, Item: it, Attempt: g.Attempt - 1, Reason: "its worker crashed or lost its lease: attempt " +
			strconv.Itoa(g.Attempt) + " takes over"})
	}
	switch {
	case it.unrecorded != nil:
		failed := it.unrecorded
		it.unrecorded = nil
		m.judge(it, failed)
	case m.draining || it.leaseEnd <= m.now:
		// Too late to start: the store responded slowly (FM36), or the worker stops.
		m.releaseUnstarted(it, Returned)
	case !m.admits(it):
		m.releaseFor(it, Returned, m.shutFor())
	case m.tooOld(it):
		m.deadLetter(it, m.oldReason(it), driver.Unstarted)
	case g.Unknown && g.Takeover == driver.Once:
		m.park(it, "the outcome of an earlier run is unknown and the policy is once")
	case g.Takeovers > driver.QuarantineAfter+1 && g.Failures+g.Takeovers-driver.QuarantineAfter >= m.cfg.MaxAttempts:
		// Exhausted by runs that crashed or lost their lease, the last of them all alone (law 12).
		reason := fmt.Sprintf("%d attempts; the last workers crashed or lost their lease", g.Attempt-1)
		if g.Unknown {
			m.park(it, reason)
		} else {
			m.deadLetter(it, reason, driver.Unstarted)
		}
	case g.Unknown && g.Takeover == driver.Probe && !m.cfg.Probes:
		// The record was made by a worker with a probe. This one has none, and must not weaken the policy (FM82).
		m.park(it, "the outcome of an earlier run is unknown, and this worker has no probe")
	case m.quarantined == it && m.fitsBeside(it):
		m.busy++
		m.run(it)
	case g.Takeovers >= driver.QuarantineAfter:
		// It may have killed its process twice: it runs in quarantine, so that others are not charged for it (FM83).
		it.phase = phQuarantine
		m.busy++
		m.quarantine.push(it)
	case m.cfg.Mode == Open && !m.mustProbe(it):
		m.enqueuePreclaimed(it)
	default:
		m.busy++
		m.start(it)
	}
}

// unclaimedYet starts an item whose key has no record: its commit claims it. Until then it owns nothing that it could release.
func (m *Machine) unclaimedYet(it *Item) {
	switch {
	case m.draining:
		m.returnDelivery(it, 0)
	case !m.admits(it):
		m.returnDelivery(it, m.shutFor())
	default:
		m.busy++
		m.start(it)
	}
}

func (m *Machine) mustProbe(it *Item) bool {
	return it.grant.Unknown && it.grant.Takeover == driver.Probe && m.cfg.Probes
}

// run starts an item that holds its claim and a slot. In open mode it runs in a transaction of its own.
func (m *Machine) run(it *Item) {
	if m.cfg.Mode == Open && !m.mustProbe(it) {
		m.busy--
		it.preclaimed, it.asked = true, true
		m.begin(it.lane, append(m.lanes[it.lane].tx.items[:0], it))
		return
	}
	m.start(it)
}

// ---- running -------------------------------------------------------------------------------------------------------

func (m *Machine) start(it *Item) {
	it.phase, it.paid = phRunning, false
	it.startedAt, m.lastStart = m.now, m.now
	it.cancelled = NoCause
	m.running++
	m.lanes[it.lane].running++
	if m.cfg.Timeout > 0 {
		m.scanBy(m.now + m.cfg.Timeout)
	}
	m.scanBy(m.now + m.cfg.MaxRuntime)
	j := Job{
		Hold: it.hold, Attempt: it.grant.Attempt, Deadline: it.leaseEnd, Unknown: it.grant.Unknown,
		Unprotected: it.unprotected(), AtCommit: it.atCommit,
	}
	if it.atCommit {
		j.Deadline = m.now + m.cfg.MaxRuntime
	}
	j.Probe = m.mustProbe(it)
	if !j.Probe {
		it.ran = true
		m.counts.Executed++
		m.observe(TraceEvent{Kind: TraceStarted, Item: it, Takeover: it.grant.Takeovers > 0})
	}
	it.refs++
	m.do(Action{Kind: ActionRun, Item: it, Job: j})
	m.runs(it, true)
	m.failLocal(it)
}

func (m *Machine) onRan(ev *Event) {
	it, r := ev.Item, &ev.Result
	it.refs--
	m.running--
	m.runs(it, false)
	switch {
	case it.phase == phTx && m.cfg.Batched:
		m.ranBatch(ev)
		return
	case it.phase == phTx:
		m.ranInTx(it, r)
		return
	}
	m.lanes[it.lane].running--
	m.busy--
	m.took(m.now - it.startedAt)
	still := m.quarantined == it
	m.endQuarantine(it)
	if r.Probe == NotProbed || r.Class == Unavailable {
		m.countRun(it, r)
	}
	switch r.Probe {
	case NotProbed:
		m.runEnded(it, r.Err, m.now-it.startedAt)
		m.judge(it, r)
	case ProbeApplied:
		m.finish(it, driver.Finish{Final: driver.Complete, Result: r.Value, Reason: "found applied by the probe"},
			driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: Replayed, Reason: "found applied by the probe"})
	case ProbeNotApplied:
		if it.cancelled != NoCause || it.lost || it.leaseEnd <= m.now || m.draining {
			// No run begins after the machine's own deadline, whatever woke it up first (FM2).
			m.releaseUnstarted(it, Returned)
			break
		}
		if !m.admits(it) {
			m.releaseFor(it, Returned, m.shutFor())
			break
		}
		it.grant.Unknown = false
		switch {
		case it.grant.Takeovers >= driver.QuarantineAfter && still:
			m.busy++
			m.quarantined = it
			m.run(it)
		case it.grant.Takeovers >= driver.QuarantineAfter:
			it.phase = phQuarantine // others may have started meanwhile: it waits for its next turn
			m.busy++
			m.quarantine.push(it)
		case m.cfg.Mode == Open:
			m.enqueuePreclaimed(it)
		default:
			m.busy++
			m.start(it)
		}
	case ProbeUnknown:
		if r.Class == Unavailable && !it.lost {
			m.releaseFor(it, Returned, m.afterOutage(it, r)) // the probe can be asked later: no doubt remains
			break
		}
		m.park(it, "the probe could not tell whether the effect happened")
	}
}
