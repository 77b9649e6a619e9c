package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file has what observers are told: the vocabulary of the machine, to which the shell gives public names.

// TraceKind names a note.
type TraceKind uint8

// The notes: what observers are told.
const (
	TraceReceived TraceKind = iota
	TraceStarted
	TraceEnded
	TraceDecided
	TraceSettled
	TraceDoubt
	TraceExtended
	TraceProlonged
	TracePaused
	TraceResumed
	TraceTrouble // an operation failed and is repeated: Err
)

// Decision is how a delivery ended; the shell gives it its public name.
type Decision uint8

// The decisions.
const (
	Undecided Decision = iota
	Executed
	Replayed
	BusyDeferred
	TakenOver
	Mismatched
	Retried
	DeadLettered
	ParkedUncertain
	Fenced
	DroppedOnPurpose
	Unprotected
	Returned
	Expired
	Stale
	ReplayedOtherPayload
)

// DuplicateCause tells where a duplicate came from.
type DuplicateCause uint8

// The causes of a duplicate.
const (
	NoDuplicate DuplicateCause = iota
	Redelivery
	ProducerDuplicate
	RacedLocal
)

// TraceEvent is one observation.
type TraceEvent struct {
	Kind      TraceKind
	Item      *Item // valid until the next Step
	Decision  Decision
	Duplicate DuplicateCause
	Action    driver.Action
	Outcome   driver.Outcome
	After     time.Duration
	// Held and Handled go with TraceSettled: since it was received, and how long of that its handler took.
	Held, Handled time.Duration
	Takeover      bool
	// Attempt goes with TraceDoubt: the run that is in doubt; 0 = the item's.
	Attempt int
	Reason  string
	Err     error
}

// Counts is the summary of a run.
type Counts struct {
	Received, Executed, Effects, Retried, Dead, Uncertain, Fenced, Dropped                    int64
	Replayed, Busy, Mismatched, TakenOver, Unprotected, Rejected, Late, Returned, SettleFails int64
	Stale                                                                                     int64
	OtherPayload                                                                              int64 // of Replayed
}

// runEnded notes that an item's handler returned.
func (m *Machine) runEnded(it *Item, err error, took time.Duration) {
	it.handled += took
	m.observe(TraceEvent{Kind: TraceEnded, Item: it, Err: err, After: took})
}
