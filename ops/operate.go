package ops

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// Discard decides that a dead letter's message is not to run any more: later duplicates are just acknowledged. One that must stay
// is a result (Refused), not an error.
func (q Queue) Discard(ctx context.Context, l driver.DeadLetter, o Options) (Result, error) {
	res := Result{ID: l.ID, Key: l.Key.Raw, Outcome: Discarded, DryRun: o.DryRun}
	r, there, err := q.record(ctx, l.Key)
	if err != nil {
		return res, err
	}
	switch {
	case !there || l.Kind == driver.DeadLetterMismatch || l.Kind == driver.DeadLetterBusy || l.Kind == driver.DeadLetterLate || foreign(l, r):
		// There is no record of this payload or version: the dead letter is all there is.
	case r.State == driver.Uncertain && r.Token == l.Token:
		return refuse(res, "the outcome is unknown: look at the downstream, then %s (or --as failed)",
			q.resolve(l.Key)), nil
	case r.State == driver.FailedState && r.Token == l.Token && !o.DryRun:
		_, out, err := q.operator.Operate(ctx, driver.Operation{
			Kind: driver.Discard, Key: l.Key, Token: l.Token, Generation: l.Generation, Reason: o.reason("discarded"), By: o.By,
		})
		if err != nil {
			return res, fmt.Errorf("discard key %q: %w", l.Key.Raw, err)
		}
		if out != driver.Applied {
			return refuse(res, "its record changed meanwhile: look again"), nil
		}
	case r.State == driver.Released && r.Token == l.Token:
		return refuse(res, "it was redriven, and its message may not have been sent yet: repeat the redrive"), nil
	case r.Token != l.Token && r.State != driver.Completed && r.State != driver.Expired && !r.Disposed:
		// The newer attempt may be one without a message (see wentOn). Only where it has a dead letter of its own nothing hangs
		// on this one.
		_, ok, err := q.DeadLetters.DeadLetter(ctx, driver.DeadLetterID(l.Kind, l.Key, r.Token, ""))
		if err != nil {
			return res, fmt.Errorf("read dead letter: %w", err)
		}
		if !ok {
			return refuse(res, "the record is %s with a newer attempt, which may have no message: redrive it, then discard what comes of it",
				r.State), nil
		}
		res.Why = "a newer dead letter of the key stands"
	}
	return res, q.remove(ctx, l, o)
}

// Resolutions are the names of the states that a person may decide for an uncertain key.
var Resolutions = map[string]driver.State{
	"completed": driver.Completed, "retry": driver.Released, "failed": driver.FailedState,
}

// Resolve ends an uncertain key as a person decided; for a retry its message is sent again from the dead letter. Each step
// can be repeated. The dead letter may be absent: then its message is still in the queue. It returns the id of the message
// that was sent, "" = none. The error is a [NotUncertainError] if the key has been decided otherwise.
func (q Queue) Resolve(ctx context.Context, r driver.Record, as driver.State, result []byte, o Options) (string, error) {
	after, out, err := q.operator.Operate(ctx, driver.Operation{
		Kind: driver.Resolve, Key: r.Key, Token: r.Token, Generation: r.Generation, As: as, Result: result, Keep: q.keep(o),
		Reason: o.reason("resolved"), By: o.By,
	})
	if err != nil {
		return "", fmt.Errorf("resolve key %q: %w", r.Key.Raw, err)
	}
	ls, err := q.uncertain(ctx, r.Key, r.Watermark.Running)
	if err != nil {
		return "", err
	}
	if out != driver.Applied && (as != driver.Released || len(ls) == 0 || after.State == driver.Completed) {
		return "", &NotUncertainError{Key: r.Key.Raw, State: after.State}
	}
	// Applied, now or before; or this very resolution was interrupted, and a delivery whose message is gone has claimed
	// the key since: as with a redrive the message is sent again.
	sent := ""
	for _, l := range ls {
		if as == driver.Released {
			if sent, err = q.send(ctx, l); err != nil {
				return "", err
			}
		}
		if err := q.remove(ctx, l, Options{}); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// uncertain lists the uncertain dead letters of a key: one, unless an earlier resolution was interrupted.
func (q Queue) uncertain(ctx context.Context, k driver.Key, v driver.Version) (out []driver.DeadLetter, err error) {
	all, err := q.DeadLetters.DeadLetters(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	for _, l := range all {
		if l.Kind == driver.DeadLetterUncertain && l.Key == k && l.Version == v {
			out = append(out, l)
		}
	}
	return out, nil
}

// ChangedError reports a record that is not what it was when it was read: the operation wrote nothing.
type ChangedError struct {
	Key   string
	State driver.State // now
}

func (e *ChangedError) Error() string { return fmt.Sprintf("key %q is %s by now", e.Key, e.State) }

// Change does one operation on a record as it was read, and returns the record afterwards: [driver.Reopen] lets an ended key run
// again at its next delivery, [driver.ForceRelease] ends the claim of a worker, [driver.Erase] removes the record. It sends no
// message. The error is a [ChangedError] if the record has changed, and wraps [driver.ErrUnsupported] if the store takes no operations.
func Change(ctx context.Context, s driver.Store, r driver.Record, kind driver.OperationKind, o Options) (driver.Record, error) {
	operator, ok := driver.As[driver.Operator](s)
	if !ok {
		return r, fmt.Errorf("store %s takes no operations: %w", s.Features().Name, driver.ErrUnsupported)
	}
	op := driver.Operation{Kind: kind, Key: r.Key, Token: r.Token, Generation: r.Generation, Keep: Queue{}.keep(o), Reason: o.Reason, By: o.By}
	if kind == driver.ForceRelease {
		op.Reason = o.reason("released")
	}
	if o.DryRun {
		return r, nil
	}
	after, out, err := operator.Operate(ctx, op)
	switch {
	case err != nil:
		return r, fmt.Errorf("%s key %q: %w", kind, r.Key.Raw, err)
	case out != driver.Applied:
		return r, &ChangedError{Key: r.Key.Raw, State: after.State}
	}
	return after, nil
}
