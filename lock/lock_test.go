package lock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	semeldriver "github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/lock"
	"github.com/semel-dev/semel/memory"
)

func locker(t *testing.T, s semeldriver.Store, o lock.Options) *lock.Locker {
	t.Helper()
	l, err := lock.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t *testing.T, l *lock.Locker) *lock.Held {
	t.Helper()
	h, err := l.Acquire(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// deaf is a store whose heartbeats can be cut off: a holder that stalls.
type deaf struct {
	*memory.Store
	cut atomic.Bool
}

func (d *deaf) Extend(ctx context.Context, lease time.Duration, h ...semeldriver.Hold) ([]semeldriver.Outcome, error) {
	if d.cut.Load() {
		return nil, errors.New("cut off")
	}
	return d.Store.Extend(ctx, lease, h...)
}

// TestS1_44OneHolder: many goroutines, one inside at a time, each with a greater token than the one before it, and far
// longer than the lease.
func TestS1_44OneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker(t, memory.NewStore(), lock.Options{Lease: time.Second})
		var inside, runs atomic.Int32
		var last uint64
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				err := l.Do(t.Context(), "report", func(ctx context.Context, h *lock.Held) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d holders", n)
					}
					defer inside.Add(-1)
					if h.Token() <= last {
						t.Errorf("token %d after %d", h.Token(), last)
					}
					last = h.Token()
					time.Sleep(7 * time.Second)
					runs.Add(1)
					return ctx.Err()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 12 {
			t.Errorf("%d runs of 12", runs.Load())
		}
	})
}

// TestS2_15ExpiryTakeover: the context of a holder that stalls ends, the next one gets a greater token, and the stale one's
// unlock changes nothing.
func TestS2_15ExpiryTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.NewStore()
		s := &deaf{Store: mem}
		stalled := acquire(t, locker(t, s, lock.Options{Lease: time.Second}))
		other := locker(t, mem, lock.Options{Lease: time.Second})
		if _, err := other.TryAcquire(t.Context(), "report"); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("held, and TryAcquire returns %v", err)
		}
		s.cut.Store(true)
		next := acquire(t, other)
		if next.Token() <= stalled.Token() {
			t.Errorf("token %d after %d", next.Token(), stalled.Token())
		}
		<-stalled.Context().Done()
		if cause := context.Cause(stalled.Context()); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the stalled holder's context ended with %v", cause)
		}
		s.cut.Store(false)
		if err := stalled.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("extending a lost lock: %v", err)
		}
		if err := stalled.Unlock(t.Context()); err != nil {
			t.Errorf("unlocking a lost lock: %v", err)
		}
		if _, err := other.TryAcquire(t.Context(), "report"); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("the stale holder's unlock freed the lock of another: %v", err)
		}
		for range 2 {
			if err := next.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		last := acquire(t, other)
		if last.Token() <= next.Token() {
			t.Errorf("token %d after %d", last.Token(), next.Token())
		}
		if err := last.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAcquireGivesUp: the wait ends with ctx, and says what it waited for.
func TestAcquireGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker(t, memory.NewStore(), lock.Options{})
		h := acquire(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := l.Acquire(ctx, "report"); !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("gave up with %v", err)
		}
		if time.Until(h.Deadline()) <= 0 {
			t.Error("the holder lost its lease meanwhile")
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAbandonedLockReopens: a lock whose holder died so long ago that the sweep parked its record can be had again.
func TestAbandonedLockReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.NewStore()
		s := &deaf{Store: mem}
		dead := acquire(t, locker(t, s, lock.Options{Lease: time.Second}))
		s.cut.Store(true)
		time.Sleep(48 * time.Hour)
		swept, _, err := mem.Sweep(t.Context(), 24*time.Hour, 10)
		if err != nil || swept.Abandoned != 1 {
			t.Fatalf("swept %+v: %v", swept, err)
		}
		next := acquire(t, locker(t, mem, lock.Options{}))
		if next.Token() <= dead.Token() {
			t.Errorf("token %d after %d", next.Token(), dead.Token())
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBadInput(t *testing.T) {
	if _, err := lock.New(nil, lock.Options{}); err == nil {
		t.Error("no store is no error")
	}
	for _, o := range []lock.Options{{Lease: time.Millisecond}, {Lease: -1}, {Keep: -1}, {MaxHold: -1}, {Epoch: 128}} {
		if _, err := lock.New(memory.NewStore(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	l := locker(t, memory.NewStore(), lock.Options{})
	for _, name := range []string{"", string(make([]byte, 2000))} {
		if _, err := l.TryAcquire(t.Context(), name); err == nil {
			t.Errorf("a name of %d bytes is taken", len(name))
		}
	}
}

func TestHeader(t *testing.T) {
	l := locker(t, memory.NewStore(), lock.Options{})
	h := acquire(t, l)
	defer func() {
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	r := &http.Request{Header: http.Header{}}
	h.Header(r.Header)
	if token, err := lock.CheckHeader(r, h.Token()-1); err != nil || token != h.Token() {
		t.Errorf("token %d: %v", token, err)
	}
	if token, err := lock.CheckHeader(r, h.Token()+1); !errors.Is(err, lock.ErrStale) || token != h.Token()+1 {
		t.Errorf("a stale token is taken: %d, %v", token, err)
	}
	r.Header.Set(lock.HeaderName, "x")
	if _, err := lock.CheckHeader(r, 0); err == nil || errors.Is(err, lock.ErrStale) {
		t.Errorf("a token that is no number: %v", err)
	}
}

// row is a guarded row: it takes an update with the present or a newer token.
type row struct{ fence uint64 }

func (r *row) ExecContext(_ context.Context, _ string, args ...any) (sql.Result, error) {
	token, ok := args[0].(uint64)
	if !ok {
		return nil, fmt.Errorf("token is a %T", args[0])
	}
	if token < r.fence {
		return driver.RowsAffected(0), nil
	}
	r.fence = token
	return driver.RowsAffected(1), nil
}

// ExampleGuard: the resource compares the token, so that a holder that stalled for too long changes nothing.
func ExampleGuard() {
	ctx := context.Background()
	l, _ := lock.New(memory.NewStore(), lock.Options{})
	first, _ := l.Acquire(ctx, "account-7")
	stale := first.Token()
	_ = first.Unlock(ctx) // as if its lease had ended
	second, _ := l.Acquire(ctx, "account-7")

	account := &row{} // UPDATE account SET balance = …, fence = $1 WHERE id = 7 AND fence <= $1
	fmt.Println(lock.Guard(ctx, account, "UPDATE …", second.Token()))
	fmt.Println(lock.Guard(ctx, account, "UPDATE …", stale))
	fmt.Println(second.Unlock(ctx))
	// Output:
	// <nil>
	// guarded update changed no row: stale fencing token
	// <nil>
}
