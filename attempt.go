package semel

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// Attempt is one run of a handler: the message, its key, and the attempt's number and fencing token.
type Attempt struct {
	// Message belongs to this run: the handler may change Body and Headers. Retries and dead letters use the message as it
	// arrived.
	Message
	Key Key
	// Number counts the runs of this key including this one, from 1. A deferred run counts only if it was the first run of
	// the key, so number 1 is always the first run.
	Number int
	// MaxAttempts is Config.MaxAttempts.
	MaxAttempts int
	// Token is the fencing token of this attempt: strictly increasing per key. A guarded resource refuses smaller ones. It is 0
	// if the commit claims the key (Config.ClaimAtCommit): the attempt has no fence, and no guard accepts it.
	Token uint64
	// Deadline is the end of the lease when the run began. The engine extends the lease while the handler runs: see
	// LeaseUntil for its current end. Without a lease it is the end of Config.MaxRuntime.
	Deadline time.Time
	// Unknown reports that an earlier run may have had its effect.
	Unknown bool
	// Redelivered reports that the broker delivered this message before.
	Redelivered bool

	hold   driver.Hold
	store  driver.Store
	failed int // recorded failed runs before this one
	lease  *leaseClock
	handle *handle  // of the delivery; nil without a consumer
	rules  *ruleSet // Config.Retry; nil without a consumer
	tx     any
	result []byte
	emit   []Message
	// called: a middleware called the handler before, and that call emitted emit[emitFrom:emitTo].
	called           bool
	emitFrom, emitTo int
}

// SetResult sets the result that is stored with the record and returned to later callers of the key. The bytes are kept,
// not copied.
func (a *Attempt) SetResult(b []byte) { a.result = b }

// Emit sends messages together with the record: all of them or none, and only if this attempt wins. It needs three
// things: a store that keeps an outbox or is the queue's own database, a key for the handled message, and a Queue in each
// emitted message. If one is missing, the run fails permanently with an error that names it.
//
// An emitted message without an ID gets one that is the same in every run of this key. It is derived from the key and the
// position among the emitted messages.
func (a *Attempt) Emit(m ...Message) { a.emit = append(a.emit, m...) }

// Emitted returns the messages that this run has emitted. A middleware may change their headers, to add the trace of the run.
func (a *Attempt) Emitted() []Message { return a.emit }

// SetTrace reports the span of this run: log lines and events of the delivery carry it from now on. If the span is sampled and
// the run ends its key (completed, failed or parked), the record keeps it, and events of later duplicates have it as
// Event.EffectTrace. A middleware calls it.
func (a *Attempt) SetTrace(t driver.Traceparent) {
	if a.handle != nil {
		a.handle.setTrace(t)
	}
}

// Last reports whether a failure of this run is final: the attempts are used up, and the message becomes a dead letter.
func (a *Attempt) Last() bool { return a.MaxAttempts > 0 && a.failed+1 >= a.MaxAttempts }

// Ends reports whether returning err ends the message: err is Permanent, a rule of Config.Retry makes it permanent, or the
// attempts are used up. A handler that must clean up before the message becomes a dead letter does it then. ctx is the
// context of the run.
func (a *Attempt) Ends(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	res := machine.Result{Class: machine.Failed, Err: err}
	if o := (*outcomeError)(nil); errors.As(err, &o) {
		res.Class, res.HasAfter = o.class(), o.hasAfter
	}
	most := a.MaxAttempts
	if a.rules != nil && res.Class == machine.Failed {
		a.rules.apply(&res, err, context.Cause(ctx))
		if res.Rule != nil && res.Rule.MaxAttempts > 0 {
			most = res.Rule.MaxAttempts
		}
	}
	switch res.Class {
	case machine.Permanent:
		return true
	case machine.Failed:
		return most > 0 && a.failed+1 >= most
	}
	return false
}

// Hold identifies this attempt in the store. Packages that store data next to the record, as package steps does, pass it
// with their writes, so that the record guards them. See [Attempt.Store].
func (a *Attempt) Hold() driver.Hold { return a.hold }

