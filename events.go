package semel

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// Decision is how a delivery ended. Logs, events, metrics and the console use these names.
type Decision string

// The decisions.
const (
	Executed Decision = "executed" // the handler ran and its effect is recorded
	Replayed Decision = "replayed" // a duplicate of a completed key: acked, the stored result stands
	// ReplayedOtherPayload: Replayed, and the body is not the one that was executed under the key (see key.FingerprintFunc).
	ReplayedOtherPayload Decision = "replayed_other_payload"
	BusyDeferred         Decision = "busy_deferred"    // another worker runs the key: returned to the queue
	Stale                Decision = "stale"            // a newer version of the key was applied: acked
	TakenOver            Decision = "taken_over"       // this worker took over a run whose lease had expired (not an end)
	Mismatched           Decision = "mismatched"       // the key came with another payload: dead letter
	Retried              Decision = "retried"          // the run failed and will be repeated
	DeadLettered         Decision = "dead_lettered"    // failed permanently: dead letter
	ParkedUncertain      Decision = "parked_uncertain" // the outcome of the effect is unknown: dead letter
	Fenced               Decision = "fenced"           // the lease was lost: this worker wrote nothing
	Dropped              Decision = "dropped"          // dropped on purpose by the handler
	Unprotected          Decision = "unprotected"      // ran without a key, as configured
	Returned             Decision = "returned"         // returned unstarted: drain, or an earlier message of its group stopped
	Expired              Decision = "expired"          // its visibility ended before it could be started or settled
)

// Cause is the cause of a duplicate.
type Cause string

// The causes of a duplicate.
const (
	Redelivery        Cause = "redelivery"         // the broker delivered the same message again
	ProducerDuplicate Cause = "producer_duplicate" // another message with the same key
	RacedLocal        Cause = "raced_local"        // it waited in this process while another delivery of its key ran
)

// EventKind names an event.
type EventKind string

// The events, in the order in which they happen to a delivery.
const (
	EventReceived EventKind = "received" // a delivery arrived
	EventStarted  EventKind = "started"  // the handler is called
	EventEnded    EventKind = "ended"    // the handler returned
	EventExtended EventKind = "extended" // lease or visibility was extended, or not: Outcome
	EventDecided  EventKind = "decided"  // how the delivery ended: Decision
	EventSettled  EventKind = "settled"  // the delivery was settled with the queue: Action, Outcome
	EventDoubt    EventKind = "doubt"    // the outcome of an effect became unknown (U-event)
	EventPaused   EventKind = "paused"   // the store does not respond, or the breaker opened (Reason, After): polling stops
	EventResumed  EventKind = "resumed"  // the store responds again, or the breaker closed (Reason)
	EventTrouble  EventKind = "trouble"  // an operation failed and is repeated: Err
	EventSwept    EventKind = "swept"    // a sweep did something, or its lag changed: Purged, Expired, Abandoned, Lag
	EventConsumed EventKind = "consumed" // the store consumed units since the previous such event: Units
	EventCalled   EventKind = "called"   // a call of the store returned: Op, Items, Elapsed, Err
)

// Event describes one thing that happened. The parentheses name the kinds that set a field. Other fields are zero.
type Event struct {
	Kind      EventKind
	At        time.Time
	Key       Key
	MessageID string
	// Message is the message that was delivered. It is valid only while the observer is called, and must not be changed
	// (received, started, ended, extended, decided, settled, doubt).
	Message *Message
	// Trace is what Attempt.SetTrace set for the run, or "" (ended, extended, decided, settled, doubt). EffectTrace is the span
	// of the run that ended the key before this delivery came, or "" if that was not sampled (decided, settled).
	Trace, EffectTrace driver.Traceparent
	// Attempt and Token belong to the run. For a doubt after a takeover, Attempt is the interrupted run and Token is 0.
	Attempt int
	Token   uint64
	// Count is the broker's delivery count (received).
	Count int
	// Route is the route on which a source event came, see key.Route (received).
	Route string
	// Visible is how long the delivery is invisible to other workers (received), or for how long it was extended.
	Visible time.Duration
	// Takeover: the run was taken over (started). Unknown: an earlier run may have had its effect (started).
	Takeover, Unknown bool
	Decision          Decision
	Cause             Cause
	// Lease distinguishes an extension of the store's lease from one of the broker's visibility (extended).
	Lease   bool
	Action  driver.Action
	Outcome driver.Outcome
	After   time.Duration
	// Elapsed is how long the handler ran (ended), the delivery was in flight (settled), or the call took (called).
	Elapsed time.Duration
	// Handled is how long of Elapsed the handler ran (settled).
	Handled time.Duration
	// SentAt is when the message was sent, or zero if the queue does not report it (received, started).
	SentAt time.Time
	// Op is the call of the store: claim, extend, finish, begin or commit. Items is how many keys it carried (called).
	Op     string
	Items  int
	Err    error
	Reason string
	// Units is what the calls of a store that is paid by use consumed (consumed; see driver.Meter). It covers whole batches
	// and every consumer of the same store value.
	Units driver.Units
	// Purged and Expired count records past their retention, and Abandoned counts abandoned claims that were parked. Lag is how
	// long ago the retention of the most overdue remaining record ended (swept; see driver.Swept).
	Purged, Expired, Abandoned int
	Lag                        time.Duration
}

