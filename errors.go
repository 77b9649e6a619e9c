package semel

import (
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// Causes of a handler's cancelled context ([context.Cause]), and what Run and Do return.
var (
	// ErrFenced: the lease is lost. Another worker may run the key by now; stop, and write nothing.
	ErrFenced = errors.New("semel: lease lost")
	// ErrDraining: the worker stops, and the grace period is over. The message comes back later.
	ErrDraining = errors.New("semel: worker is draining")
	// ErrTimeout: the handler's time is up (Config.Timeout or Config.MaxRuntime).
	ErrTimeout = errors.New("semel: handler timed out")
	// ErrBusy: somebody else runs the key (Do only, as a *BusyError).
	ErrBusy = errors.New("semel: key is in progress elsewhere")
	// ErrMismatch: the key was used with another payload (Do only).
	ErrMismatch = errors.New("semel: key was used with another payload")
	// ErrFailed: the key failed for good earlier (Do only).
	ErrFailed = errors.New("semel: key failed for good")
	// ErrUncertain: the key is parked, because nobody knows whether its effect happened (Do only).
	ErrUncertain = errors.New("semel: outcome of an earlier run is uncertain")
	// ErrStale: a newer version of the key was applied (Do with WithVersion only).
	ErrStale = errors.New("semel: a newer version was applied")
	// ErrLate: the call comes too late. The record of the key is EXPIRED (driver.LongTerm), or a newer version may have been
	// applied, or the version's place in the sequence was passed over (Do only).
	ErrLate = errors.New("semel: the call comes too late")
	// ErrUnreadable: the record of the key cannot be read, because a newer version of semel wrote it or because it is damaged
	// (Do only). Upgrade the program, or restore or delete the record.
	ErrUnreadable = driver.ErrUnreadable
	// ErrNoResponse: a write was not answered in time; nobody knows whether it was applied.
	ErrNoResponse = errors.New("semel: write not answered")
	// ErrResultNotStored: the key is completed and its effect happened, but its record has no result (Do only).
	ErrResultNotStored = errors.New("semel: the key is completed, and its result was not stored")
	// ErrNoTx: the store offers no transaction of the kind that the handler asks for.
	ErrNoTx = errors.New("semel: store offers no such transaction")
)

// BusyError is ErrBusy with the time after which the key can be claimed, if nothing happens to it until then: the lease of
// the run in progress ends (while its worker lives it is extended), or a failed run may be repeated.
type BusyError struct {
	Key  string
	Wait time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("key %q: %v; it can be claimed in %v unless its lease is extended", e.Key, ErrBusy, e.Wait.Round(time.Millisecond))
}

// Is matches ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// PanicError is a panic of a handler, or of another function that the program gave, as an error.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// HandlerStuckError is what Run returns when handlers ignored their cancellation past the hard limit: N goroutines
// still run. Their claims are kept until their leases end.
type HandlerStuckError struct{ N int }

func (e *HandlerStuckError) Error() string {
	return fmt.Sprintf("semel: %d handlers ignored their cancellation", e.N)
}

// ConfigError names the field of a Config that cannot be used, and the fix.
type ConfigError struct{ Field, Problem, Hint string }

func (e *ConfigError) Error() string {
	return fmt.Sprintf("semel: config %s: %s (%s)", e.Field, e.Problem, e.Hint)
}

// outcomeError is the return vocabulary of handlers: an error with what the engine is to do about it.
type outcomeError struct {
	err        error
	permanent  bool
	notApplied bool
	busy       bool
	drop       bool
	// parked: set aside for a person. compensated: failed for good, and undone. unavailable: the downstream's failure.
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

// NotApplied marks a failure that certainly happened before the effect: the only one after which the policies Probe
// and Once retry on their own.
func NotApplied(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.notApplied = true })
}

// RetryAfter marks an error whose next attempt is due after d instead of the configured backoff.
func RetryAfter(err error, d time.Duration) error {
	return wrapOutcome(err, func(o *outcomeError) { o.after, o.hasAfter = d, true })
}

// Deferred marks a refusal that is nobody's failure (the downstream is busy or rate limited): nothing was applied, the
// message comes back after d, and no attempt is spent.
func Deferred(err error, d time.Duration) error {
	return wrapOutcome(err, func(o *outcomeError) { o.busy, o.notApplied, o.after, o.hasAfter = true, true, d, true })
}

// Park marks a failure after which nobody can tell what happened: no retry, the key is set aside for a person with an
// uncertain dead letter.
func Park(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.parked = true })
}

// Compensated marks a failure for good whose effects were all undone: a dead letter without doubt. A redrive runs under
// new effect keys, because downstreams may have been told to refuse the old ones. Package steps returns it.
func Compensated(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.compensated, o.permanent, o.notApplied = true, true, true })
}

// Drop marks a message that is dropped on purpose: the record is completed with the reason, nothing is retried.
func Drop(reason string) error { return &outcomeError{err: errors.New(reason), drop: true} }

// class is what the handler named; Failed when it named none.
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

// Disposition are what an error of a run says about it beyond its text: the marks that Permanent, NotApplied, RetryAfter,
// Deferred, Unavailable, Drop, Park and Compensated put on it.
type Disposition struct {
	Permanent, NotApplied, Deferred, Unavailable, Dropped, Parked, Compensated bool
	// After is when the next attempt is due, where HasAfter says that the error tells.
	After    time.Duration
	HasAfter bool
}

// DispositionOf reads the marks of an error, for middleware and packages that act on what a handler is about to return. An error
// without marks, and nil, have none.
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

// ItemFailed names a message of a batch whose failure err is; i is its index in the batch. A batch handler that knows
// the culprits returns them, joined when there are several ([errors.Join]): all others run again without them, and no
// halving is needed to find them. err may carry Permanent, RetryAfter, Deferred or Drop; when all that are named are
// dropped, nothing failed, and the batch commits. nil when err is nil.
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

// wrapOutcome adds one mark to those that err carries already; nil stays nil.
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
