package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	semeldriver "github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/lock"
	"github.com/semel-dev/semel/memory"
)

// hanging is a store whose responses can stop: the calls end with their context.
type hanging struct {
	*memory.Store
	hangs atomic.Bool
	slow  time.Duration // the response time of the next claim
}

func (s *hanging) Claim(ctx context.Context, c ...semeldriver.Claim) ([]semeldriver.Grant, error) {
	out, err := s.Store.Claim(ctx, c...)
	d := s.slow
	s.slow = 0
	time.Sleep(d)
	return out, err
}

func (s *hanging) Extend(ctx context.Context, lease time.Duration, h ...semeldriver.Hold) ([]semeldriver.Outcome, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Extend(ctx, lease, h...)
}

func (s *hanging) Finish(ctx context.Context, f ...semeldriver.Finish) ([]semeldriver.Outcome, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Finish(ctx, f...)
}

// TestFM9_HolderLosesItInTime: while an extension hangs, the holder's context still ends at its own deadline. From then on
// another holder may have the lock.
func TestFM9_HolderLosesItInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hanging{Store: memory.NewStore()}
		h := acquire(t, locker(t, s, lock.Options{Lease: 30 * time.Second}))
		deadline := h.Deadline()
		s.hangs.Store(true)
		next := acquire(t, locker(t, s, lock.Options{}))
		if h.Context().Err() == nil {
			t.Errorf("two hold the lock by their own clocks, %v after the deadline of the first", time.Since(deadline))
		}
		if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the context ended with %v", cause)
		}
		s.hangs.Store(false)
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestUnlockGivesUp: Unlock gives up after the lease if the store does not respond.
func TestUnlockGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hanging{Store: memory.NewStore()}
		h := acquire(t, locker(t, s, lock.Options{Lease: 9 * time.Second}))
		s.hangs.Store(true)
		began := time.Now()
		if err := h.Unlock(context.Background()); err == nil {
			t.Error("unlocked without a response")
		}
		if took := time.Since(began); took > 13*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestFM36_SlowClaimIsRenewed: if the response of a claim comes after its lease has ended, the lock is claimed again before
// Acquire returns it.
func TestFM36_SlowClaimIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hanging{Store: memory.NewStore(), slow: 5 * time.Second}
		h := acquire(t, locker(t, s, lock.Options{Lease: 2 * time.Second}))
		if left := time.Until(h.Deadline()); left < time.Second {
			t.Errorf("handed out with %v left", left)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
