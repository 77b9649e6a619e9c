package semel

import (
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// Errors of Run and Do, and causes of a handler's cancelled context ([context.Cause]).
var (
	// ErrFenced: the lease is lost. Another worker may run the key by now. Stop, and write nothing.
	ErrFenced = errors.New("semel: lease lost")
	// ErrDraining: the worker stops, and the grace period has ended. The message will be redelivered.
	ErrDraining = errors.New("semel: worker is draining")
	// ErrTimeout: the handler exceeded Config.Timeout or Config.MaxRuntime.
	ErrTimeout = errors.New("semel: handler timed out")
	// ErrBusy: another caller runs the key (Do only, as a *BusyError).
	ErrBusy = errors.New("semel: key is in progress elsewhere")
	// ErrMismatch: the key was used with another payload (Do only).
	ErrMismatch = errors.New("semel: key was used with another payload")
	// ErrFailed: the key failed permanently in an earlier call (Do only).
	ErrFailed = errors.New("semel: key failed for good")
	// ErrUncertain: the key is parked, because the outcome of an earlier run is unknown (Do only).
	ErrUncertain = errors.New("semel: outcome of an earlier run is uncertain")
	// ErrStale: a newer version of the key was applied (Do with WithVersion only).
	ErrStale = errors.New("semel: a newer version was applied")
	// ErrLate: the call comes too late (Do only). The record of the key is EXPIRED (driver.LongTerm), or a newer version may
	// have been applied, or the version's place in the sequence was passed over.
	ErrLate = errors.New("semel: the call comes too late")
	// ErrUnreadable: the record of the key cannot be read, because a newer version of semel wrote it or because it is damaged
	// (Do only). Upgrade the program, or restore or delete the record.
	ErrUnreadable = driver.ErrUnreadable
	// ErrNoResponse: a write got no response in time. Its outcome is unknown.
	ErrNoResponse = errors.New("semel: no response to a write")
	// ErrResultNotStored: the key is completed and its effect happened, but its record has no result (Do only).
	ErrResultNotStored = errors.New("semel: the key is completed, and its result was not stored")
	// ErrNoTx: the store does not offer the kind of transaction that the handler needs.
	ErrNoTx = errors.New("semel: store offers no such transaction")
)

// BusyError is ErrBusy with the time until the key can be claimed. By then the lease of the run in progress has ended, unless
// its worker extends it, or the retry of a failed run is due.
type BusyError struct {
	Key  string
	Wait time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("key %q: %v; it can be claimed in %v unless its lease is extended", e.Key, ErrBusy, e.Wait.Round(time.Millisecond))
}

// Is matches ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// PanicError is the error for a panic in a handler or in another function of the program. Stack is the stack trace.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// HandlerStuckError is the error of Run when handlers did not return within 5 s after they were cancelled at the end of the
// grace period. N goroutines still run. Their claims are kept until the leases end.
type HandlerStuckError struct{ N int }

func (e *HandlerStuckError) Error() string {
	return fmt.Sprintf("semel: %d handlers ignored their cancellation", e.N)
}

// ConfigError names a field of a Config that cannot be used, the problem, and how to fix it.
type ConfigError struct{ Field, Problem, Hint string }

func (e *ConfigError) Error() string {
	return fmt.Sprintf("semel: config %s: %s (%s)", e.Field, e.Problem, e.Hint)
}

// outcomeError is a handler's error with marks that tell the engine how to treat it.
type outcomeError struct {
	err        error
	permanent  bool
	notApplied bool
	busy       bool
	drop       bool
	// parked: set aside for a person. compensated: failed permanently, and undone. unavailable: the downstream's failure.
	parked, compensated, unavailable bool
	after                            time.Duration
	hasAfter                         bool
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }

// Permanent marks an error that no retry can fix: the message becomes a dead letter.
func Permanent(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.permanent = true })
}

// NotApplied marks a failure that certainly happened before the effect. After other failures the policy Once parks the key,
// and the policy Probe asks the probe before the next run.
func NotApplied(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.notApplied = true })
}

