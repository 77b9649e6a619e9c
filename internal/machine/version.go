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
	gapTries   = 6 // doublings, if the wait so far is known from the broker's count only
)

// stale acks a version older than the applied one: its state was replaced before it came.
func (m *Machine) stale(it *Item, g *driver.Grant) {
	m.counts.Stale++
	m.settle(it, driver.Settlement{Action: driver.Ack}, TraceEvent{Decision: Stale, Duplicate: cause(g), Reason: g.Reason})
}

// late dead-letters a duplicate of an EXPIRED record, or an older version of it. It must neither run nor be forgotten.
func (m *Machine) late(it *Item, g *driver.Grant) {
	m.counts.Rejected++
	m.counts.Late++
	m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.newDeadLetter(it, driver.DeadLetterLate, g.Reason)},
		TraceEvent{Decision: DeadLettered, Duplicate: cause(g), Reason: g.Reason})
}

// mismatch dead-letters a message whose key, or version, was used with another payload.
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

// cannotWait reports that an item does not wait for the version before its own. The head of an ordered group never waits:
// the earlier version might be behind it. Other messages wait for a limited time. If the broker reports neither age nor
// delivery count, the wait would have no end, so none waits.
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

// waitForGap returns a version whose predecessor is missing, with a delay that grows, until its wait has ended. Newer
// versions that wait for it here are returned with it: they wait for the same.
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

// gapWait is how long a version waits: age is its age, idle the time since its key changed last. It is redelivered at ages
// that double, so that versions are redelivered in the order in which they were sent, and sooner while its key makes
// progress. If the broker counts deliveries, they are six at most.
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
