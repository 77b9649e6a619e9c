package lock

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/idle"
)

// ErrHeld reports that another holder has the lock.
var ErrHeld = errors.New("lock is held by another holder")

// ErrLost is the cause of the end of a holder's context: the lock was taken over, or its lease was not extended in
// time. It matches nothing of package semel.
var ErrLost = errors.New("lock was lost")

// ErrNotLock reports that the record under a lock's name is not a lock's: another program, or a consumer, uses the scope.
// Choose another Options.Scope.
var ErrNotLock = errors.New("record is not a lock's")

// DefaultScope is the consumer under which the records of locks are kept.
const DefaultScope = "lock"

// Options of [New]. The zero value is the documented default.
type Options struct {
	// Scope keeps the names of one program from another's. Defaults to DefaultScope.
	Scope string
	// Lease is how long a lock outlives a holder that crashed. It is extended every third of it. Defaults to 30 s. The
	// minimum is 100 ms.
	Lease time.Duration
	// Keep is how long the record of an unlocked lock stays in the store. Its token grows regardless. Defaults to one
	// day.
	Keep time.Duration
	// MaxHold is how long the heartbeat extends a lock without a call of [Held.Extend]. A holder that hangs then loses the
	// lock when the lease ends. Each Extend restarts it. Defaults to 0: as long as the process lives.
	MaxHold time.Duration
	// Epoch is the highest bits of the tokens, 0 to 127. Raise it by one for all holders of a store that was
	// restored from a backup, or that failed over to a replica which missed writes: it may hand out tokens that it gave to
	// others before, and a greater epoch makes them greater than all of those (protocol section 9). Defaults to 0.
	Epoch uint8
}

// epochShift leaves 56 bits to the store's tokens, and the sign bit of SQL's integers clear.
const epochShift = 56

// Locker hands out locks of one store. All methods may be called concurrently.
type Locker struct {
	store driver.Store
	o     Options
}

// New makes a locker on a store, which stays the caller's to close.
func New(s driver.Store, o Options) (*Locker, error) {
	if s == nil {
		return nil, errors.New("lock: the store is nil")
	}
	if o.Scope == "" {
		o.Scope = DefaultScope
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Keep == 0 {
		o.Keep = 24 * time.Hour
	}
	if o.Lease < 100*time.Millisecond {
		return nil, fmt.Errorf("lock: Options.Lease is %v; use 100 ms or more", o.Lease)
	}
	if o.Keep < 0 {
		return nil, fmt.Errorf("lock: Options.Keep is %v; use a positive duration", o.Keep)
	}
	if o.MaxHold < 0 {
		return nil, fmt.Errorf("lock: Options.MaxHold is %v; use a positive duration, or 0 for no limit", o.MaxHold)
	}
	if o.Epoch > 127 {
		return nil, fmt.Errorf("lock: Options.Epoch is %d; use 0 to 127", o.Epoch)
	}
	return &Locker{store: s, o: o}, nil
}

// Acquire takes the lock, and waits while another holder has it until ctx is done (then the error wraps ErrHeld and ctx's
// cause). Waiting callers do not queue: any of them may be the next. Acquire retries requests without a response with the
// same nonce, so that a claim that was applied is ours. After an error the lock can stay held until its lease ends. The
// lease is extended in the background until [Held.Unlock]. ctx bounds the acquiring only. ErrNotLock: the name is taken by
// something else.
func (l *Locker) Acquire(ctx context.Context, name string) (*Held, error) {
	return l.acquire(ctx, name, true)
}

// TryAcquire takes the lock if it is free, and returns ErrHeld otherwise. Apart from the waiting it is Acquire: requests
// without a response are retried until ctx is done.
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Held, error) {
	return l.acquire(ctx, name, false)
}

