package machine

import (
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is one delivery's life, top to bottom: received → claimed → run → finished → settled → gone.

// ---- received ------------------------------------------------------------------------------------------------------

func (m *Machine) onReceived(ev *Event) {
	m.receiving = false
	if ev.Err != nil {
		m.observe(Note{Kind: NoteTrouble, Err: ev.Err})
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
	it.Arrival = *a
	if len(m.lanes) > 1 {
		it.lane = laneOf(a.Key.Raw, len(m.lanes))
	}
	if a.Visible > 0 {
		it.visAt, it.visEnd = returned, returned+a.Visible
		m.scanBy(it.visEnd)
		if a.Visible < m.cfg.Visibility {
			// The queue hands out less than a heartbeat is planned for: the first one comes earlier.
			it.visAt -= m.cfg.Visibility - a.Visible
			m.beatAt = min(m.beatAt, returned+a.Visible/3)
		}
	}
	m.counts.Received++
	m.observe(Note{Kind: NoteReceived, Item: it})
	switch {
	case m.draining:
		m.giveBack(it, 0)
	case a.KeyErr != nil && !a.Unkeyed:
		m.rejectKey(it)
	case m.cfg.Orders && a.Group != "":
		m.joinGroup(it)
	default:
		m.offer(it)
	}
}

// rejectKey makes a letter of a message that has no usable key: it cannot be protected, and it must not be lost.
func (m *Machine) rejectKey(it *Item) {
	m.counts.Rejected++
	l := m.letter(it, driver.LetterDead, "key_invalid: "+it.KeyErr.Error())
	l.Key.Raw = ""
	// There is no key and no token to name the letter by: the message id tells two such messages apart.
	l.ID = driver.LetterID(driver.LetterDead, driver.Key{Consumer: it.Key.Consumer, Raw: "message\x00" + it.ID}, 0, "")
	m.settle(it, driver.Settlement{Action: driver.Dead, Letter: l},
		Note{Decision: DeadLettered, Reason: l.Reason})
}

// offer makes an item claimable, unless its twin is in hand already: then it waits for the twin's end (one process
// never runs a key twice at once, FM15).
func (m *Machine) offer(it *Item) {
	it.phase = phHeld
	if m.draining {
		m.giveBack(it, 0)
		return
	}
	if it.unprotected() {
		m.enqueue(it)
		return
	}
	if first := m.leaders[it.Key]; first != nil {
		m.follow(it, first)
		return
	}
	it.leader = true
	m.leaders[it.Key] = it
	m.enqueue(it)
}

func (m *Machine) enqueue(it *Item) {
	it.phase = phQueued
	l := &m.lanes[it.lane]
	if m.cfg.Mode == Open && m.fitsTx(it) {
		l.tx.queue.push(it)
	} else {
		l.claims.push(it)
	}
	m.claimable++
}

// ---- claimed -------------------------------------------------------------------------------------------------------

func (m *Machine) onClaimed(ev *Event) {
	l := &m.lanes[ev.Lane]
	l.claiming = false
	m.busy -= len(ev.Items)
	if ev.Err != nil {
		m.storeDown(fmt.Errorf("claim %d keys: %w", len(ev.Items), ev.Err))
	}
	var again []*Item
	for i, it := range ev.Items {
		it.refs--
		switch {
		case ev.Err != nil || ev.Grants[i].Err != nil:
			// Unanswered: the claim may be ours. It is repeated with the same nonce, in the same place (laws 4, 5).
			if ev.Err == nil {
				m.observe(Note{Kind: NoteTrouble, Item: it, Err: ev.Grants[i].Err})
				l.claimAt = m.now + delay(it.tries)
				it.tries++
			}
			it.phase = phQueued
			again = append(again, it)
		default:
			m.storeUp()
			it.tries = 0
			m.granted(it, &ev.Grants[i], ev.Sent)
		}
	}
	if len(again) > 0 {
		l.claims.pushFront(again)
		m.claimable += len(again)
		if m.draining {
			m.drainItems()
		}
	}
}

func (m *Machine) granted(it *Item, g *driver.Grant, sent time.Duration) {
	it.asked = false
	it.grant, it.hold = *g, g.Hold
	switch g.Verdict {
	case driver.Acquired:
		m.acquired(it, sent)
	case driver.Busy:
		m.busyElsewhere(it, g)
	case driver.Replay:
		m.replay(it, g)
	case driver.Failed:
		m.counts.Rejected++
		if g.Disposed {
			m.settle(it, driver.Settlement{Action: driver.Ack}, Note{Decision: DeadLettered, Duplicate: cause(g), Reason: "discarded earlier"})
			return
		}
		m.settle(it, driver.Settlement{Action: driver.Dead, Letter: m.letter(it, driver.LetterDead, g.Reason)},
			Note{Decision: DeadLettered, Duplicate: cause(g), Reason: g.Reason})
	case driver.Parked:
		// The answer of the write that parked it may have been lost before its letter was written: make sure (FM77).
		m.counts.Rejected++
		m.settle(it, driver.Settlement{Action: driver.Dead, Letter: m.letter(it, driver.LetterUncertain, g.Reason)},
			Note{Decision: ParkedUncertain, Duplicate: cause(g), Reason: g.Reason})
	case driver.Mismatch:
		m.counts.Mismatched++
		reason := "the key was used with another payload"
		m.settle(it, driver.Settlement{Action: driver.Dead, Letter: m.letter(it, driver.LetterMismatch, reason)},
			Note{Decision: Mismatched, Duplicate: cause(g), Reason: reason})
	}
}

func cause(g *driver.Grant) DuplicateCause {
	if g.Redelivery {
		return Redelivery
	}
	return ProducerDuplicate
}

// replay answers a duplicate of a completed key.
func (m *Machine) replay(it *Item, g *driver.Grant) {
	n := Note{Decision: Replayed, Duplicate: cause(g)}
	if it.ran && g.Hold.Nonce == it.nonce {
		// Open mode: the commit was not answered, and this is the answer: it was applied, by us.
		m.counts.Effects++
		n = Note{Decision: Executed}
	} else {
		m.counts.Replayed++
	}
	s := driver.Settlement{Action: driver.Ack}
	if g.Uncertainty > 0 {
		s.Close = driver.LetterID(driver.LetterUncertain, it.Key, g.Hold.Token, "")
	}
	m.settle(it, s, n)
}

// busyElsewhere gives a duplicate of a key in progress back: never acked, because the run may still fail (FM16).
func (m *Machine) busyElsewhere(it *Item, g *driver.Grant) {
	m.counts.Busy++
	wait := g.Wait + jitter(it.nonce, g.Wait/8+5*time.Millisecond)
	if it.group != nil && !m.draining {
		// The head of an ordered group is kept in hand, and holds its group (law 6).
		it.phase, it.wakeAt = phHeld, m.now+wait
		m.scanBy(it.wakeAt)
		m.stopGroup(it)
		m.observe(Note{Kind: NoteDecided, Item: it, Decision: BusyDeferred, Duplicate: cause(g), After: wait})
		return
	}
	for n := 1; n < it.Count && wait < m.cfg.MaxRuntime; n++ {
		wait *= 2
	}
	wait = max(min(wait, m.cfg.MaxRuntime), g.Wait)
	m.settle(it, driver.Settlement{Action: driver.Defer, After: wait},
		Note{Decision: BusyDeferred, Duplicate: cause(g), After: wait})
}

func (m *Machine) acquired(it *Item, sent time.Duration) {
	g := &it.grant
	it.leaseAt, it.leaseEnd = sent, sent+m.cfg.Lease-m.cfg.Guard
	m.scanBy(it.leaseEnd)
	if g.Takeovers > 0 {
		m.counts.TakenOver++
		m.observe(Note{Kind: NoteDoubt, Item: it, Reason: "taken over from a run that ended without a word"})
	}
	switch {
	case it.condemned != nil:
		m.judge(it, it.condemned)
	case m.draining || it.leaseEnd <= m.now:
		// Too late to start: the store answered slowly (FM36), or the worker stops.
		m.finish(it, driver.Finish{Final: driver.Release, Ran: driver.Unstarted},
			driver.Settlement{Action: driver.Defer}, Note{Decision: GivenBack})
	case g.Unknown && g.Takeover == driver.Once:
		m.park(it, "the outcome of an earlier run is unknown and the policy is once")
	case g.Failures+max(0, g.Takeovers-2) >= m.cfg.MaxAttempts:
		// Exhausted by runs that ended without a word, the last of them alone (law 12).
		reason := fmt.Sprintf("%d attempts, the last ones ended without a word", g.Attempt-1)
		if g.Unknown {
			m.park(it, reason)
		} else {
			m.bury(it, reason)
		}
	case m.cfg.Mode == Open:
		m.enqueueSolo(it)
	case g.Takeovers >= 2:
		// It may have killed its process twice: it runs alone, so that it takes no others with it (FM83).
		it.phase = phReady
		m.busy++
		m.ready.push(it)
		m.startReady()
	default:
		m.busy++
		m.start(it)
	}
}

// startReady starts the run of one that has to be alone, when it is.
func (m *Machine) startReady() {
	if m.alone != nil || m.running > 0 || m.ready.len() == 0 {
		return
	}
	m.alone = m.ready.pop()
	m.start(m.alone)
}

// ---- run -----------------------------------------------------------------------------------------------------------

func (m *Machine) start(it *Item) {
	it.phase = phRunning
	it.startedAt = m.now
	it.cancelled = NoCause
	m.running++
	if m.cfg.Timeout > 0 {
		m.scanBy(m.now + m.cfg.Timeout)
	}
	m.scanBy(m.now + m.cfg.MaxRuntime)
	j := Job{
		Hold: it.hold, Attempt: it.grant.Attempt, Deadline: it.leaseEnd, Unknown: it.grant.Unknown,
		Unprotected: it.unprotected(),
	}
	j.Probe = it.grant.Unknown && it.grant.Takeover == driver.Probe && m.cfg.Probes
	if !j.Probe {
		it.ran = true
		m.counts.Executed++
		m.observe(Note{Kind: NoteStarted, Item: it, Takeover: it.grant.Takeovers > 0})
	}
	it.refs++
	m.act(Action{Kind: ActRun, Item: it, Job: j})
}

func (m *Machine) onRan(it *Item, r *Result) {
	it.refs--
	m.running--
	if it.phase == phTx {
		m.ranInTx(it, r)
		return
	}
	m.busy--
	if m.alone == it {
		m.alone = nil
	}
	switch r.Probe {
	case NotProbed:
		m.observe(Note{Kind: NoteEnded, Item: it, Err: r.Err, After: m.now - it.startedAt})
		m.judge(it, r)
	case ProbeApplied:
		m.finish(it, driver.Finish{Final: driver.Complete, Result: r.Value, Reason: "found applied by the probe"},
			driver.Settlement{Action: driver.Ack}, Note{Decision: Replayed, Reason: "found applied by the probe"})
	case ProbeNotApplied:
		if it.cancelled != NoCause || it.lost {
			m.finish(it, driver.Finish{Final: driver.Release, Ran: driver.Unstarted},
				driver.Settlement{Action: driver.Defer}, Note{Decision: GivenBack})
			break
		}
		it.grant.Unknown = false
		m.busy++
		if it.grant.Takeovers >= 2 {
			m.alone = it
		}
		m.start(it)
	case ProbeUnknown:
		m.park(it, "the probe could not tell whether the effect happened")
	}
	m.startReady()
}

// judge decides what becomes of a run. A loser of its lease writes nothing (law 2).
func (m *Machine) judge(it *Item, r *Result) {
	if it.unprotected() {
		m.judgeUnkeyed(it, r)
		return
	}
	if it.lost || (it.cancelled == CauseFenced && r.Class != OK) {
		// Definitely lost, or failed after our own deadline: no ack, no release. A success after our own deadline is
		// still worth its guarded completion: the store decides.
		m.fenced(it)
		return
	}
	switch {
	case r.Class == OK:
		m.complete(it, r)
	case r.Class == Dropped:
		m.finish(it, driver.Finish{Final: driver.Complete, Reason: "dropped: " + reasonOf(r)},
			driver.Settlement{Action: driver.Ack}, Note{Decision: DroppedOnPurpose, Reason: reasonOf(r)})
	case it.grant.Takeover == driver.Once && !r.NotApplied:
		m.park(it, "the run failed and nobody knows whether its effect happened: "+reasonOf(r))
	case r.Class == Permanent:
		m.bury(it, reasonOf(r))
	case it.cancelled == CauseDraining && r.Class == Failed:
		m.release(it, r, 0, true, driver.Defer, Note{Decision: Retried, Reason: "cancelled: the worker stops"})
	case r.Class == Deferred:
		m.release(it, r, r.After, true, driver.Defer, Note{Decision: Retried, Reason: reasonOf(r)})
	case it.grant.Failures+1 >= m.cfg.MaxAttempts:
		m.bury(it, fmt.Sprintf("%s (attempt %d of %d)", reasonOf(r), it.grant.Attempt, m.cfg.MaxAttempts))
	default:
		after := m.backoff(it.grant.Failures, it.nonce)
		if r.HasAfter {
			after = r.After
		}
		m.release(it, r, after, false, driver.Retry, Note{Decision: Retried, Reason: reasonOf(r)})
	}
}

func reasonOf(r *Result) string {
	if r.Err == nil {
		return ""
	}
	return r.Err.Error()
}

// judgeUnkeyed settles a run without protection: the broker's redelivery is all there is.
func (m *Machine) judgeUnkeyed(it *Item, r *Result) {
	m.counts.Unprotected++
	switch r.Class {
	case OK, Dropped:
		m.settle(it, driver.Settlement{Action: driver.Ack}, Note{Decision: Unprotected})
	case Permanent:
		l := m.letter(it, driver.LetterDead, reasonOf(r))
		l.ID = driver.LetterID(driver.LetterDead, driver.Key{Consumer: it.Key.Consumer, Raw: "message\x00" + it.ID}, 0, "")
		m.settle(it, driver.Settlement{Action: driver.Dead, Letter: l}, Note{Decision: Unprotected, Reason: l.Reason})
	default:
		m.settle(it, driver.Settlement{Action: driver.Retry, After: m.backoff(max(it.Count-1, 0), m.cfg.Nonce())},
			Note{Decision: Unprotected, Reason: reasonOf(r)})
	}
}

func (m *Machine) complete(it *Item, r *Result) {
	f := driver.Finish{Final: driver.Complete, Result: r.Value}
	if m.cfg.ResultMax > 0 && len(r.Value) > m.cfg.ResultMax {
		// The effect happened: a result that cannot be stored must not make it happen again (FM58).
		f.Result, f.Reason = nil, fmt.Sprintf("result of %d bytes was not stored: more than %d", len(r.Value), m.cfg.ResultMax)
	}
	m.finish(it, f, driver.Settlement{Action: driver.Ack}, Note{Decision: Executed, Reason: f.Reason})
	it.work.Effects, it.work.Emit = r.Effects, r.Emit
}

func (m *Machine) release(it *Item, r *Result, after time.Duration, refund bool, a driver.Action, n Note) {
	f := driver.Finish{Final: driver.Release, Ran: driver.MaybeApplied, Refund: refund, RetryAfter: after, Reason: reasonOf(r)}
	if r.NotApplied {
		f.Ran = driver.NotApplied
	} else {
		m.observe(Note{Kind: NoteDoubt, Item: it, Reason: "the run failed after it had begun: " + f.Reason})
	}
	n.After = after
	m.finish(it, f, driver.Settlement{Action: a, After: after}, n)
}

// bury fails the key for good; its letter follows.
func (m *Machine) bury(it *Item, reason string) {
	m.finish(it, driver.Finish{Final: driver.Fail, Reason: reason},
		driver.Settlement{Action: driver.Dead, Letter: m.letter(it, driver.LetterDead, reason)},
		Note{Decision: DeadLettered, Reason: reason})
}

// park sets the key aside for a person; its letter follows.
func (m *Machine) park(it *Item, reason string) {
	m.finish(it, driver.Finish{Final: driver.Park, Reason: reason},
		driver.Settlement{Action: driver.Dead, Letter: m.letter(it, driver.LetterUncertain, reason)},
		Note{Decision: ParkedUncertain, Reason: reason})
	m.observe(Note{Kind: NoteDoubt, Item: it, Reason: reason})
}

func (m *Machine) letter(it *Item, kind driver.LetterKind, reason string) *driver.Letter {
	return &driver.Letter{
		ID: driver.LetterID(kind, it.Key, it.hold.Token, it.Fingerprint), Kind: kind, Reason: reason,
		Key: it.Key, Generation: it.hold.Generation, Token: it.hold.Token, Attempts: it.grant.Attempt,
		Message: it.Message, FirstReceived: it.grant.Created,
	}
}

// ---- finished ------------------------------------------------------------------------------------------------------

func (m *Machine) finish(it *Item, f driver.Finish, s driver.Settlement, n Note) {
	f.Hold, f.Keep = it.hold, m.cfg.Keep
	s.Receipt = it.Receipt
	it.work, it.settlement, it.note = driver.Work{Finish: f}, s, n
	if m.cfg.Mode == Joined || (m.cfg.Mode == Open && m.cfg.JoinedAck) {
		it.work.Ack = &it.settlement
	}
	it.phase, it.tries = phFinishing, 0
	m.lanes[it.lane].finishes.push(it)
}

func (m *Machine) onFinished(ev *Event) {
	l := &m.lanes[ev.Lane]
	l.finishing = false
	if ev.Err == nil {
		l.tries = 0
		m.storeUp()
	}
	var culprit *driver.ItemError
	if errors.As(ev.Err, &culprit) && culprit.Index >= 0 && culprit.Index < len(ev.Items) {
		m.excluded(ev, culprit)
		return
	}
	var again []*Item
	for i, it := range ev.Items {
		it.refs--
		o := driver.Unknown
		if ev.Err == nil || i < len(ev.Outcomes) {
			o = ev.Outcomes[i]
		}
		switch o {
		case driver.Applied, driver.Recovered, driver.Settled:
			m.durable(it, o == driver.Recovered)
		case driver.Lost:
			m.fenced(it)
		default:
			again = append(again, it)
		}
	}
	if len(again) == 0 {
		return
	}
	// Unanswered: the same write again until there is an answer, or the lease has passed (law 4).
	if ev.Err != nil {
		err := fmt.Errorf("finish %d attempts: %w", len(again), ev.Err)
		if errors.Is(ev.Err, driver.ErrNotCommitted) {
			m.observe(Note{Kind: NoteTrouble, Err: err})
		} else {
			m.storeDown(err)
		}
	}
	l.doneAt = m.now + delay(l.tries)
	l.tries++
	keep := again[:0]
	for _, it := range again {
		it.tries++
		if it.leaseEnd <= m.now {
			m.fenced(it) // nobody knows: no ack, no release; the record tells the next one
			continue
		}
		m.scanBy(it.leaseEnd)
		keep = append(keep, it)
	}
	l.finishes.pushFront(keep)
}

// excluded takes the item whose effects were refused out of a batch that was rolled back, and sends the rest again:
// their handlers do not run again.
func (m *Machine) excluded(ev *Event, e *driver.ItemError) {
	rest := make([]*Item, 0, len(ev.Items)-1)
	for i, it := range ev.Items {
		it.refs--
		if i != e.Index {
			rest = append(rest, it)
		}
	}
	m.lanes[ev.Lane].finishes.pushFront(rest)
	m.judge(ev.Items[e.Index], &Result{Class: Failed, NotApplied: true, Err: fmt.Errorf("effects refused: %w", e.Err)})
}

// durable: the end of the attempt is in the store. What remains is to tell the queue.
func (m *Machine) durable(it *Item, recovered bool) {
	m.countFinished(it)
	if recovered {
		it.settlement.Close = driver.LetterID(driver.LetterUncertain, it.Key, it.hold.Token, "")
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
	switch it.note.Decision {
	case Executed:
		c.Effects++
	case Replayed:
		c.Replayed++
	case DroppedOnPurpose:
		c.Dropped++
	case Retried:
		c.Retried++
	case DeadLettered, ParkedUncertain:
		switch {
		case !it.ran:
			c.Rejected++
		case it.note.Decision == DeadLettered:
			c.Dead++
		default:
			c.Uncertain++
		}
	}
}

// fenced: somebody else owns the record, or our own deadline passed without an answer. Nothing more is written: no
// ack, no release (law 2).
func (m *Machine) fenced(it *Item) {
	if it.ran {
		m.counts.Fenced++
	}
	it.note = Note{Decision: Fenced}
	m.decide(it)
	m.gone(it)
}

// ---- settled -------------------------------------------------------------------------------------------------------

func (m *Machine) settle(it *Item, s driver.Settlement, n Note) {
	s.Receipt = it.Receipt
	it.settlement, it.note = s, n
	m.queueSettle(it)
}

func (m *Machine) queueSettle(it *Item) {
	it.phase, it.tries = phSettling, 0
	m.settles.push(it)
}

func (m *Machine) onSettled(ev *Event) {
	m.settling = false
	if ev.Err != nil {
		m.observe(Note{Kind: NoteTrouble, Err: fmt.Errorf("settle %d deliveries: %w", len(ev.Items), ev.Err)})
	}
	var again []*Item
	for i, it := range ev.Items {
		it.refs--
		o := driver.Unknown
		if i < len(ev.Outcomes) {
			o = ev.Outcomes[i]
		}
		if o != driver.Unknown {
			m.settled(it, o)
			continue
		}
		it.tries++
		// A lost ack costs a redelivery that is answered from the record, so giving up is safe; trying is cheaper.
		if it.tries > settleTries || (it.visEnd > 0 && it.visEnd <= m.now) {
			m.counts.SettleFails++
			m.settled(it, driver.Unknown)
			continue
		}
		m.settleAt = m.now + delay(it.tries)
		again = append(again, it)
	}
	m.settles.pushFront(again)
}

const settleTries = 6

func (m *Machine) settled(it *Item, o driver.Outcome) {
	m.decide(it)
	m.observe(Note{Kind: NoteSettled, Item: it, Action: it.settlement.Action, Outcome: o, After: it.settlement.After})
	m.gone(it)
}

func (m *Machine) decide(it *Item) {
	n := it.note
	n.Kind, n.Item = NoteDecided, it
	m.observe(n)
}

// giveBack returns an unstarted delivery at once: it spends no attempt.
func (m *Machine) giveBack(it *Item, after time.Duration) {
	m.counts.Returned++
	m.settle(it, driver.Settlement{Action: driver.Defer, After: after}, Note{Decision: GivenBack})
}

// ---- gone ----------------------------------------------------------------------------------------------------------

// gone lets go of an item: its twins and its group go on.
func (m *Machine) gone(it *Item) {
	if it.ended {
		return
	}
	it.ended = true
	if it.leader {
		delete(m.leaders, it.Key)
	}
	m.unlink(it)
	m.releaseTwins(it)
	m.leaveGroup(it)
	m.retire(it)
}

func (m *Machine) newItem() *Item {
	var it *Item
	if n := len(m.free); n > 0 {
		it = m.free[n-1]
		m.free = m.free[:n-1]
		twins, shell := it.twins[:0], it.Shell
		*it = Item{}
		it.twins, it.Shell = twins, shell
	} else {
		it = &Item{}
	}
	it.prev = m.tail
	if m.tail != nil {
		m.tail.next = it
	} else {
		m.head = it
		m.beatAt = m.now + m.beat()
	}
	m.tail = it
	m.inHand++
	return it
}

func (m *Machine) unlink(it *Item) {
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		m.head = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		m.tail = it.prev
	}
	it.prev, it.next = nil, nil
	m.inHand--
}

// retire puts an item up for reuse when no answer names it any more.
func (m *Machine) retire(it *Item) {
	if it.ended && it.refs == 0 && it.phase != phFree {
		it.phase = phFree
		m.limbo = append(m.limbo, it)
	}
}

func (m *Machine) backoff(failures int, n driver.Nonce) time.Duration {
	d := m.cfg.BackoffMax
	if failures < 40 && m.cfg.BackoffMin<<failures > 0 {
		d = min(d, m.cfg.BackoffMin<<failures)
	}
	return d/2 + jitter(n, d/2)
}

// jitter spreads by the item's own random nonce: [0, d].
func jitter(n driver.Nonce, d time.Duration) time.Duration {
	return d * time.Duration(uint64(n[14])<<8|uint64(n[15])) / 0xffff
}

// laneOf shards by key, so that lanes never wait for each other's rows (FNV-1a).
func laneOf(raw string, lanes int) int {
	h := uint32(2166136261)
	for i := 0; i < len(raw); i++ {
		h = (h ^ uint32(raw[i])) * 16777619
	}
	return int(h % uint32(lanes))
}
