package semel

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/idle"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/key"
)

// DoOption tweaks one call of Do.
type DoOption func(*doConfig)

type doConfig struct {
	lease       time.Duration
	until       time.Time
	retention   time.Duration
	fingerprint Fingerprint
	version     Version
	takeover    Takeover
	probe       ProbeFunc
	wait        bool
	claimWait   time.Duration
}

// WithLease sets how long the claim lasts without a heartbeat; it is extended every third of it while the function
// runs. Defaults to 27 s.
func WithLease(d time.Duration) DoOption { return func(c *doConfig) { c.lease = d } }

// WithUntil says when this process is stopped or stands still for certain (the deadline of a Lambda invocation): no lease
// reaches beyond it, because nobody could renew it. Defaults to none.
func WithUntil(t time.Time) DoOption { return func(c *doConfig) { c.until = t } }

// WithRetention sets how long the record is kept. Defaults to 14 days.
func WithRetention(d time.Duration) DoOption { return func(c *doConfig) { c.retention = d } }

// WithFingerprint guards against the same key with another payload: such a call gets ErrMismatch.
func WithFingerprint(f Fingerprint) DoOption { return func(c *doConfig) { c.fingerprint = f } }

// WithVersion makes the key an entity whose calls replace each other (see Versions): a call with an older version than
// the one that was applied gets ErrStale. Give a fingerprint too: without one the same version with another payload is
// taken for a repetition.
func WithVersion(v Version) DoOption { return func(c *doConfig) { c.version = v } }

// WithTakeover sets what happens after a run whose outcome nobody knows; Probe needs WithProbe.
func WithTakeover(t Takeover) DoOption { return func(c *doConfig) { c.takeover = t } }

// WithProbe asks whether the effect of an earlier run happened, and sets the policy Probe.
func WithProbe(p ProbeFunc) DoOption {
	return func(c *doConfig) { c.probe, c.takeover = p, Probe }
}

// WithWait makes Do wait for a run that is in progress elsewhere, until it ended or ctx is done, instead of returning
// ErrBusy at once.
func WithWait() DoOption { return func(c *doConfig) { c.wait = true } }

// WithClaimTimeout bounds how long Do waits for a store that does not answer the claim. Then it returns ErrNoResponse,
// and fn did not and will not run; the key may be claimed all the same, and is busy for others until the lease ends.
// Waiting for somebody else's run (WithWait) is not counted: that is an answer. Defaults to none: it is asked until ctx
// is done. A store that answers, but always when the lease has ended already, is asked three times.
func WithClaimTimeout(d time.Duration) DoOption { return func(c *doConfig) { c.claimWait = d } }

// Do gives any function the guarantee of a consumer, without a queue: an HTTP handler, a cron job, the start of a
// workflow. The first caller of a key runs fn; its result is stored as JSON (a []byte as it is) and every later caller
// gets it with the decision Replayed, without a run.
//
// Do blocks until fn returned and its end is recorded. It retries unanswered writes by itself, with the same nonce,
// until the lease or ctx ends; it never repeats fn. A success that comes after the end of the lease is still offered to
// the store: it counts if nobody took the key over. Errors:
//
//   - what fn returned: the key is released and can be tried again, or failed for good after Permanent
//   - ErrBusy as a *BusyError, which tells for how long; ErrMismatch, ErrFailed, ErrUncertain, ErrStale, ErrLate
//   - ErrUnreadable: this program cannot read the key's record
//   - ErrFenced: the lease was lost while fn ran, and another caller may run the key
//   - ErrNoResponse: fn succeeded and the record's state is not known, or the claim was not answered in time and fn does
//     not run
//   - ErrResultNotStored, with Executed or Replayed: the key is completed, but without a result (it was too large, or has
//     no JSON form, or a probe or a person completed the key). The caller that ran fn gets its value all the same. A T
//     without content (struct{}) has no result to miss.
func Do[T any](
	ctx context.Context, s Store, k Key, fn func(context.Context, *Attempt) (T, error), opts ...DoOption,
) (T, Decision, error) {
	var zero T
	c := doConfig{lease: DefaultVisibility / 10 * 9, retention: DefaultRetention}
	for _, o := range opts {
		o(&c)
	}
	if err := key.Check(k.Raw); err != nil {
		return zero, "", err
	}
	if err := c.check(); err != nil {
		return zero, "", err
	}
	o := once{store: s, doConfig: c}
	g, sent, err := o.claim(ctx, k)
	if err != nil && (g.Verdict != driver.Busy || ctx.Err() == nil) { // else a wait ended while the store was asked again
		return zero, "", fmt.Errorf("claim key %q: %w", k.Raw, err)
	}
	switch g.Verdict {
	case driver.Acquired:
	case driver.Replay:
		v, err := decodeResult[T](g.Result, g.Reason)
		if err != nil {
			err = fmt.Errorf("key %q: %w", k.Raw, err)
		}
		return v, Replayed, err
	case driver.Busy:
		busy := &BusyError{Key: k.Raw, Wait: g.Wait}
		if o.wait {
			return zero, BusyDeferred, errors.Join(context.Cause(ctx), busy)
		}
		return zero, BusyDeferred, busy
	default:
		return zero, doDecisions[g.Verdict], refusal(k, g)
	}
	return perform(ctx, &o, g, sent, fn)
}

