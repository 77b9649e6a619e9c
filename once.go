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

// DoOption sets an option of one call of [Do].
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

// WithUntil sets the time when this process is certain to be stopped or frozen (the deadline of a Lambda invocation). No lease
// lasts beyond it, because nothing could renew it. Defaults to none.
func WithUntil(t time.Time) DoOption { return func(c *doConfig) { c.until = t } }

// WithRetention sets how long the record is kept. Defaults to 14 days.
func WithRetention(d time.Duration) DoOption { return func(c *doConfig) { c.retention = d } }

// WithFingerprint detects the same key with another payload: such a call returns ErrMismatch. Defaults to none.
func WithFingerprint(f Fingerprint) DoOption { return func(c *doConfig) { c.fingerprint = f } }

// WithVersion makes the key an entity whose calls replace each other (see Config.Versions): a call with an older version than
// the one that was applied returns ErrStale. Set a fingerprint too: without one the same version with another payload counts
// as a repetition.
func WithVersion(v Version) DoOption { return func(c *doConfig) { c.version = v } }

// WithTakeover sets the policy for a key whose earlier run has an unknown outcome. Probe needs WithProbe. Defaults to Resume.
func WithTakeover(t Takeover) DoOption { return func(c *doConfig) { c.takeover = t } }

// WithProbe sets the policy Probe and the function that reports whether the effect of an earlier run happened.
func WithProbe(p ProbeFunc) DoOption {
	return func(c *doConfig) { c.probe, c.takeover = p, Probe }
}

// WithWait makes Do wait for a run that is in progress elsewhere, until it has ended or ctx is done, instead of returning
// ErrBusy at once.
func WithWait() DoOption { return func(c *doConfig) { c.wait = true } }

// WithClaimTimeout limits how long Do waits for a store that does not respond to the claim. After that, Do returns
// ErrNoResponse, and fn has not run and will not run. The claim may have been stored all the same, and then the key is busy
// for others until the lease ends. Time in which the store responds that the key is busy (WithWait) does not count. Defaults
// to none: Do retries the claim until ctx is done. If the store responds, but each time after the lease has already ended, Do
// gives up after three claims.
func WithClaimTimeout(d time.Duration) DoOption { return func(c *doConfig) { c.claimWait = d } }

// Do gives any function the guarantee of a consumer, without a queue: an HTTP handler, a cron job, the start of a
// workflow. The first caller of a key runs fn. Its result is stored as JSON (a []byte unchanged). Every later caller gets
// this result with the decision Replayed, and fn does not run.
//
// Do blocks until fn has returned and its outcome is recorded. If a write gets no response, Do retries it with the same
// nonce until the lease or ctx ends. It does not repeat fn. A success after the end of the lease is still sent to the
// store: it counts if no other caller took over the key. Errors:
//
//   - the error of fn: the key is released and can be tried again, or has failed permanently after Permanent
//   - ErrBusy as a *BusyError with the time to wait; ErrMismatch, ErrFailed, ErrUncertain, ErrStale, ErrLate
//   - ErrUnreadable: this program cannot read the key's record
//   - ErrFenced: the lease was lost while fn ran, and another caller may run the key
//   - ErrNoResponse: fn has run and the state of the record is unknown, or the claim got no response in time and fn does
//     not run
//   - ErrResultNotStored, with Executed or Replayed: the key is completed, but without a result (it was too large, or has
//     no JSON form, or a probe or a person completed the key). The caller that ran fn gets its value all the same. For a
//     T without content (struct{}) no result is needed.
//   - *ConfigError and the errors of key.Check: an option or the key is invalid, and nothing was claimed
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
	if err != nil && (g.Verdict != driver.Busy || ctx.Err() == nil) { // otherwise a wait ended during a further claim
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
		return &ConfigError{"Probe", "is nil, but the policy is Probe", "use WithProbe"}
	case c.lease <= 0:
		return &ConfigError{"WithLease", fmt.Sprintf("is %v", c.lease), "use a positive duration"}
	case c.retention <= 0:
		return &ConfigError{"WithRetention", fmt.Sprintf("is %v, so no record would be kept", c.retention),
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

// claim repeats the claim until the store responds. A claim without a response may be ours, so the nonce stays the same
// (law 5).
func (o *once) claim(ctx context.Context, k Key) (driver.Grant, time.Time, error) {
	c := driver.Claim{Key: k, Fingerprint: o.fingerprint, Takeover: o.takeover, Version: o.version}
	_, _ = rand.Read(c.Nonce[:])
	responded, slow := time.Now(), 0
	var busy driver.Grant // the latest response while Do waits
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		sent := time.Now()
		c.Lease = o.leaseFrom(sent)
		gs, err := o.send(ctx, c, responded)
		if err == nil && len(gs) == 1 {
			if err = gs[0].Err; err == nil {
				responded = time.Now()
				g := gs[0]
				switch {
				case g.Verdict == driver.Acquired && ctx.Err() == nil && o.late(sent, &slow):
					if slow < slowClaims {
						continue // repeating the same claim renews the lease (FM36)
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
		if o.claimWait > 0 && time.Since(responded) >= o.claimWait {
			return driver.Grant{}, sent, errors.Join(ErrNoResponse, err)
		}
	}
}

// send sends a claim once. It waits at most until claimWait after the store's latest response.
func (o *once) send(ctx context.Context, c driver.Claim, responded time.Time) ([]driver.Grant, error) {
	if o.claimWait <= 0 {
		return o.store.Claim(ctx, c)
	}
	ctx, cancel := context.WithDeadline(ctx, responded.Add(o.claimWait))
	defer cancel()
	return o.store.Claim(ctx, c)
}

// perform runs fn under the claim and records its outcome.
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
	defer stop(nil) // fn may end this goroutine, and then the claim must not be extended forever
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
		return value, d, errors.Join(err, fmt.Errorf("record the outcome of key %q: %w", a.Key.Raw, endErr))
	}
	return value, d, err
}

// runOnce probes if necessary, and calls fn. known reports that the probe found the effect applied.
func runOnce[T any](
	ctx context.Context, o *once, g driver.Grant, a *Attempt, fn func(context.Context, *Attempt) (T, error), value *T,
) (raw []byte, known bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if g.Unknown && g.Takeover == Probe {
		found, err := o.ask(ctx, a)
		switch {
		case err != nil || found == ProbeUnknown:
			return nil, false, errors.Join(ErrUncertain, err)
		case found == ProbeApplied:
			if a.result == nil && reflect.TypeFor[T]().Size() > 0 {
				err = errors.New("the probe found the effect applied, but set none")
			} else {
				*value, err = decodeResult[T](a.result, "")
			}
			if err != nil {
				return nil, true, &unstorableError{err} // if the key were released, the next caller would run it again
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

// ask calls the probe and returns a panic of it as an error. Without a probe the outcome stays unknown: the record was made
// by a caller that has one, and this call must not weaken its policy (FM82).
func (o *once) ask(ctx context.Context, a *Attempt) (found ProbeResult, err error) {
	if o.probe == nil {
		return ProbeUnknown, errors.New("the outcome of an earlier run is unknown, and this call has no probe")
	}
	defer func() {
		if v := recover(); v != nil {
			found, err = ProbeUnknown, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return o.probe(ctx, a)
}

// unstorableError: the run succeeded, but its result cannot be stored. Its text is the record's reason.
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

// decodeResult reads the result of a completed key whose record has the given reason. Except for a []byte, the JSON of a value
// is never empty, so that an empty result means no result.
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
