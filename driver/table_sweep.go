package driver

import (
	"fmt"
	"slices"
	"time"
)

// This file is the part of the decision table about the end of a record's life: retention, the long-term period and
// EXPIRED records (docs/adr/0013).

// SweepVerdict is what a sweep does with a record.
type SweepVerdict uint8

// The verdicts of a sweep.
const (
	SweepKeep SweepVerdict = iota
	SweepPurge
	// SweepAbandon: the claim was abandoned for longer than the horizon. The record becomes UNCERTAIN.
	SweepAbandon
	// SweepExpire: the record becomes EXPIRED. The same write removes its journal, its duplicates and its audit entries.
	SweepExpire
)

// DecideSweep decides what a sweep does with a record. It does not purge or expire IN_PROGRESS or UNCERTAIN records, and the
// store must check state and time again in the statement that writes. longTerm is the period that is registered for the
// record's consumer ([LongTerm]), 0 = none. The horizon applies to claims of the given consumers, or of all if none are given.
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

// Expires reports whether the record becomes EXPIRED at the end of its retention if its consumer has a long-term period: its
// key took effect, or may have. A RELEASED record without a doubt certainly had no effect: it is purged, and its message may
// run. A record with versions is purged too, because its watermark identifies late duplicates.
func (r *Record) Expires() bool {
	return (r.State == Completed || r.State == FailedState || r.State == Released && r.Unknown) && r.Watermark.Running == ""
}

// expire returns the record after its expiry. It keeps everything that a redrive needs (token, generation, epoch, policy,
// doubts), the state in which it ended, and when: UpdatedAt stays the time of the end.
func (r Record) expire(longTerm time.Duration) Record {
	return Record{
		Key: r.Key, State: Expired, Ended: r.State, Generation: r.Generation, Epoch: r.Epoch, Token: r.Token,
		Takeover: r.Takeover, Unknown: r.Unknown, Uncertainty: r.Uncertainty, Disposed: r.Disposed,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, RetainUntil: r.RetainUntil.Add(longTerm),
	}
}

// claimExpired decides a claim on an EXPIRED record: it is late, whatever its version and payload.
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

// operateExpired decides an operation on an EXPIRED record.
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
