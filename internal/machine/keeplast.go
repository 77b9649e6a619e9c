package machine

import (
	"cmp"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// This file is keep-last (driver.Claim.KeepLast): of the versions that wait for a run of their key to end only the newest
// runs. Those in other processes find the run Busy, and their claims note them. Those here wait for the run's item as its
// twins, or stand behind it in its group, and must not run beside it; so the newest of them is noted by a claim that does
// nothing else, and takes no slot. What is older than a noted one is acked: the noted message is in the queue, and the
// record remembers that it will run.

// noting is how far the note of an item is.
type noting uint8

const (
	noteNone noting = iota
	noteQueued
	noteSent
	noteAsked  // answered: it is not asked again
	noteMissed // not noted, because the record was locked or nobody knows: asked again at a heartbeat
)

// noteNewest has the newest of those noted that wait for a running item. One at a time: the keys of one call are distinct.
func (m *Machine) noteNewest(first *Item) {
	if !m.cfg.KeepLast || first.phase != phRunning || m.draining {
		return
	}
	newest, under := first, false
	look := func(it *Item) {
		under = under || it.noting == noteQueued || it.noting == noteSent
		if it.Version > newest.Version {
			newest = it
		}
	}
	for _, t := range first.twins {
		look(t)
	}
	if g := first.group; g != nil {
		for _, f := range g.items {
			if f.phase == phHeld && f.Key == first.Key {
				look(f)
			}
		}
	}
	if under || newest.noting != noteNone || newest.Version == first.Version {
		return
	}
	newest.noting = noteQueued
	newest.refs++
	m.lanes[newest.lane].notes.push(newest)
}

// waitsForRun tells that an item still waits for a run of its key.
func (m *Machine) waitsForRun(it *Item) bool {
	first := m.leaders[it.Key]
	return !it.ended && it.phase == phHeld && first != nil && first != it && first.phase == phRunning
}

// addNotes adds the notes of a lane to a claim flush.
func (m *Machine) addNotes(l *lane, items []*Item, claims []driver.Claim) ([]*Item, []driver.Claim) {
	for l.notes.len() > 0 && len(items) < m.cfg.Batch {
		it := l.notes.pop()
		if !m.waitsForRun(it) {
			it.refs--
			m.unnoted(it)
			continue
		}
		it.noting = noteSent
		items, claims = append(items, it), append(claims, driver.Claim{
			Key: it.Key, Nonce: m.cfg.Nonce(), Fingerprint: it.Fingerprint, DeliveryID: it.ID, Lease: m.cfg.Lease,
			BodyDigest: it.BodyDigest, WholeBody: it.WholeBody,
			Takeover: m.cfg.Takeover, Version: it.Version, KeepLast: true, NoteOnly: true,
		})
	}
	return items, claims
}

// pumpNotes sends the notes of a lane that has no claims to send.
func (m *Machine) pumpNotes(i int) {
	l := &m.lanes[i]
	if l.notes.len() == 0 || l.claiming || m.down || m.now < l.claimAt || m.quarantine() {
		return
	}
	items, claims := l.claimBuf.take(min(l.notes.len(), m.cfg.Batch))
	m.sendClaims(i, items, claims)
}

// sendClaims sends a claim flush, with the notes that fit into it.
func (m *Machine) sendClaims(i int, items []*Item, claims []driver.Claim) {
	l := &m.lanes[i]
	items, claims = m.addNotes(l, items, claims)
	if len(items) == 0 {
		l.claimBuf.put(items, claims, nil)
		return
	}
	l.claiming = true
	m.act(Action{Kind: ActClaim, Lane: i, Items: items, Claims: claims})
}

// onNoted learns what became of a note; g is nil when nobody knows. Whoever waits no longer asks for itself.
func (m *Machine) onNoted(it *Item, g *driver.Grant) {
	it.refs--
	it.noting = noteAsked
	if !m.waitsForRun(it) {
		m.unnoted(it)
		return
	}
	first := m.leaders[it.Key]
	switch {
	case g == nil || g.Verdict == driver.Busy && !g.Noted:
		it.noting = noteMissed
	case it.waitsFor == nil: // one of its group goes to the store in its turn
	case g.Verdict == driver.Stale:
		m.leaveTwin(it)
		m.stale(it, g)
	case g.Noted:
		older := slices.DeleteFunc(slices.Clone(first.twins), func(t *Item) bool { return t.Version >= it.Version })
		for _, t := range older {
			m.leaveTwin(t)
			m.stale(t, &driver.Grant{Reason: "superseded by version " + it.Version.String() + ", which waits"})
		}
	}
	m.noteNewest(first)
}

// noteAgain asks again for what was not noted while a run goes on. Heartbeats call it: the next one may find the record free.
func (m *Machine) noteAgain(first *Item) {
	if !m.cfg.KeepLast {
		return
	}
	again := func(it *Item) {
		if it.noting == noteMissed {
			it.noting = noteNone
		}
	}
	for _, t := range first.twins {
		again(t)
	}
	if g := first.group; g != nil {
		for _, f := range g.items {
			again(f)
		}
	}
	m.noteNewest(first)
}

// unnoted lets go of a note whose item waits no longer. A newer one that came meanwhile was kept back by it: it asks now.
func (m *Machine) unnoted(it *Item) {
	it.noting = noteNone
	first := m.leaders[it.Key]
	m.retire(it)
	if first != nil && first != it {
		m.noteNewest(first)
	}
}

// sortTwins puts those who waited into the order in which they go on: the newest version first where it supersedes the
// others, the oldest first where versions wait for the one before them.
func (m *Machine) sortTwins(twins []*Item) {
	switch {
	case m.cfg.KeepLast:
		slices.SortStableFunc(twins, func(a, b *Item) int { return cmp.Compare(b.Version, a.Version) })
	case m.cfg.Park > 0:
		slices.SortStableFunc(twins, func(a, b *Item) int { return cmp.Compare(a.Version, b.Version) })
	}
}

// oldestOf is which of too many twins is given back.
func (m *Machine) oldestOf(it, first *Item) *Item {
	if m.cfg.KeepLast {
		for _, t := range first.twins {
			if t.Version < it.Version && t.group == nil && t.noting != noteSent {
				it = t
			}
		}
	}
	return it
}
