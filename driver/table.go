package driver

import "time"

// This file is the decision table of protocol section 2: pure functions from a record and an operation to the record
// after it and the answer. They read no clock: now is the store's. They never write into slices of the record passed
// in. Engine, simulator, memory store and conformance suites share them.

// DecideClaim decides one claim. r is the record as found (State Absent: none). drawn is a number from the store's
// token sequence, drawn after the record was locked; the record's token is the greater of it and its own successor, so
// that tokens never repeat (invariant I3). The returned record is to be stored when changed is true.
func DecideClaim(r Record, c Claim, now time.Time, drawn uint64) (after Record, g Grant, changed bool) {
	if r.State == Absent {
		if c.waitsForGap("") {
			return r, Grant{Verdict: Busy, Gap: true, Hold: Hold{Key: c.Key}}, false
		}
		r = Record{
			Key: c.Key, Generation: 1, Takeover: c.Takeover, Fingerprint: c.Fingerprint, CreatedAt: now,
			Watermark: Watermark{Running: c.Version, Gap: c.gap("")},
		}
		r.acquire(c, now, drawn)
		return r, r.grant(Acquired, ""), true
	}
	if r.State == Expired { // before anything is compared: neither version nor payload of it is known any more
		return r.claimExpired()
	}
	if c.Version != r.Watermark.Running {
		return r.claimVersion(c, now, drawn)
	}
	mismatch, other := r.compare(&c)
	if mismatch {
		return r, r.grant(Mismatch, c.DeliveryID), false
	}
	seen := c.DeliveryID != "" && r.saw(c.DeliveryID)
	switch r.State {
	case Released:
		// A nonce that was released is spent: this claim is a late copy of the one that was released, and nobody waits
		// for its answer (law 5).
		if r.Spent && r.Nonce == c.Nonce {
			return r.busy(c, max(r.RetryAt.Sub(now), 0))
		}
		if wait := r.RetryAt.Sub(now); wait > 0 {
			return r.busy(c, wait)
		}
		r.acquire(c, now, drawn)
	case InProgress:
		switch {
		case r.Nonce == c.Nonce:
			r.renew(c.Lease, now) // idempotent, and it renews (law 5)
		case now.After(r.LeaseUntil):
			return r.takeOver(c, now, drawn, seen)
		case r.LeaseUntil.Sub(now) > r.Lease:
			// The store's clock stepped back: the lease must not live longer than it was asked for (law 7).
			r.LeaseUntil = now.Add(r.Lease)
			g = r.grant(Busy, c.DeliveryID)
			g.Wait = r.Lease
			return r, g, true
		default:
			return r.busy(c, r.LeaseUntil.Sub(now))
		}
	case Completed, FailedState, Uncertain:
		g = r.grant([...]Verdict{Completed: Replay, FailedState: Failed, Uncertain: Parked}[r.State], c.DeliveryID)
		g.OtherPayload = other
		return r, g, false
	}
	g = r.grant(Acquired, "")
	g.Redelivery = seen
	return r, g, true
}

func (r *Record) acquire(c Claim, now time.Time, drawn uint64) {
	r.State = InProgress
	r.nextToken(drawn)
	r.Nonce, r.Spent = c.Nonce, false
	r.Takeover = max(r.Takeover, c.Takeover)
	r.Attempt++
	r.Beat = 0
	r.Reason, r.RetryAt, r.RetainUntil = "", time.Time{}, time.Time{}
	r.BodyDigest = c.BodyDigest
	r.note(c.DeliveryID)
	r.renew(c.Lease, now)
}

func (r *Record) renew(lease time.Duration, now time.Time) {
	r.Lease, r.LeaseUntil, r.UpdatedAt = lease, now.Add(lease), now
}

func (r Record) busy(c Claim, wait time.Duration) (Record, Grant, bool) {
	g := r.grant(Busy, c.DeliveryID)
	g.Wait = wait
	return r, g, false
}

// QuarantineAfter is after how many takeovers in a row a key runs in quarantine: until it outlived QuarantineBeats nothing
// else is started in its process, because it may be what killed the others.
const QuarantineAfter = 2

// QuarantineBeats is how many heartbeats a run has to outlive in quarantine. It doubles with every run whose outcome is
// unknown, so that a message which kills its process late is found too. A record that has as many beats counts no takeover:
// from then on others ran beside it, and each of them may have been the one.
func QuarantineBeats(uncertainty int) uint32 {
	return 1 << min(max(uncertainty-QuarantineAfter, 0), 20)
}

