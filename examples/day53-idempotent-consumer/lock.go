package day53

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/lock"
)

// DistributedLock lets one of many processes in.
type DistributedLock interface {
	// AcquireLock waits for a lock until ctx is done. ttl is how long it outlives a dead holder; while the holder lives it
	// is extended automatically.
	AcquireLock(ctx context.Context, key string, ttl time.Duration) (Lock, error)
}

// Lock is a lock that is held.
type Lock interface {
	// Release releases the lock. If another holder has it by now, it does nothing.
	Release() error
	// Extend makes sure that the lock is held for the duration, unless this process stalls. lock.ErrLost: it is not ours
	// any more.
	Extend(duration time.Duration) error
	// Token grows with every holder. A lock alone cannot stop a stalled holder that wakes up too late: the resource that it
	// writes to has to compare the token (lock.Guard).
	Token() uint64
}

// Locks is a DistributedLock on any store of semel.
type Locks struct{ store semel.Store }

// NewLocks makes locks on a store.
func NewLocks(s semel.Store) *Locks { return &Locks{store: s} }

// AcquireLock waits for the lock of a key.
func (l *Locks) AcquireLock(ctx context.Context, key string, ttl time.Duration) (Lock, error) {
	locker, err := lock.New(l.store, lock.Options{Scope: "day53-lock", Lease: ttl})
	if err != nil {
		return nil, err
	}
	h, err := locker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return &held{h: h, ttl: ttl}, nil
}

type held struct {
	h   *lock.Held
	ttl time.Duration
}

func (l *held) Release() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.ttl)
	defer cancel()
	return l.h.Unlock(ctx)
}

func (l *held) Extend(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("extend lock by %v: use a positive duration", d)
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.ttl)
	defer cancel()
	return l.h.Extend(ctx) // the heartbeat does the rest
}

func (l *held) Token() uint64 { return l.h.Token() }
