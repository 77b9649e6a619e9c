package driver

import (
	"fmt"
	"slices"
	"time"
)

// This file is the part of the decision table about the end of a record's life: retention, the long-term period and
// EXPIRED records (docs/adr/0013).

// SweepVerdict says what a sweep does with a record.
type SweepVerdict uint8

// The verdicts of a sweep.
const (
	SweepKeep SweepVerdict = iota
	SweepPurge
	// SweepAbandon: a claim was abandoned for longer than the horizon: it becomes UNCERTAIN, for the audit to report.
	SweepAbandon
	// SweepExpire: the record becomes EXPIRED. Its journal, its duplicates and its audit entries go in the same write.
	SweepExpire
)

// DecideSweep decides what retention does with a record. Neither a purge nor an expiry touches IN_PROGRESS or UNCERTAIN; the
// store must check state and time again in the statement that writes. longTerm is the period that is registered for the
// record's consumer ([LongTerm]), 0 = none. The horizon is that of some consumers: claims of others are left alone. Without
// consumers it is everybody's.
func DecideSweep(r Record, now time.Time, horizon, longTerm time.Duration, consumers ...string) (after Record, v SweepVerdict) {
	switch r.State {
	case Completed, FailedState, Released:
		switch {
		case !now.After(r.RetainUntil):
		case longTerm > 0 && r.Expires() && !now.After(r.RetainUntil.Add(longTerm)):
			return r.expire(longTerm), SweepExpire
		default:
			return r, SweepPurge
		}
	case Expired:
		if now.After(r.RetainUntil) {
			return r, SweepPurge
		}
	case InProgress:
		if horizon > 0 && now.After(r.LeaseUntil.Add(horizon)) &&
			(len(consumers) == 0 || slices.Contains(consumers, r.Key.Consumer)) {
			r.State, r.UpdatedAt = Uncertain, now
			r.markUnknown()
			r.Reason = "the claim was abandoned for longer than the horizon"
			return r, SweepAbandon
		}
	}
	return r, SweepKeep
}

// Expires reports whether the record becomes EXPIRED at the end of its retention, where its consumer has a long-term period:
// its key took effect, or may have. A RELEASED record without a doubt certainly had no effect: it is purged, and its message
// may run. So is a record with versions, whose late duplicates its watermark tells.
func (r *Record) Expires() bool {
	return (r.State == Completed || r.State == FailedState || r.State == Released && r.Unknown) && r.Watermark.Running == ""
}

// expire is the record after its expiry. It keeps what a redrive needs (token, generation, epoch, policy, doubts) and how and
// when it ended; UpdatedAt stays the time of the end.
func (r Record) expire(longTerm time.Duration) Record {
	return Record{
		Key: r.Key, State: Expired, Ended: r.State, Generation: r.Generation, Epoch: r.Epoch, Token: r.Token,
		Takeover: r.Takeover, Unknown: r.Unknown, Uncertainty: r.Uncertainty, Disposed: r.Disposed,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, RetainUntil: r.RetainUntil.Add(longTerm),
	}
}

// claimExpired decides a claim on an EXPIRED record: whatever its version and payload are, it is late.
func (r Record) claimExpired() (Record, Grant, bool) {
	g := r.grant(Late, "")
	g.Reason = fmt.Sprintf("the key %s on %s, and its record expired: this is a late duplicate", r.endedText(),
		r.UpdatedAt.UTC().Format("2006-01-02 15:04 MST"))
	return r, g, false
}

func (r *Record) endedText() string {
	switch r.Ended {
	case Completed:
		return "was completed"
	case FailedState:
		return "failed for good"
	default:
		return "was released with a doubt about its effect"
	}
}

// operateExpired decides an operator's act on an EXPIRED record.
func (r Record) operateExpired(op Operation, now time.Time) (Record, Outcome, bool) {
	reopened := r
	reopened.State, reopened.Ended = FailedState, Absent
	if r.Ended == Completed {
		reopened.State = Completed
	}
	after, o, changed := r, Lost, false
	switch op.Kind {
	case Erase:
		return Record{}, Applied, true
	case Redrive:
		after, o, changed = reopened.redrive(op, now)
	case Reopen:
		after, o, changed = reopened.reopen(op, now)
	case Discard:
		if r.Ended == FailedState {
			changed = !r.Disposed
			after.Disposed, o = true, Applied
		}
	}
	if o != Applied {
		return r, Lost, false
	}
	return after, o, changed
}
