package driver

import (
	"context"
	"time"
)

// State is the state of a record (protocol section 0).
type State uint8

// The states of a record. COMPLETED and FAILED are terminal. UNCERTAIN waits for a probe or a person. EXPIRED is what
// remains of an ended record after its retention, if the consumer has a long-term period ([LongTerm]).
const (
	Absent State = iota
	InProgress
	Released
	Completed
	FailedState
	Uncertain
	Expired
)

var stateNames = [...]string{"ABSENT", "IN_PROGRESS", "RELEASED", "COMPLETED", "FAILED", "UNCERTAIN", "EXPIRED"}

func (s State) String() string { return stateNames[s] }

// ParseState returns the state of a name. ok is false if the name is unknown.
func ParseState(name string) (State, bool) {
	for i, n := range stateNames {
		if n == name {
			return State(i), true
		}
	}
	return Absent, false
}

// Terminal reports whether a duplicate of the key may be acked (after its dead letter, if any, is known to exist).
func (s State) Terminal() bool { return s >= Completed }

// MaxDeliveries is the maximum length of Record.Deliveries.
const MaxDeliveries = 8

// Record is the store's row for one key. The zero record is an absent one.
type Record struct {
	Key   Key
	State State
	// Ended is the state before an EXPIRED record expired: Completed, FailedState, or Released with a doubt. Absent in every
	// other state.
	Ended      State
	Generation uint32 // 1; raised by a redrive that reopens
	Epoch      uint32 // deliberate re-runs of a completed key
	Token      uint64
	Nonce      Nonce
	// Spent: the nonce was released. A late claim with this nonce is refused.
	Spent      bool
	Takeover   Takeover
	Lease      time.Duration // the requested lease, to notice a clock that stepped back
	LeaseUntil time.Time
	Beat       uint32
	// Attempt is the number of the current run in this generation. A claim whose run did not start is not counted, and a run
	// that was deferred only if it was the first. So 1 in a grant means that no run was started before.
	Attempt   int
	Failures  int // recorded failed runs of this generation
	Takeovers int // consecutive runs whose lease expired, except those that outlived their quarantine
	// Unknown: an earlier run may have had its effect. Uncertainty counts the events that created such a doubt.
	Unknown     bool
	Uncertainty int
	Fingerprint Fingerprint
	BodyDigest  BodyDigest // of the message of the latest run
	Result      []byte
	Reason      string // with the trace of the run that ended it, if that was sampled: see CutTrace
	Disposed    bool
	RetryAt     time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time
	CompletedAt time.Time
	// RetainUntil is zero while IN_PROGRESS or UNCERTAIN: such a record is not purged. For an EXPIRED record it is the end of
	// the long-term period.
	RetainUntil time.Time
	// Watermark is the progress of a versioned key. It is zero for other keys.
	Watermark Watermark
	// Deliveries are the IDs of deliveries that acquired the key: the first and the latest, MaxDeliveries at most.
	Deliveries []string
}

func (r *Record) mine(h Hold) bool {
	return r.Token == h.Token && r.Nonce == h.Nonce && r.Generation == h.Generation
}

// Hold returns the record's current attempt.
func (r *Record) Hold() Hold {
	return Hold{Key: r.Key, Generation: r.Generation, Epoch: r.Epoch, Token: r.Token, Nonce: r.Nonce, Version: r.Watermark.Running}
}

func (r *Record) saw(id string) bool {
	for _, d := range r.Deliveries {
		if d == id {
			return true
		}
	}
	return false
}

// remember adds a delivery ID. It does not write into the old slice, so that the caller's record stays unchanged.
func (r *Record) remember(id string) {
	if id == "" || r.saw(id) {
		return
	}
	n := len(r.Deliveries)
	if n < MaxDeliveries {
		r.Deliveries = append(r.Deliveries[:n:n], id)
		return
	}
	d := make([]string, 0, MaxDeliveries)
	d = append(d, r.Deliveries[0])
	d = append(d, r.Deliveries[n-MaxDeliveries+2:]...)
	r.Deliveries = append(d, id)
}

func (r *Record) nextToken(drawn uint64) {
	r.Token = max(r.Token+1, drawn)
}

func (r *Record) grant(v Verdict, deliveryID string) Grant {
	reason, trace := CutTrace(r.Reason)
	return Grant{
		Verdict: v, Hold: r.Hold(), Attempt: r.Attempt, Failures: r.Failures, Takeovers: r.Takeovers,
		Unknown: r.Unknown, Uncertainty: r.Uncertainty, Takeover: r.Takeover,
		Result: r.Result, Reason: reason, Trace: trace, Disposed: r.Disposed,
		Redelivery: deliveryID != "" && r.saw(deliveryID), Created: r.CreatedAt,
	}
}

// MaxCountUncertain is the maximum that [CountUncertain] returns.
const MaxCountUncertain = 1000

// CountUncertain counts the UNCERTAIN records of a consumer, up to MaxCountUncertain: the keys that wait for a person. Metrics
// call it often, so ok is false if the store would have to read all its records for it.
func CountUncertain(ctx context.Context, s Store, consumer string) (n int, ok bool, err error) {
	if !s.Features().ListsUncertain {
		return 0, false, nil
	}
	if c, ok := As[CaseLister](s); ok {
		n, err = c.CountCases(ctx, consumer, Uncertain, MaxCountUncertain)
		return n, true, err
	}
	i, ok := As[RecordInspector](s)
	if !ok {
		return 0, false, nil
	}
	rs, err := i.Records(ctx, RecordFilter{Consumer: consumer, State: Uncertain, Limit: MaxCountUncertain})
	return len(rs), true, err
}