// takeOver decides a claim on an expired lease: the holder went without a word, and nobody knows whether its effect
// happened. The doubt is stored by the same write (a U-event).
func (r Record) takeOver(c Claim, now time.Time, drawn uint64, seen bool) (Record, Grant, bool) {
	outlived := r.Takeovers >= QuarantineAfter && r.Beat >= QuarantineBeats(r.Uncertainty)
	r.Takeover = max(r.Takeover, c.Takeover)
	r.Unknown = true
	r.Uncertainty++
	if r.Takeover == Once {
		// Token and nonce stay: a late completion by the holder is the truth, and wins.
		r.State, r.UpdatedAt = Uncertain, now
		r.Reason = "the run was interrupted and its outcome is unknown"
		return r, r.grant(Parked, c.DeliveryID), true
	}
	if !outlived {
		r.Takeovers++
	}
	r.acquire(c, now, drawn)
	g := r.grant(Acquired, "")
	g.Redelivery = seen
	return r, g, true
}

// DecideExtend decides the extension of a lease: Applied; Settled when this attempt completed the record already;
// else Lost.
func DecideExtend(r Record, h Hold, lease time.Duration, now time.Time) (after Record, o Outcome) {
	switch {
	case r.State == InProgress && r.mine(h):
		r.renew(lease, now)
		r.Beat++
		return r, Applied
	case r.State == Completed && r.mine(h):
		return r, Settled
	}
	return r, Lost
}

// DecideFinish decides the end of an attempt. The returned record is to be stored when changed is true; an Applied
// answer without a change is the repetition of an applied write.
func DecideFinish(r Record, f Finish, now time.Time) (after Record, o Outcome, changed bool) {
	if r.State == Absent || !r.mine(f.Hold) || f.Final < Complete || f.Final > Park {
		return r, Lost, false
	}
	target := [...]State{Absent, Completed, FailedState, Released, Uncertain}[f.Final]
	if r.State == target && (target != Released || r.Spent) {
		return r, Applied, false
	}
	late := r.State == Uncertain && f.Final == Complete // late truth wins
	if r.State != InProgress && !late {
		return r, Lost, false
	}
	r.State, r.UpdatedAt = target, now
	r.RetainUntil = now.Add(f.Keep)
	r.Reason = f.Reason
	switch f.Final {
	case Complete:
		r.complete(f.Result, now)
	case Fail:
		r.Failures++
		switch {
		case f.Compensated:
			r.Epoch++
			r.Unknown = false
		case f.Ran == MaybeApplied:
			r.markUnknown()
		}
	case Park:
		r.RetainUntil = time.Time{}
		r.markUnknown()
	case Release:
		r.release(f, now)
	}
	if late {
		return r, Recovered, true
	}
	return r, Applied, true
}

func (r *Record) complete(result []byte, now time.Time) {
	r.Result, r.CompletedAt, r.Unknown = result, now, false
	r.Watermark.apply(r.Fingerprint)
}

func (r *Record) release(f Finish, now time.Time) {
	r.Spent = true
	r.RetryAt = now.Add(f.RetryAfter)
	r.RetainUntil = r.RetryAt.Add(f.Keep)
	if f.Ran != Unstarted {
		r.Takeovers = 0 // it came back: it does not kill its process
	}
	if f.Ran == MaybeApplied {
		r.markUnknown()
	}
	switch {
	case f.Ran == Unstarted:
		r.Attempt = max(r.Attempt-1, 0)
	case f.Refund:
		r.Attempt = max(r.Attempt-1, 1) // a run began: the next claim is not the first (Record.Attempt)
	default:
		r.Failures++
	}
}

// markUnknown records a U-event: the doubt is stored by the write that creates it.
func (r *Record) markUnknown() {
	r.Unknown = true
	r.Uncertainty++
}

// OperationKind is what a person may do to a record.
type OperationKind uint8

// The operator's verbs (protocol section 2). Each can be repeated.
const (
	// Resolve ends an UNCERTAIN record as Operation.As says.
	Resolve OperationKind = iota + 1
	// Redrive reopens a FAILED record for a new generation; with NewGeneration also a COMPLETED one. An EXPIRED record is
	// reopened by the state that it ended in; one that ended RELEASED with a doubt is reopened as a FAILED one.
	Redrive
	// Discard marks the dead letter of a FAILED record as disposed: later duplicates are just acked. Of an EXPIRED record
	// they stay late.
	Discard
	// ForceRelease takes an IN_PROGRESS claim away from its holder.
	ForceRelease
	// Reopen lets an ended record (COMPLETED, FAILED, UNCERTAIN, EXPIRED) run again at the next delivery of its key. It
	// sends nothing.
	Reopen
	// Erase removes an ended record (COMPLETED, FAILED, UNCERTAIN, EXPIRED) with its journal, its duplicates and its audit
	// entries. A later message of the key is a new one, and runs. One audit entry remains, without the key
	// ([Operation.Entry]). A store that cannot do that returns [ErrUnsupported].
	Erase
)

var operationNames = [...]string{"none", "resolve", "redrive", "discard", "release", "reopen", "erase"}

func (k OperationKind) String() string { return operationNames[k] }