// Events observes a consumer, for metrics, traces, audit logs and timelines. A nil func is skipped. The funcs are called one
// at a time and in order, from the engine's own goroutine. They must not block.
type Events struct {
	// Delivery gets received, decided, settled.
	Delivery func(Event)
	// Attempt gets started, ended, doubt.
	Attempt func(Event)
	// Lease gets extended.
	Lease func(Event)
	// Health gets paused, resumed, trouble, swept.
	Health func(Event)
	// Cost gets consumed.
	Cost func(Event)
	// Calls gets called: one event per batch.
	Calls func(Event)
}

// Observe returns Events that call f with every event except the calls of the store (EventCalled).
func Observe(f func(Event)) Events {
	return Events{Delivery: f, Attempt: f, Lease: f, Health: f, Cost: f}
}

// Tee returns Events that call all the given observers, in order.
func Tee(all ...Events) Events {
	tee := func(pick func(Events) func(Event)) func(Event) {
		var fs []func(Event)
		for _, e := range all {
			if f := pick(e); f != nil {
				fs = append(fs, f)
			}
		}
		switch len(fs) {
		case 0:
			return nil
		case 1:
			return fs[0]
		}
		return func(ev Event) {
			for _, f := range fs {
				f(ev)
			}
		}
	}
	return Events{
		Delivery: tee(func(e Events) func(Event) { return e.Delivery }),
		Attempt:  tee(func(e Events) func(Event) { return e.Attempt }),
		Lease:    tee(func(e Events) func(Event) { return e.Lease }),
		Health:   tee(func(e Events) func(Event) { return e.Health }),
		Cost:     tee(func(e Events) func(Event) { return e.Cost }),
		Calls:    tee(func(e Events) func(Event) { return e.Calls }),
	}
}

// Summary counts what a consumer has done (contract section 4). All counts start at 0 with each Run.
type Summary struct {
	Received  int64 `json:"received"`
	Executed  int64 `json:"executed"` // handler runs = Effects+Retried+Dead+Uncertain+Fenced+Dropped
	Effects   int64 `json:"effects"`
	Retried   int64 `json:"retried"`
	Dead      int64 `json:"dead"`
	Uncertain int64 `json:"uncertain"`
	Fenced    int64 `json:"fenced"`
	Dropped   int64 `json:"dropped"`
	Replayed  int64 `json:"replayed"`
	// OtherPayload counts those of Replayed whose body differs from the one that was executed under the key.
	OtherPayload int64 `json:"replayed_other_payload"`
	Busy         int64 `json:"busy"`
	Stale        int64 `json:"stale"`
	Mismatched   int64 `json:"mismatched"`
	TakenOver    int64 `json:"taken_over"`
	Unprotected  int64 `json:"unprotected"`
	SettleErrors int64 `json:"settle_errors"`
	// Rejected counts dead letters without a run: invalid keys, duplicates of failed or parked keys, and keys whose attempts
	// were used up by crashed runs. Returned counts deliveries that were returned or expired unstarted.
	Rejected  int64 `json:"rejected"`
	Returned  int64 `json:"returned"`
	ElapsedMS int64 `json:"elapsed_ms"`
	// StoreCalls, ReadUnits and WriteUnits are what a store that is paid by use consumed during the run (driver.Meter).
	StoreCalls int64   `json:"store_calls,omitempty"`
	ReadUnits  float64 `json:"read_units,omitempty"`
	WriteUnits float64 `json:"write_units,omitempty"`
	// Swept counts records that this consumer purged after their retention, Expired those that became EXPIRED
	// (Config.LongTerm), Abandoned abandoned claims that it parked.
	Swept     int64 `json:"swept,omitempty"`
	Expired   int64 `json:"expired,omitempty"`
	Abandoned int64 `json:"abandoned,omitempty"`
	// CacheHits counts claims that the store's cache decided (driver.Cached). CacheEntries is how many keys the cache holds now.
	CacheHits    int64 `json:"cache_hits,omitempty"`
	CacheEntries int64 `json:"cache_entries,omitempty"`
	// DuplicatesUnrecorded counts duplicates that are missing from the store's duplicate log (driver.DuplicateLog).
	DuplicatesUnrecorded int64 `json:"duplicates_unrecorded,omitempty"`
	// Late counts those of Rejected that became dead letters of kind late: duplicates of EXPIRED records (Config.LongTerm),
	// and versions that arrived too late.
	Late int64 `json:"late,omitempty"`
}
