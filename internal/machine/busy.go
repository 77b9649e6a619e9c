package machine

import "github.com/semel-dev/semel/driver"

// This file dead-letters duplicates of a key in progress, where Config.FailBusy asks for it. They are never acked without a
// dead letter: the run that they duplicate may still fail (FM16).

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
	m.settle(it, driver.Settlement{Action: driver.Dead, DeadLetter: m.deadLetter(it, driver.DeadLetterBusy, busyReason)},
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
	for _, t := range append([]*Item(nil), first.twins...) {
		if m.failsBeside(t, first) {
			m.leaveTwin(t)
			t.hold = first.hold
			m.failBusy(t, RacedLocal)
		}
	}
}