// RetryAfter marks an error whose next attempt is due after d instead of after the configured backoff.
func RetryAfter(err error, d time.Duration) error {
	return wrapOutcome(err, func(o *outcomeError) { o.after, o.hasAfter = d, true })
}

// Deferred marks a refusal that is not a failure, because the downstream is busy or rate limited: nothing was applied, the
// message is redelivered after d, and no attempt is spent.
func Deferred(err error, d time.Duration) error {
	return wrapOutcome(err, func(o *outcomeError) { o.busy, o.notApplied, o.after, o.hasAfter = true, true, d, true })
}

// Park marks a failure with an unknown outcome that only a person can clear up. The key is not retried, and the message
// becomes a dead letter of kind uncertain.
func Park(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.parked = true })
}

// Compensated marks a permanent failure whose effects were all undone: the message becomes a dead letter of kind failed. A
// redrive runs under new effect keys, because downstreams may refuse the old ones. Package steps returns it.
func Compensated(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.compensated, o.permanent, o.notApplied = true, true, true })
}

// Drop drops the message on purpose: the record is completed with the reason, and nothing is retried.
func Drop(reason string) error { return &outcomeError{err: errors.New(reason), drop: true} }

// class returns the class that the handler named, or Failed if it named none.
func (e *outcomeError) class() machine.Class {
	switch {
	case e.drop:
		return machine.Dropped
	case e.parked:
		return machine.Parked
	case e.permanent:
		return machine.Permanent
	case e.unavailable:
		return machine.Unavailable
	case e.busy:
		return machine.Deferred
	}
	return machine.Failed
}

// Disposition is the set of marks on an error of a run: those of Permanent, NotApplied, RetryAfter, Deferred, Unavailable,
// Drop, Park and Compensated.
type Disposition struct {
	Permanent, NotApplied, Deferred, Unavailable, Dropped, Parked, Compensated bool
	// After is the delay before the next attempt. It is valid if HasAfter is set.
	After    time.Duration
	HasAfter bool
}

// DispositionOf returns the marks of an error, for middleware that acts on what a handler is about to return. It returns the
// zero value for nil and for an error without marks.
func DispositionOf(err error) Disposition {
	var o *outcomeError
	if !errors.As(err, &o) {
		return Disposition{}
	}
	return Disposition{
		Permanent: o.permanent, NotApplied: o.notApplied, Deferred: o.busy, Unavailable: o.unavailable, Dropped: o.drop,
		Parked: o.parked, Compensated: o.compensated, After: o.after, HasAfter: o.hasAfter,
	}
}

// ItemFailed marks err as the failure of message i of a batch, counted from 0. A batch handler that knows which messages
// failed returns their errors, joined if there are several ([errors.Join]). The other messages then run again without
// them, and semel does not have to halve the batch to find them. err may be marked Permanent, RetryAfter, Deferred or Drop.
// If all named messages are dropped, nothing failed and the batch commits. ItemFailed returns nil if err is nil.
func ItemFailed(i int, err error) error {
	if err == nil {
		return nil
	}
	return &itemError{index: i, err: err}
}

type itemError struct {
	index int
	err   error
}

func (e *itemError) Error() string { return fmt.Sprintf("message %d of the batch: %v", e.index, e.err) }
func (e *itemError) Unwrap() error { return e.err }

// namedItems calls f with every item that an error names.
func namedItems(err error, f func(e *itemError)) {
	switch e := any(err).(type) { // joined and wrapped errors alike
	case nil:
	case *itemError:
		f(e)
	case interface{ Unwrap() error }:
		namedItems(e.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			namedItems(inner, f)
		}
	}
}

// wrapOutcome adds a mark to those of err. It returns nil if err is nil.
func wrapOutcome(err error, mark func(*outcomeError)) error {
	if err == nil {
		return nil
	}
	o := outcomeError{err: err}
	if inner := (*outcomeError)(nil); errors.As(err, &inner) {
		o = *inner
		o.err = err
	}
	mark(&o)
	return &o
}