func (c *doConfig) check() error {
	switch {
	case c.takeover == Probe && c.probe == nil:
		return &ConfigError{"Probe", "is nil, and the policy is Probe", "use WithProbe"}
	case c.lease <= 0:
		return &ConfigError{"WithLease", fmt.Sprintf("is %v", c.lease), "use a positive duration"}
	case c.retention <= 0:
		return &ConfigError{"WithRetention", fmt.Sprintf("is %v, and nothing would be remembered", c.retention),
			"use a positive duration"}
	}
	return nil
}

var doDecisions = map[driver.Verdict]Decision{
	driver.Failed: DeadLettered, driver.Parked: ParkedUncertain, driver.Mismatch: Mismatched,
	driver.Stale: Stale, driver.Late: Stale,
}

func refusal(k Key, g driver.Grant) error {
	why := map[driver.Verdict]error{
		driver.Failed: ErrFailed, driver.Parked: ErrUncertain, driver.Mismatch: ErrMismatch,
		driver.Stale: ErrStale, driver.Late: ErrLate,
	}[g.Verdict]
	if g.Reason != "" {
		return fmt.Errorf("key %q: %w: %s", k.Raw, why, g.Reason)
	}
	return fmt.Errorf("key %q: %w", k.Raw, why)
}

// once is one call of Do.
type once struct {
	store Store
	doConfig
}

// claim asks until there is an answer: an unanswered claim may be ours, and is repeated with the same nonce (law 5).
func (o *once) claim(ctx context.Context, k Key) (driver.Grant, time.Time, error) {
	c := driver.Claim{Key: k, Fingerprint: o.fingerprint, Takeover: o.takeover, Version: o.version}
	_, _ = rand.Read(c.Nonce[:])
	answered, slow := time.Now(), 0
	var busy driver.Grant // the latest answer, while it is waited for
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		sent := time.Now()
		c.Lease = o.leaseFrom(sent)
		gs, err := o.send(ctx, c, answered)
		if err == nil && len(gs) == 1 {
			if err = gs[0].Err; err == nil {
				answered = time.Now()
				g := gs[0]
				switch {
				case g.Verdict == driver.Acquired && ctx.Err() == nil && o.late(sent, &slow):
					if slow < slowClaims {
						continue // the same claim again renews the lease (FM36)
					}
					return driver.Grant{}, sent, o.tooSlow(ctx, g, sent)
				case g.Verdict != driver.Busy || !o.wait:
					return g, sent, nil
				}
				busy = g
				pause = min(max(busy.Wait/8, 5*time.Millisecond), 250*time.Millisecond)
				if !idle.For(ctx, pause) {
					return busy, sent, nil
				}
				continue
			}
		}
		if errors.Is(err, driver.ErrUnsupported) || errors.Is(err, ErrUnreadable) || !idle.For(ctx, pause) {
			return busy, sent, errors.Join(context.Cause(ctx), err)
		}
		if o.claimWait > 0 && time.Since(answered) >= o.claimWait {
			return driver.Grant{}, sent, errors.Join(ErrNoResponse, err)
		}
	}
}

// send sends a claim once. It waits no longer than is left of the patience with a store that answered last at the time
// given.
func (o *once) send(ctx context.Context, c driver.Claim, answered time.Time) ([]driver.Grant, error) {
	if o.claimWait <= 0 {
		return o.store.Claim(ctx, c)
	}
	ctx, cancel := context.WithDeadline(ctx, answered.Add(o.claimWait))
	defer cancel()
	return o.store.Claim(ctx, c)
}

// perform runs fn under the claim and records its end.
func perform[T any](
	ctx context.Context, o *once, g driver.Grant, sent time.Time, fn func(context.Context, *Attempt) (T, error),
) (T, Decision, error) {
	var value T
	a := &Attempt{Key: g.Hold.Key, Number: g.Attempt, Token: g.Hold.Token, Deadline: sent.Add(o.leaseFrom(sent)), Unknown: g.Unknown,
		hold: g.Hold, store: o.store, failed: g.Failures}
	if g.Unknown && g.Takeover == Once {
		err := o.end(ctx, sent, driver.Finish{Hold: g.Hold, Final: driver.Park, Keep: o.retention, Reason: "the policy is once"})
		return value, ParkedUncertain, errors.Join(fmt.Errorf("key %q: %w", a.Key.Raw, ErrUncertain), err)
	}
	a.lease = &leaseClock{began: sent}
	a.lease.set(o.believed(sent))
	runCtx, stop := context.WithCancelCause(context.WithValue(ctx, attemptKey{}, a))
	beat := o.heartbeat(runCtx, stop, g.Hold, sent, a.lease)
	defer stop(nil) // fn may end this goroutine: the claim must not be extended forever
	raw, known, err := runOnce(runCtx, o, g, a, fn, &value)
	stop(nil)
	last := beat()
	if errors.Is(context.Cause(runCtx), ErrFenced) && err != nil {
		return value, Fenced, fmt.Errorf("key %q: %w", a.Key.Raw, errors.Join(ErrFenced, err))
	}
	f := driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: o.retention, Result: raw}
	d := Executed
	if limit := o.store.Features().MaxResult; err == nil && limit > 0 && len(raw) > limit {
		// The effect happened: a result that cannot be stored must not make it happen again (FM58).
		f.Result, err = nil, &unstorableError{fmt.Errorf("it has %d bytes, and the store takes %d", len(raw), limit)}
	}
	switch {
	case err == nil && known:
		d = Replayed
	case errors.As(err, new(*unstorableError)):
		f.Reason = err.Error()
		if known {
			d = Replayed
		}
	case err != nil:
		f, d = o.failure(g, err)
	}
	if endErr := o.end(ctx, last, f); endErr != nil {
		if errors.Is(endErr, ErrFenced) {
			d = Fenced
		}
		return value, d, errors.Join(err, fmt.Errorf("record the end of key %q: %w", a.Key.Raw, endErr))
	}
	return value, d, err
}