// Do runs fn while it holds the lock, and unlocks however fn ends. The context of fn ends with cause ErrLost when the
// lock is lost. Errors are those of Acquire (fn did not run), else those of fn, unchanged or joined with more: ErrLost
// when the lock was lost before fn returned, also when fn returned nil, because another holder may have had it at the
// same time; and that of a failed unlocking.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, h *Held) error) (err error) {
	h, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	defer func() {
		if unlock := h.Unlock(context.WithoutCancel(ctx)); unlock != nil {
			err = errors.Join(err, unlock)
		}
	}()
	held, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(h.Context(), func() { stop(context.Cause(h.Context())) })()
	err = fn(held, h)
	if lost := h.lost(); lost && !errors.Is(err, ErrLost) {
		err = errors.Join(err, fmt.Errorf("hold lock %q: %w", name, ErrLost))
	}
	return err
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool) (*Held, error) {
	if name == "" || len(name) > 1024 {
		return nil, fmt.Errorf("acquire lock: the name has %d bytes; use 1 to 1024", len(name))
	}
	c := driver.Claim{Key: driver.Key{Consumer: l.o.Scope, Raw: name}, Lease: l.o.Lease, Takeover: driver.Resume}
	_, _ = crand.Read(c.Nonce[:])
	var last error
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		sent := time.Now()
		g, err := l.claim(ctx, c)
		switch {
		case err != nil:
			last = err
			if errors.Is(err, driver.ErrUnsupported) {
				return nil, fmt.Errorf("acquire lock %q: %w", name, err)
			}
		case g.Verdict == driver.Acquired && time.Since(sent) < l.o.Lease/2:
			return l.hold(g.Hold, sent), nil
		case g.Verdict == driver.Acquired && ctx.Err() == nil:
			// The store responded slowly, and the lease may have ended meanwhile: the same claim again renews it.
			continue
		case g.Verdict == driver.Acquired:
			last = errors.New("the store responded too late")
		case g.Verdict == driver.Busy:
			if !wait {
				return nil, fmt.Errorf("acquire lock %q: %w", name, ErrHeld)
			}
			last = ErrHeld
			// The holder may unlock at any time, without a notification: look a few times in a lease, not all at once.
			pause = min(max(g.Wait/8, 5*time.Millisecond), 250*time.Millisecond)
		case g.Verdict == driver.Parked:
			// Abandoned for so long that the sweep parked it (protocol law 10). It is free.
			if last = l.reopen(ctx, g); errors.Is(last, driver.ErrUnsupported) {
				return nil, fmt.Errorf("acquire lock %q: %w", name, last)
			}
		default:
			return nil, fmt.Errorf("acquire lock %q in scope %q: its record returns %s: %w", name, l.o.Scope, g.Verdict, ErrNotLock)
		}
		if !idle.For(ctx, jitter(pause)) {
			return nil, fmt.Errorf("acquire lock %q: %w", name, errors.Join(last, context.Cause(ctx)))
		}
	}
}

func (l *Locker) claim(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, l.o.Lease)
	defer cancel()
	gs, err := l.store.Claim(ctx, c)
	if err != nil {
		return driver.Grant{}, err
	}
	if len(gs) != 1 {
		return driver.Grant{}, fmt.Errorf("store returned %d grants for one claim", len(gs))
	}
	return gs[0], gs[0].Err
}

// reopen frees a lock that was parked. A lock has no effect that could be in doubt: a stale token is fenced by the next one.
func (l *Locker) reopen(ctx context.Context, g driver.Grant) error {
	op, ok := driver.As[driver.Operator](l.store)
	if !ok {
		return fmt.Errorf("the record is set aside (%s), and store %s cannot reopen it: %w", g.Verdict,
			l.store.Features().Name, driver.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Lease)
	defer cancel()
	_, _, err := op.Operate(ctx, driver.Operation{
		Kind: driver.Resolve, Key: g.Hold.Key, Token: g.Hold.Token, Generation: g.Hold.Generation,
		As: driver.Released, Keep: l.o.Keep, Reason: "lock reopened", By: "lock",
	})
	return err
}

// jitter spreads the looks of many waiters: between half of d and all of it.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
