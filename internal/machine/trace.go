package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file has what observers see of the machine: trace events, counts and load. The shell gives them public names.

// TraceKind is the kind of a trace event.
type TraceKind uint8

// The kinds.
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

// Decision is how a delivery ended.
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

// DuplicateCause is the origin of a duplicate.
type DuplicateCause uint8

// The causes of a duplicate.
const (
	NoDuplicate DuplicateCause = iota
	Redelivery
	ProducerDuplicate
	RacedLocal
)

// TraceEvent is one thing that observers see.
type TraceEvent struct {
	Kind      TraceKind
	Item      *Item // valid until the next Step
	Decision  Decision
	Duplicate DuplicateCause
	Action    driver.Action
	Outcome   driver.Outcome
	After     time.Duration
	// Held and Handled go with TraceSettled: the time since it was received, and how much of it the handler took.
	Held, Handled time.Duration
	Takeover      bool
	// Attempt goes with TraceDoubt: the run in doubt. 0 = the item's.
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

// runEnded traces the return of an item's handler.
func (m *Machine) runEnded(it *Item, err error, took time.Duration) {
	it.handled += took
	m.observe(TraceEvent{Kind: TraceEnded, Item: it, Err: err, After: took})
}

// Load is how busy the machine is.
type Load struct {
	Slots, Busy, Running, InFlight, Waiting int
	// Down: the store does not respond. Open: the breaker is open, until Until.
	Down, Open bool
	Until      time.Duration
	Breaker    string
	Reason     string
}

// Open reports that the breaker is open.
func (m *Machine) Open() bool { return m.brk.state == brkOpen }

// Load returns how busy the machine is.
func (m *Machine) Load() Load {
	l := Load{
		Slots: m.cfg.Concurrency, Busy: m.busy, Running: m.running, InFlight: m.inFlight, Waiting: m.waiting, Down: m.down,
		Breaker: [...]string{"closed", "open", "half-open"}[m.brk.state],
	}
	if m.cfg.Mode == Open {
		l.Slots, l.Busy = m.cfg.Lanes, 0
		for i := range m.lanes {
			l.Busy += b2i(m.lanes[i].tx.state != txIdle)
		}
	}
	if l.Open = m.brk.state == brkOpen; l.Open {
		l.Until = m.brk.until
	}
	switch {
	case m.down:
		l.Reason = "the store does not respond"
	case m.brk.state != brkClosed:
		l.Reason = m.brk.reason
	}
	return l
}
