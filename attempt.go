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

// Attempt is what a handler gets: the message, and who it is this time.
type Attempt struct {
	// Message belongs to this run: it may change Body and Headers. A retry and a dead letter have the message as it arrived.
	Message
	Key Key
	// Number counts the runs of this key including this one, from 1. Of the runs that were deferred only the first one
	// counts, and only if it was the key's first: a run with the number 1 is the first of its key.
	Number int
	// MaxAttempts is Config.MaxAttempts.
	MaxAttempts int
	// Token is the fencing token of this attempt: strictly increasing per key. A guarded resource refuses smaller ones.
	Token uint64
	// Deadline is when the lease ends unless it is extended; the engine extends it while the handler runs. It is as it was
	// when the run began: LeaseUntil tells the present one.
	Deadline time.Time
	// Unknown: an earlier run may have had its effect.
	Unknown bool
	// Redelivered: the broker handed this message out before.
	Redelivered bool

	hold   driver.Hold
	store  driver.Store
	failed int // recorded failed runs before this one
	lease  *leaseClock
	rules  *ruleSet // Config.Retry; nil without a consumer
	tx     any
	result []byte
	emit   []Message
	// called: a middleware called the handler before; that call emitted emit[emitFrom:emitTo].
	called           bool
	emitFrom, emitTo int
}

// SetResult stores what every later duplicate of this key is answered with. The bytes are kept, not copied.
func (a *Attempt) SetResult(b []byte) { a.result = b }

// Emit sends messages together with the record: all of them or none, and only if this attempt wins. It needs a store
// that keeps an outbox or is the queue's own database, a message that has a key, and a queue that each emitted message
// names; otherwise the run fails for good with an error that says so. A message without ID gets one that is the same in
// every run of this key: it follows from the key and from the message's place among the emitted.
func (a *Attempt) Emit(m ...Message) { a.emit = append(a.emit, m...) }

// Last tells that a failure of this run is final: the attempts are used up, and the message becomes a dead letter.
func (a *Attempt) Last() bool { return a.MaxAttempts > 0 && a.failed+1 >= a.MaxAttempts }

// Ends tells that a run which returns err is the message's last: err is Permanent, a rule of Config.Retry says so, or the
// attempts are used up. What has to be put in order before the message becomes a dead letter is done then. ctx is the run's.
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

// Hold names this attempt in the store, and Store is the store that keeps its record: for packages that write beside the
// record and let it guard what they write, as package steps does. Store is nil where no record stands behind the run that
// others could see: it has no key (Config.AllowUnkeyed), or it runs in an open transaction, which holds the record itself.
func (a *Attempt) Hold() driver.Hold { return a.hold }

// Store is where the record of this attempt is kept. See [Attempt.Hold].
func (a *Attempt) Store() driver.Store { return a.store }

// LeaseUntil is the present end of the lease, by this process' own monotonic clock: the run owns its key until then, and
// later if the heartbeat, which goes on while the handler runs, extends it again. Whatever must not reach the outside world
// once the key may be somebody else's is bounded by it: a single request, the expiry of a delegated token. It is on the safe
// side of what the store keeps (protocol section 1, law 7). The zero time means that no lease stands behind the run: it has
// no key (Config.AllowUnkeyed), or it runs in an open transaction, which holds the key itself. It does not block, and may
// be called from any goroutine, also after the run.
func (a *Attempt) LeaseUntil() time.Time {
	if a.lease == nil {
		return time.Time{}
	}
	return a.lease.get()
}

// leaseClock is the end of a lease, as the engine last heard of it.
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

// attemptKey is what a run's context answers with its attempt.
type attemptKey struct{}

// AttemptFrom returns the attempt whose run's context ctx is, or comes from: the handler's, a probe's, that of a function
// given to Do (of nested ones the innermost). ok is false where there is none: outside of a run, in a request that passed
// edgehttp.Middleware without a key, and in a batch handler, whose context belongs to many. Code that is called deep inside
// a handler, an http.RoundTripper for example, finds its EffectKey, Token and LeaseUntil with it.
func AttemptFrom(ctx context.Context) (a *Attempt, ok bool) {
	a, ok = ctx.Value(attemptKey{}).(*Attempt)
	return a, ok
}

// EffectKey is the idempotency key to hand to whatever the step calls: 64 hex digits, the same for every attempt,
// redelivery and redrive of this message's key. Each effect of one handler has a key of its own, so each has a name; ""
// is fine for the only one. It never depends on a delivery id unless that is the key (protocol section 10).
//
// A handler process makes the same keys without this library: EffectKey("") is SEMEL_EFFECT_KEY and the header
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

// NewAttempt makes the attempt that a claim granted: for tests of handlers without a consumer, and for programs that
// claim by themselves. Nothing extends its lease.
func NewAttempt(m Message, g driver.Grant, s Store) *Attempt {
	return &Attempt{
		Message: m, Key: g.Hold.Key, Number: g.Attempt, Token: g.Hold.Token, Unknown: g.Unknown, Redelivered: g.Redelivery,
		hold: g.Hold, store: s, failed: g.Failures,
	}
}
