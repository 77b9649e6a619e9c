package machine

import (
	"cmp"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// This file keeps order: groups (law 13: only the head of a group is ever claimed) and twins (one process never runs
// one key twice at once).

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

// leaveGroup lets the next of a group go on after a success. After anything else the rest of the group that is in flight
// is returned unstarted, so that the broker's order rules again.
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

// stopGroup returns what stands behind an item in its group. None of it is claimed.
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
		if f.phase == phHeld { // else it is on its way back already
			m.leaveLeader(f)
			m.returnDelivery(f, 0)
		}
	}
}

const maxDuplicates = 16

// follow lets an item wait for its twin that is in flight. While that one runs, too many of them are returned, so that one
// key cannot fill the hand.
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

// runs marks whether an item's handler runs. Its twins, which wait for that, keep nobody else out of the hand meanwhile.
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

// tooManyDuplicates gives a twin back: for longer and longer where the broker counts deliveries, as busyElsewhere does.
func (m *Machine) tooManyDuplicates(it *Item) {
	m.counts.Busy++
	wait := m.cfg.Lease / 2
	if m.cfg.Redrives {
		for n := 1; n < it.Count && wait < m.cfg.MaxRuntime; n++ {
			wait *= 2
		}
		wait = min(wait, max(m.cfg.MaxRuntime, m.cfg.Lease/2))
	}
	wait += jitter(m.cfg.Nonce(), m.cfg.Lease/2) // they must not all come back at once
	m.settle(it, driver.Settlement{Action: driver.Defer, After: wait},
		TraceEvent{Decision: BusyDeferred, Duplicate: RacedLocal, After: wait})
}

// leaderOf is another item in flight that leads one of the item's keys; nil = there is none.
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

// releaseDuplicates answers those who waited. A twin is acked only when the record is completed and the payload is the
// same; in every other case it asks the store itself. So does the message of a redrive: a person may have reopened the record
// while the end of its leader was on its way.
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
		// Of two keys that one meets, the other's record may still be open.
		same := t.Key == it.Key && t.NewKey == it.NewKey && t.Version == it.Version
		if done && same && !t.Fingerprint.Differs(it.Fingerprint) && !t.BodyDigest.Differs(it.BodyDigest) && !driver.IsRedrive(t.ID) {
			m.counts.Replayed++
			m.settle(t, driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: Replayed, Duplicate: RacedLocal})
			continue
		}
		m.offer(t)
	}
}

// leaveLeader takes an item out of those who wait for its twin.
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

// Config.FailBusy dead-letters duplicates of a key in progress. They are never acked without a dead letter: the run that they
// duplicate may still fail (FM16).

// busyReason is the reason of such a dead letter.
const busyReason = "its key was in progress when this message came, and the policy for that is fail; a redrive drops it once " +
	"the key is completed"

// failsBusy reports that a duplicate of a key in progress goes to the dead-letter queue. same: it is a redelivery of a message
// that acquired the key. That one is deferred: if the run dies, it is the message that repeats it. So are messages of an ordered
// group, whose head must wait (law 13), those that a person sent again, and those without an id.
func (m *Machine) failsBusy(it *Item, same bool) bool {
	return m.cfg.FailBusy && !same && it.group == nil && it.ID != "" && !driver.IsRedrive(it.ID)
}

func (m *Machine) failBusy(it *Item, c DuplicateCause) {
	m.counts.Rejected++
	m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterBusy, busyReason)},
		TraceEvent{Decision: DeadLettered, Duplicate: c, Reason: busyReason})
}

// failsBeside reports it of a local duplicate. One with another payload waits: it is a mismatch.
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
