package machine

import (
	"cmp"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// This file keeps order: ordered groups (law 13: only the head of a group is ever claimed) and local duplicates (one process
// never runs a key twice at once: a copy waits for its leader, the item of the same key that came first).

type group struct {
	name  string
	items []*Item // in order of delivery; the head first
}

func (m *Machine) joinGroup(it *Item) {
	g := m.groups[it.Group]
	if g == nil {
		g = &group{name: it.Group}
		m.groups[it.Group] = g
	}
	g.items = append(g.items, it)
	it.group, it.phase = g, phHeld
	if g.items[0] == it {
		m.offer(it)
	} else {
		m.lineUp(g, len(g.items)-1)
	}
}

// at is the place of an item.
func (g *group) at(it *Item) int {
	for i, o := range g.items {
		if o == it {
			return i
		}
	}
	return -1
}

// leaveGroup takes an item out of its group. After a success the next of the group goes on. After any other end the rest of
// the group in flight is returned unstarted, so that the broker's order holds again.
func (m *Machine) leaveGroup(it *Item) {
	g := it.group
	if g == nil {
		return
	}
	at := g.at(it)
	if !succeeded(it.trace.Decision) {
		m.stopGroup(it)
	}
	it.group = nil
	g.items = append(g.items[:at], g.items[at+1:]...)
	switch {
	case len(g.items) == 0:
		delete(m.groups, g.name)
	case at == 0 && g.items[0].phase == phHeld:
		m.offer(g.items[0])
		m.lineUp(g, 1)
	}
}

func succeeded(d Decision) bool {
	return d == Executed || d == Replayed || d == ReplayedOtherPayload || d == DroppedOnPurpose || d == Unprotected || d == Stale
}

// stopGroup returns the items behind an item of their group. None of them is claimed.
func (m *Machine) stopGroup(it *Item) {
	g := it.group
	at := g.at(it)
	rest := g.items[at+1:]
	g.items = g.items[:at+1]
	for _, f := range rest {
		f.group = nil
		if f.phase == phQueued || f.phase == phWaiting {
			m.dequeue(f)
		}
		if f.phase == phHeld { // else it is being returned already
			m.leaveLeader(f)
			m.returnDelivery(f, 0)
		}
	}
}

const maxDuplicates = 16

// waitForLeader lets a local duplicate wait for its leader. If too many wait for one that runs, the others are returned, so
// that one key cannot take all the room in flight.
func (m *Machine) waitForLeader(it, first *Item) {
	if m.failsBeside(it, first) {
		it.hold = first.hold
		m.failBusy(it, RacedLocal)
		return
	}
	if it.group == nil && (first.runs && m.following >= m.cfg.InFlight || len(first.duplicates) >= maxDuplicates && (first.runs || first.phase == phTx)) {
		m.tooManyDuplicates(it)
		return
	}
	it.phase, it.waitsFor = phHeld, first
	first.duplicates = append(first.duplicates, it)
	m.following += b2i(first.runs)
}

// runs records whether an item's handler runs. The local duplicates that wait for it take no room in flight meanwhile.
func (m *Machine) runs(it *Item, yes bool) {
	if it.runs == yes {
		return
	}
	if it.runs = yes; yes {
		m.following += len(it.duplicates)
	} else {
		m.following -= len(it.duplicates)
	}
}

// tooManyDuplicates returns a local duplicate. If the broker counts deliveries the delay grows, as in busyElsewhere.
func (m *Machine) tooManyDuplicates(it *Item) {
	m.counts.Busy++
	wait := m.cfg.Lease / 2
	if m.cfg.Redrives {
		for n := 1; n < it.Count && wait < m.cfg.MaxRuntime; n++ {
			wait *= 2
		}
		wait = min(wait, max(m.cfg.MaxRuntime, m.cfg.Lease/2))
	}
	wait += jitter(m.cfg.Nonce(), m.cfg.Lease/2) // they must not all be redelivered at once
	m.settle(it, driver.Settlement{Action: driver.Defer, After: wait},
		TraceEvent{Decision: BusyDeferred, Duplicate: RacedLocal, After: wait})
}

// leaderOf is another item in flight that leads one of the item's keys. Nil = none.
func (m *Machine) leaderOf(it *Item) *Item {
	if first := m.leaders[it.Key]; first != nil && first != it {
		return first
	}
	if it.migrating() {
		if first := m.leaders[it.NewKey]; first != nil && first != it {
			return first
		}
	}
	return nil
}

// releaseDuplicates ends the wait of an item's local duplicates. A duplicate is acked only if the record is completed and
// the payload is the same. In every other case it is claimed. So is the message of a redrive: an operator may have reopened
// the record while its leader's end was being written.
func (m *Machine) releaseDuplicates(it *Item) {
	m.leaveLeader(it)
	done := it.trace.Decision == Executed || it.trace.Decision == DroppedOnPurpose || it.trace.Decision == Replayed
	duplicates := it.duplicates
	it.duplicates = it.duplicates[:0]
	if m.cfg.Park > 0 { // versions wait for the one before them
		slices.SortStableFunc(duplicates, func(a, b *Item) int { return cmp.Compare(a.Version, b.Version) })
	}
	for _, t := range duplicates {
		t.waitsFor = nil
		// With two keys, only one may be the same: the other one's record may still be open.
		same := t.Key == it.Key && t.NewKey == it.NewKey && t.Version == it.Version
		if done && same && !t.Fingerprint.Differs(it.Fingerprint) && !t.BodyDigest.Differs(it.BodyDigest) && !driver.IsRedrive(t.ID) {
			m.counts.Replayed++
			m.settle(t, driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: Replayed, Duplicate: RacedLocal})
			continue
		}
		m.offer(t)
	}
}

