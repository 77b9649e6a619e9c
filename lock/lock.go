package lock

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semel-dev/semel/driver"
)

// ErrHeld reports that somebody else holds the lock.
var ErrHeld = errors.New("lock is held by somebody else")

// ErrLost is the cause of the end of a holder's context: the lock was taken over, or its lease could not be extended in
// time. It matches nothing of package semel.
var ErrLost = errors.New("lock was lost")

// DefaultScope is the consumer under which the records of locks are kept.
const DefaultScope = "lock"

// Options of [New]. The zero value is the documented default.
type Options struct {
	// Scope keeps the names of one program from another's. Defaults to DefaultScope.
	Scope string
	// Lease is how long a lock outlives a holder that went without a word. It is extended every third of it. Defaults to
	// 30 s, 100 ms at least.
	Lease time.Duration
	// Keep is how long the record of an unlocked lock stays in the store; its token grows on regardless. Defaults to one
	// day.
	Keep time.Duration
}

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
	return &Locker{store: s, o: o}, nil
}

// Acquire takes the lock, and waits while somebody else holds it until ctx is done (then the error wraps ErrHeld and
// ctx's cause). It retries unanswered requests by itself, with the same nonce. An unanswered request may have taken the lock: after an
// error it can stay held until its lease ends. The lease is extended in the background
// until [Held.Unlock]; ctx bounds the acquiring only.
func (l *Locker) Acquire(ctx context.Context, name string) (*Held, error) {
	return l.acquire(ctx, name, true)
}

// TryAcquire takes the lock if nobody holds it, and answers ErrHeld otherwise. Apart from the waiting it is Acquire.
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Held, error) {
	return l.acquire(ctx, name, false)
}

// Do runs fn while it holds the lock. The context of fn ends with cause ErrLost when the lock is lost. Errors are those of
// Acquire, else those of fn; a failed unlocking is reported beside them.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, h *Held) error) (err error) {
	h, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Unlock(context.WithoutCancel(ctx))) }()
	held, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(h.Context(), func() { stop(context.Cause(h.Context())) })()
	return fn(held, h)
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool) (*Held, error) {
	if name == "" || len(name) > 1024 {
		return nil, fmt.Errorf("acquire lock %q: a name has 1 to 1024 bytes", name)
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
		case g.Verdict == driver.Acquired:
			// The store answered slowly, and the lease may have ended meanwhile: the same claim again renews it.
			continue
		case g.Verdict == driver.Busy:
			if !wait {
				return nil, fmt.Errorf("acquire lock %q: %w", name, ErrHeld)
			}
			last = ErrHeld
			// The holder may unlock at any time, and nothing tells: look a few times in a lease, not all at once.
			pause = min(max(g.Wait/8, 5*time.Millisecond), 250*time.Millisecond)
		default:
			// Abandoned for so long that the sweep set it aside (protocol law 10). Nobody holds it any more.
			if last = l.reopen(ctx, g); last != nil && errors.Is(last, driver.ErrUnsupported) {
				return nil, fmt.Errorf("acquire lock %q: %w", name, last)
			}
		}
		if !sleep(ctx, jitter(pause)) {
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
		return driver.Grant{}, fmt.Errorf("store answered %d claims, asked was one", len(gs))
	}
	return gs[0], gs[0].Err
}

// reopen makes a lock free that was set aside. A lock has no effect that could be in doubt: who holds a stale token is
// fenced by the next one.
func (l *Locker) reopen(ctx context.Context, g driver.Grant) error {
	op, ok := l.store.(driver.Operator)
	if !ok {
		return fmt.Errorf("the record is set aside (%s), and store %s cannot reopen it: %w", g.Verdict,
			l.store.Features().Name, driver.ErrUnsupported)
	}
	_, _, err := op.Operate(ctx, driver.Operation{
		Kind: driver.Resolve, Key: g.Hold.Key, Token: g.Hold.Token, Generation: g.Hold.Generation,
		As: driver.Released, Keep: l.o.Keep, Reason: "lock reopened",
	})
	return err
}

// jitter spreads the looks of many waiters: between half of d and all of it.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