// runOnce probes where it has to, and calls fn. known tells that the probe found the effect applied.
func runOnce[T any](
	ctx context.Context, o *once, g driver.Grant, a *Attempt, fn func(context.Context, *Attempt) (T, error), value *T,
) (raw []byte, known bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if g.Unknown && g.Takeover == Probe {
		answer, err := o.ask(ctx, a)
		switch {
		case err != nil || answer == ProbeUnknown:
			return nil, false, errors.Join(ErrUncertain, err)
		case answer == ProbeApplied:
			if a.result == nil && reflect.TypeFor[T]().Size() > 0 {
				err = errors.New("the probe found the effect applied, and set none")
			} else {
				*value, err = decodeResult[T](a.result, "")
			}
			if err != nil {
				return nil, true, &unstorableError{err} // released, the next caller would run it again
			}
			return a.result, true, nil
		}
	}
	v, err := fn(ctx, a)
	*value = v
	if err != nil {
		return nil, false, err
	}
	if a.result != nil {
		return a.result, false, nil
	}
	if raw, err = encodeResult(v); err != nil {
		// The effect happened: a result that cannot be stored must not make it happen again (FM59).
		return nil, false, &unstorableError{err}
	}
	return raw, false, nil
}

// ask asks the probe; its panic is an error. Without one nobody can tell: the record was made by a caller that has one,
// and this call must not weaken it (FM82).
func (o *once) ask(ctx context.Context, a *Attempt) (answer ProbeResult, err error) {
	if o.probe == nil {
		return ProbeUnknown, errors.New("the outcome of an earlier run is unknown, and this call has no probe")
	}
	defer func() {
		if v := recover(); v != nil {
			answer, err = ProbeUnknown, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return o.probe(ctx, a)
}

// unstorableError: the run succeeded, and its result cannot be stored. Its text is the record's reason.
type unstorableError struct{ err error }

func (e *unstorableError) Error() string        { return machine.NotStored + e.err.Error() }
func (e *unstorableError) Unwrap() error        { return e.err }
func (e *unstorableError) Is(target error) bool { return target == ErrResultNotStored }

func (o *once) failure(g driver.Grant, err error) (driver.Finish, Decision) {
	f := driver.Finish{Hold: g.Hold, Final: driver.Release, Ran: driver.MaybeApplied, Keep: o.retention, Reason: err.Error()}
	var out *outcomeError
	if errors.As(err, &out) {
		if out.notApplied {
			f.Ran = driver.NotApplied
		}
		f.RetryAfter, f.Refund = out.after, out.busy || out.unavailable
	}
	switch {
	case errors.Is(err, ErrUncertain), out != nil && out.parked, g.Takeover == Once && f.Ran != driver.NotApplied:
		f.Final = driver.Park
		return f, ParkedUncertain
	case out != nil && out.permanent:
		f.Final, f.Compensated = driver.Fail, out.compensated
		return f, DeadLettered
	}
	return f, Retried
}

func encodeResult(v any) ([]byte, error) {
	if b, ok := v.([]byte); ok {
		return b, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return b, nil
}

// decodeResult reads the result of a completed key whose record has the reason. Every value but a []byte has JSON of some
// length, so that nothing is no result.
func decodeResult[T any](raw []byte, reason string) (v T, err error) {
	p, isBytes := any(&v).(*[]byte)
	switch {
	case len(raw) == 0 && strings.HasPrefix(reason, machine.NotStored):
		return v, fmt.Errorf("%w: %s", ErrResultNotStored, reason[len(machine.NotStored):])
	case isBytes:
		*p = raw
		return v, nil
	case len(raw) == 0 && reflect.TypeFor[T]().Size() == 0:
		return v, nil
	case len(raw) == 0 && reason != "":
		return v, fmt.Errorf("%w: %s", ErrResultNotStored, reason)
	case len(raw) == 0:
		return v, ErrResultNotStored
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("decode stored result: %w", err)
	}
	return v, nil
}