// Store returns the store that keeps the record of this attempt. It is nil if the run has no record that others can see:
// the message has no key (Config.AllowUnkeyed), the run is in an open transaction, which holds the record, or its commit claims
// the key (Config.ClaimAtCommit).
func (a *Attempt) Store() driver.Store { return a.store }

// LeaseUntil returns the current end of the lease, by the monotonic clock of this process. The run owns its key until then,
// and longer if the heartbeat, which continues while the handler runs, extends the lease. Use it to bound whatever must not
// reach the outside world after another worker may own the key: the timeout of a request, the expiry of a delegated token.
// It is never later than the end that the store keeps (protocol section 1, law 7).
//
// The zero time means that the run has no lease: the message has no key (Config.AllowUnkeyed), the run is in an open
// transaction, which holds the key, or its commit claims the key (Config.ClaimAtCommit). LeaseUntil does not block. It may be called from any goroutine, even after the run.
func (a *Attempt) LeaseUntil() time.Time {
	if a.lease == nil {
		return time.Time{}
	}
	return a.lease.get()
}

// leaseClock is the end of a lease, as the store last confirmed it to the engine.
type leaseClock struct {
	began time.Time
	until atomic.Int64 // nanoseconds since began; 0 = no lease
}

func (c *leaseClock) set(until time.Duration) { c.until.Store(int64(until)) }

func (c *leaseClock) get() time.Time {
	if until := c.until.Load(); until != 0 {
		return c.began.Add(time.Duration(until))
	}
	return time.Time{}
}

// attemptKey is the key of the attempt in the context of its run.
type attemptKey struct{}

// AttemptFrom returns the attempt of the run that ctx belongs to: of a handler, a probe, or a function given to Do (the
// innermost if they are nested). Code deep inside a handler, such as an http.RoundTripper, uses it to find the EffectKey,
// Token and LeaseUntil. ok is false if there is no attempt: outside of a run, in a request that passed edgehttp.Middleware
// without a key, and in a batch handler, whose context belongs to many attempts.
func AttemptFrom(ctx context.Context) (a *Attempt, ok bool) {
	a, ok = ctx.Value(attemptKey{}).(*Attempt)
	return a, ok
}

// EffectKey returns the idempotency key to pass to the service that the step calls: 64 hex digits, the same for every
// attempt, redelivery and redrive of this message's key. Each effect of a handler needs a key of its own, so each needs a
// name; "" is fine for the only one. The effect key does not depend on a delivery id unless that is the key (protocol
// section 10).
//
// A handler process can derive the same keys without this library: EffectKey("") is SEMEL_EFFECT_KEY and the header
// Idempotency-Key, and EffectKey("mails") is the SHA-256, in hex, of EffectKey("") + "/mails".
func (a *Attempt) EffectKey(step string) string { return EffectKey(a.hold, step) }

// EffectKey derives the effect key of a step from the key that is held. See [Attempt.EffectKey].
func EffectKey(h driver.Hold, step string) string {
	b := make([]byte, 0, 128)
	for _, s := range [...]string{"semel-effect-1", h.Key.Consumer, h.Key.Tenant, h.Key.Raw, ""} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint32(b, h.Epoch)
	b = append(b, h.Version...) // "" when the key has none
	sum := sha256.Sum256(b)
	key := hex.EncodeToString(sum[:])
	if step == "" {
		return key
	}
	sum = sha256.Sum256([]byte(key + "/" + step))
	return hex.EncodeToString(sum[:])
}

// NewAttempt makes an attempt from a granted claim, for tests of handlers without a consumer and for programs that claim
// keys on their own. Nothing extends its lease.
func NewAttempt(m Message, g driver.Grant, s Store) *Attempt {
	return &Attempt{
		Message: m, Key: g.Hold.Key, Number: g.Attempt, Token: g.Hold.Token, Unknown: g.Unknown, Redelivered: g.Redelivery,
		hold: g.Hold, store: s, failed: g.Failures,
	}
}
