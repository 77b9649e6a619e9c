package machine

import (
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is mode D (protocol section 6): messages of one key that carry versions and replace each other.

// The bounds of a wait for the version before.
const (
	gapWaitMin = 100 * time.Millisecond
	gapTries   = 6 // doublings, where only the broker's count tells how long a message has waited
)

// stale answers an older version than the applied one: its state was replaced before it came.
func (m *Machine) stale(it *Item, g *driver.Grant) {
	m.counts.Stale++
	m.settle(it, driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: Stale, Duplicate: cause(g), Reason: g.Reason})
}

// late dead-letters a duplicate of an EXPIRED record, or an older version, that must neither run nor be forgotten.
func (m *Machine) late(it *Item, g *driver.Grant) {
	m.counts.Rejected++
	m.counts.Late++
	m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterLate, g.Reason)},
		TraceEvent{Decision: DeadLettered, Duplicate: cause(g), Reason: g.Reason})
}

// mismatch sets a message aside whose key, or version, was used with another payload.
func (m *Machine) mismatch(it *Item, g *driver.Grant) {
	reason := "the key was used with another payload"
	switch {
	case !it.Version.Comparable(g.Hold.Version):
		reason = "the key's record was made under another strategy: its versions cannot be compared"
	case it.Version != "":
		reason = "version " + it.Version.String() + " of the key was used with another payload"
	}
	m.counts.Mismatched++
	m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterMismatch, reason)},
		TraceEvent{Decision: Mismatched, Duplicate: cause(g), Reason: reason})
}

// cannotWait tells that an item waits for no message that is still to come: the head of an ordered group would keep it
// from coming; and who waits for the version before his own does so for a time only. Where the broker tells neither age
// nor count that wait would have no end, and there is none.
func (m *Machine) cannotWait(it *Item) bool {
	switch {
	case it.group != nil:
		return it.Version != ""
	case it.After == "":
		return false
	}
	if age := m.age(it); it.Age != UnknownAge && age >= 0 {
		return age >= m.cfg.Park
	}
	return it.Count == 0 || it.Count > gapTries
}

// waitForGap gives a version back whose predecessor is missing: for longer and longer, and not beyond the time that it
// waits at most. Newer ones that wait for it here are returned with it: they wait for the same.
func (m *Machine) waitForGap(it *Item, g *driver.Grant) {
	newer := slices.DeleteFunc(slices.Clone(it.duplicates), func(t *Item) bool {
		return t.Version <= it.Version || t.After <= it.After || m.cannotWait(t)
	})
	for _, t := range newer {
		m.leaveLeader(t)
		m.deferForGap(t, g)
	}
	m.deferForGap(it, g)
}

// gapWait is how long a version of an age waits whose key nothing has happened to for idle. It comes back at ages that
// double, so that versions come back in the order in which they were sent; sooner, where its key goes on. Where the broker
// counts deliveries they are six at most.
func (m *Machine) gapWait(age, idle time.Duration) time.Duration {
	least := gapWaitMin
	if m.cfg.Redrives {
		least = max(least, m.cfg.Park/16)
	}
	next := least
	for next <= age {
		next *= 2
	}
	wait := next - age
	if !m.cfg.Redrives {
		wait = min(wait, m.cfg.Lease)
		if idle > 0 {
			wait = min(wait, max(idle/4, gapWaitMin))
		}
	}
	return min(wait, m.cfg.Park-age)
}

func (m *Machine) deferForGap(it *Item, g *driver.Grant) {
	m.counts.Busy++
	wait := m.cfg.Park >> max(gapTries-max(it.Count-1, 0), 0)
	if age := m.age(it); it.Age != UnknownAge && age >= 0 {
		wait = m.gapWait(age, g.Wait)
	} else {
		wait += jitter(m.cfg.Nonce(), gapWaitMin/2)
	}
	m.settle(it, driver.Settlement{Action: driver.Defer, After: wait}, TraceEvent{
		Decision: BusyDeferred, Duplicate: cause(g), After: wait, Reason: "waits for the version before it",
	})
}
