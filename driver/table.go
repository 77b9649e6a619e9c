package driver

import "time"

// This file is the decision table of protocol section 2: pure functions from a record and an operation to the new record
// and the result. They read no clock: now is the store's. They do not write into slices of the given record. Engine,
// simulator, memory store and conformance suites share them.

// DecideClaim decides one claim. r is the record as found (State Absent: none). drawn is a number from the store's token
// sequence, drawn after the record was locked. The new token is the greater of drawn and the old token plus one, so that
// tokens do not repeat (invariant I3). Store the returned record if changed is true.
func DecideClaim(r Record, c Claim, now time.Time, drawn uint64) (after Record, g Grant, changed bool) {
	if r.State == Absent {
		if c.waitsForGap("") {
			return r, Grant{Verdict: Busy, Gap: true, Hold: Hold{Key: c.Key}}, false
		}
		if c.AtCommit && c.Version == "" {
			return r, Grant{Verdict: Acquired, Hold: Hold{Key: c.Key, Generation: 1, Nonce: c.Nonce}, Attempt: 1, Takeover: c.Takeover}, false
		}
		r = Record{
			Key: c.Key, Generation: 1, Takeover: c.Takeover, Fingerprint: c.Fingerprint, CreatedAt: now,
			Watermark: Watermark{Running: c.Version, Gap: c.gap("")},
		}
		r.acquire(c, now, drawn)
		return r, r.grant(Acquired, ""), true
	}
	if r.State == Expired { // before any comparison: its version and payload are no longer known
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
		// A nonce that was released is spent: this claim is a late copy of the released one, and no caller waits for its
		// result (law 5).
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
			r.renew(c.Lease, now) // repeating a claim renews its lease (law 5)
		case now.After(r.LeaseUntil):
			return r.takeOver(c, now, drawn, seen)
		case r.LeaseUntil.Sub(now) > r.Lease:
			// The store's clock stepped back: the lease must not last longer than requested (law 7).
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
	r.remember(c.DeliveryID)
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

// QuarantineAfter is the number of consecutive takeovers after which a key runs in quarantine: until it has outlived
// QuarantineBeats, its process starts nothing else, because the message may be what killed the previous processes.
const QuarantineAfter = 2

// QuarantineBeats returns how many heartbeats a run must outlive in quarantine. The number doubles with every run whose
// outcome is unknown, so that a message which kills its process late is found too. If a record has reached that number of
// beats, its takeover is not counted: other messages ran at the same time, and each of them may have killed the process.
func QuarantineBeats(uncertainty int) uint32 {
	return 1 << min(max(uncertainty-QuarantineAfter, 0), 20)
}

// takeOver decides a claim on an expired lease. The outcome of the previous run is unknown. The same write stores this doubt
// (a U-event).
func (r Record) takeOver(c Claim, now time.Time, drawn uint64, seen bool) (Record, Grant, bool) {
	outlived := r.Takeovers >= QuarantineAfter && r.Beat >= QuarantineBeats(r.Uncertainty)
	r.Takeover = max(r.Takeover, c.Takeover)
	r.Unknown = true
	r.Uncertainty++
	if r.Takeover == Once {
		// Token and nonce stay: a late completion by the holder is accepted.
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

// DecideExtend decides the extension of a lease: Applied, Settled if the same attempt has already completed the record,
// otherwise Lost.
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

// DecideFinish decides the end of an attempt. Store the returned record if changed is true. Applied without a change means
// that an applied write was repeated.
func DecideFinish(r Record, f Finish, now time.Time) (after Record, o Outcome, changed bool) {
	if r.State == Absent || !r.mine(f.Hold) || f.Final < Complete || f.Final > Park {
		return r, Lost, false
	}
	target := [...]State{Absent, Completed, FailedState, Released, Uncertain}[f.Final]
	if r.State == target && (target != Released || r.Spent) {
		return r, Applied, false
	}
	late := r.State == Uncertain && f.Final == Complete // a late completion is accepted
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

// DecideInsert decides a completion that comes with its claim (Work.Claim). A key without a record gets a completed one:
// Applied. Any record that exists stays unchanged: Applied if it was completed with this nonce, which means that an applied
// write was repeated, otherwise Lost. Store the returned record, as an insert, if changed is true.
func DecideInsert(r Record, c Claim, f Finish, now time.Time, drawn uint64) (after Record, o Outcome, changed bool) {
	switch {
	case r.State == Completed && r.Nonce == c.Nonce && f.Final == Complete:
		return r, Applied, false
	case r.State != Absent || f.Final != Complete || c.Version != "":
		return r, Lost, false
	}
	c.AtCommit = false
	after, g, _ := DecideClaim(r, c, now, drawn)
	f.Hold = g.Hold
	return DecideFinish(after, f, now)
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
		r.Takeovers = 0 // the run returned: it does not kill its process
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

// OperationKind is an operation that a person may do to a record.
type OperationKind uint8

// The operations (protocol section 2). Each can be repeated.
const (
	// Resolve ends an UNCERTAIN record in the state Operation.As.
	Resolve OperationKind = iota + 1
	// Redrive reopens a FAILED record for a new generation, and with NewGeneration also a COMPLETED one. An EXPIRED record is
	// reopened like the state that it ended in. If it ended RELEASED with a doubt, it is reopened like a FAILED one.
	Redrive
	// Discard marks the dead letter of a FAILED record as disposed: later duplicates are just acked. Duplicates of an EXPIRED
	// record stay late.
	Discard
	// ForceRelease takes an IN_PROGRESS claim away from its holder.
	ForceRelease
	// Reopen lets an ended record (COMPLETED, FAILED, UNCERTAIN, EXPIRED) run again at the next delivery of its key. It
	// sends nothing.
	Reopen
	// Erase removes an ended record (COMPLETED, FAILED, UNCERTAIN, EXPIRED) with its journal, its duplicates and its audit
	// entries. A later message of the key is a new one and runs. One audit entry remains, without the key
	// ([Operation.Entry]). A store that cannot erase returns [ErrUnsupported].
	Erase
	// Refuse is no operation: it is the kind of the audit entries of requests that were refused ([RefusalLog]).
	Refuse
)

var operationNames = [...]string{"none", "resolve", "redrive", "discard", "release", "reopen", "erase", "refuse"}

func (k OperationKind) String() string { return operationNames[k] }

// Operation is one operation of an operator on one record.
type Operation struct {
	Kind OperationKind
	Key  Key
	// Token and Generation must be those of the dead letter (Resolve, Redrive, Discard). If the record has another token, the
	// dead letter is stale and the operation is Lost. A zero Token accepts any.
	Token      uint64
	Generation uint32
	As         State // Resolve: Completed, FailedState or Released
	Result     []byte
	Reason     string
	// Fingerprint replaces the record's when not empty (an edited dead letter).
	Fingerprint Fingerprint
	// Verified: the effect certainly did not happen, and the doubt is cleared. Without it, a redriven record with an unknown
	// outcome is probed first, if a probe is configured.
	Verified bool
	// NewGeneration allows Redrive to run a COMPLETED key again, under a new effect key.
	NewGeneration bool
	Keep          time.Duration
	Horizon       time.Duration
	// By is the name of the operator, for the audit log.
	By string
}

// DecideOperate decides an operation: Applied or Lost (another state or token, and nothing changed). If the returned record is
// Absent and changed is true, remove the record ([Erase]).
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
			return r, Applied, false // repeated: only a forced release leaves a record without an owner
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
		r.Disposed = true // the person decided: nothing is left to look at
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
		r.Result, r.CompletedAt = nil, time.Time{} // of a FAILED record they may be an older version's, and stay
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
	r.BodyDigest = 0 // the redriven message may have been edited
	r.Reason = op.Reason
	return r, Applied, true
}

// reopen is a redrive without a message. A completed key gets new effect keys, because downstreams refuse those of the run that
// took effect. A failed or parked one keeps them, because its effect may have happened, and the doubt stays. Under Once the
// operation also means that a person allows the key to run.
func (r Record) reopen(op Operation, now time.Time) (Record, Outcome, bool) {
	if r.State == Uncertain {
		r.State = FailedState // a late completion of its run is Lost: the generation changes
	}
	if r.State == FailedState && r.Takeover == Once {
		r.Unknown = false
	}
	op.NewGeneration = true
	kept := r.RetainUntil
	r, o, changed := r.redrive(op, now)
	if changed && kept.After(r.RetainUntil) {
		r.RetainUntil = kept // no message was sent, and the next one may come as late as before
	}
	return r, o, changed
}