// leaveLeader takes an item out of the local duplicates of its leader.
func (m *Machine) leaveLeader(it *Item) {
	if first := it.waitsFor; first != nil {
		it.waitsFor = nil
		m.following -= b2i(first.runs)
		for i, t := range first.duplicates {
			if t == it {
				first.duplicates = append(first.duplicates[:i], first.duplicates[i+1:]...)
				return
			}
		}
	}
}

// ---- BusyFail ------------------------------------------------------------------------------------------------------

// Config.FailBusy dead-letters duplicates of a key in progress. They are never acked without a dead letter: the run that
// they duplicate may still fail (FM16).

// busyReason is the reason of such a dead letter.
const busyReason = "its key was in progress when this message came, and the policy for that is fail; a redrive drops it once " +
	"the key is completed"

// failsBusy reports that a duplicate of a key in progress goes to the dead-letter queue. same: it is a redelivery of the
// message that acquired the key. That one is deferred, because it repeats the run if the worker dies. Messages of an ordered
// group, whose head must wait (law 13), messages that an operator sent again, and messages without an id are deferred too.
func (m *Machine) failsBusy(it *Item, same bool) bool {
	return m.cfg.FailBusy && !same && it.group == nil && it.ID != "" && !driver.IsRedrive(it.ID)
}

func (m *Machine) failBusy(it *Item, c DuplicateCause) {
	m.counts.Rejected++
	m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterBusy, busyReason)},
		TraceEvent{Decision: DeadLettered, Duplicate: c, Reason: busyReason})
}

// failsBeside reports the same of a local duplicate. One with another payload waits: it is a mismatch.
func (m *Machine) failsBeside(it, first *Item) bool {
	return first.runs && !it.Fingerprint.Differs(first.Fingerprint) && m.failsBusy(it, it.ID == first.ID)
}

// failLocal dead-letters the local duplicates of an item that begins to run.
func (m *Machine) failLocal(first *Item) {
	if !m.cfg.FailBusy {
		return
	}
	for _, t := range append([]*Item(nil), first.duplicates...) {
		if m.failsBeside(t, first) {
			m.leaveLeader(t)
			t.hold = first.hold
			m.failBusy(t, RacedLocal)
		}
	}
}