// Operation is one operator's act on one record.
type Operation struct {
	Kind OperationKind
	Key  Key
	// Token and Generation must be those of the dead letter (Resolve, Redrive, Discard); an operation on another token is
	// Lost: the dead letter is stale. A zero Token takes the record as it is.
	Token      uint64
	Generation uint32
	As         State // Resolve: Completed, FailedState or Released
	Result     []byte
	Reason     string
	// Fingerprint replaces the record's when not empty (an edited dead letter).
	Fingerprint Fingerprint
	// Verified says that the effect certainly did not happen: the doubt is lifted. Without it a redriven record with
	// uncertainty events is probed first, where a probe is configured.
	Verified bool
	// NewGeneration allows Redrive to run a COMPLETED key again, under a new effect key.
	NewGeneration bool
	Keep          time.Duration
	Horizon       time.Duration
	// By names who does it, for the audit trail.
	By string
}

// DecideOperate decides an operator's act: Applied, Lost (another state or token; nothing changed). When the returned record
// is Absent and changed is true, the record is to be removed ([Erase]).
func DecideOperate(r Record, op Operation, now time.Time, drawn uint64) (after Record, o Outcome, changed bool) {
	if r.State == Absent {
		return r, Lost, false
	}
	if op.Kind != ForceRelease && op.Token != 0 && r.Token != op.Token {
		return r, Lost, false
	}
	if r.State == Expired {
		return r.operateExpired(op, now)
	}
	switch op.Kind {
	case Erase:
		if r.State == InProgress || r.State == Released {
			return r, Lost, false
		}
		return Record{}, Applied, true
	case Resolve:
		return r.resolve(op, now)
	case Redrive:
		return r.redrive(op, now)
	case Reopen:
		return r.reopen(op, now)
	case Discard:
		if r.State != FailedState {
			return r, Lost, false
		}
		if r.Disposed {
			return r, Applied, false
		}
		r.Disposed, r.UpdatedAt = true, now
		return r, Applied, true
	case ForceRelease:
		if r.State == Released && r.Spent && r.Nonce == (Nonce{}) {
			return r, Applied, false // repeated: only a forced release leaves a record that nobody owns
		}
		if r.State != InProgress {
			return r, Lost, false
		}
		r.nextToken(drawn)
		r.Nonce = Nonce{}
		r.markUnknown()
		r.State, r.Spent, r.RetryAt, r.UpdatedAt = Released, true, now, now
		r.RetainUntil, r.Reason = now.Add(op.Keep), op.Reason
		return r, Applied, true
	}
	return r, Lost, false
}

func (r Record) resolve(op Operation, now time.Time) (Record, Outcome, bool) {
	if op.As != Completed && op.As != FailedState && op.As != Released {
		return r, Lost, false
	}
	if r.State == op.As {
		return r, Applied, false
	}
	if r.State != Uncertain {
		return r, Lost, false
	}
	r.State, r.UpdatedAt, r.RetainUntil, r.Reason = op.As, now, now.Add(op.Keep), op.Reason
	switch op.As {
	case Completed:
		r.complete(op.Result, now)
	case FailedState:
		r.Disposed = true // the person decided: there is nothing left to look at
	case Released:
		// The person vouches for the absence of the effect: the strictest policy may run it once more (I2').
		r.Unknown, r.Spent, r.RetryAt, r.Takeovers = false, true, now, 0
	}
	return r, Applied, true
}

func (r Record) redrive(op Operation, now time.Time) (Record, Outcome, bool) {
	switch {
	case r.State == Released && op.Generation > 0 && r.Generation == op.Generation+1:
		return r, Applied, false // repeated after a crash before the message was sent again
	case r.State == FailedState:
	case r.State == Completed && op.NewGeneration:
		r.Epoch++
		r.Unknown = false
		r.Result, r.CompletedAt = nil, time.Time{} // else they are an older version's, and stand
	default:
		return r, Lost, false
	}
	r.Generation++
	r.State, r.Attempt, r.Failures, r.Takeovers = Released, 0, 0, 0
	r.Spent, r.Disposed, r.RetryAt, r.UpdatedAt = true, false, now, now
	r.RetainUntil = now.Add(op.Keep)
	if op.Verified {
		r.Unknown = false
	}
	if op.Fingerprint != "" {
		r.Fingerprint = op.Fingerprint
	}
	r.BodyDigest = 0 // the dead letter that is sent again may have been edited
	r.Reason = op.Reason
	return r, Applied, true
}

// reopen is a redrive without a message. A completed key gets new effect keys, because downstreams refuse those of the run that
// took effect. A failed or parked one keeps them: its effect may have happened, and the doubt stays; under Once a person has
// decided with it that the key may run.
func (r Record) reopen(op Operation, now time.Time) (Record, Outcome, bool) {
	if r.State == Uncertain {
		r.State = FailedState // a late completion of its run is Lost: the generation is another
	}
	if r.State == FailedState && r.Takeover == Once {
		r.Unknown = false
	}
	op.NewGeneration = true
	kept := r.RetainUntil
	r, o, changed := r.redrive(op, now)
	if changed && kept.After(r.RetainUntil) {
		r.RetainUntil = kept // nobody sent a message: the next one may come as late as before
	}
	return r, o, changed
}
