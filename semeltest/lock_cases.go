package semeltest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/lock"
)

// testOneHolder: many goroutines over both connections to the store, one inside at a time, each with a greater token.
func testOneHolder(t testing.TB, s LockSetup) {
	var inside atomic.Int32
	var tokens []uint64 // guarded by the lock itself; the mutex is for locks that do not work
	var mu sync.Mutex
	var wg sync.WaitGroup
	lockers := []*lock.Locker{newLocker(t, s.Store, ages), newLocker(t, s.Other, ages)}
	const each, rounds = 4, 4
	for i := range each * len(lockers) {
		wg.Go(func() {
			for range rounds {
				err := lockers[i%len(lockers)].Do(t.Context(), lockName, func(ctx context.Context, h *lock.Held) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d hold the lock at once", n)
					}
					defer inside.Add(-1)
					mu.Lock()
					tokens = append(tokens, h.Token())
					mu.Unlock()
					return h.Extend(ctx)
				})
				if err != nil {
					t.Errorf("hold the lock: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if len(tokens) != each*len(lockers)*rounds {
		t.Errorf("the lock was held %d times, wanted %d", len(tokens), each*len(lockers)*rounds)
	}
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Errorf("token %d was handed out after token %d", tokens[i], tokens[i-1])
		}
	}
}

// testUnlock: a lock is free for others as soon as its holder unlocks it. Unlocking again does not free another's lock.
func testUnlock(t testing.TB, s LockSetup) {
	a, b := newLocker(t, s.Store, ages), newLocker(t, s.Other, ages)
	first := tryLock(t, a, nil)
	stillHeld(t, b, "while it is held")
	stillHeld(t, a, "while the same program holds it")
	unlock(t, first)
	if cause := context.Cause(first.Context()); !errors.Is(cause, context.Canceled) {
		t.Errorf("unlocking ended the context with %v, wanted %v", cause, context.Canceled)
	}
	second := tryLock(t, b, first)
	unlock(t, first)
	if err := first.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("extending after unlocking: %v, wanted ErrLost", err)
	}
	stillHeld(t, a, "after the previous holder unlocked and extended again")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.Unlock(gone); err != nil {
		t.Errorf("unlocking on the way out, with a context that has ended: %v", err)
	}
	unlock(t, tryLock(t, a, second))
}

// testHeldOn: a lock outlives its lease several times while its holder lives. A stalled machine may lose it all the
// same. Then the holder learns of it, and the test tries again with a longer lease.
func testHeldOn(t testing.TB, s LockSetup) {
	other := newLocker(t, s.Other, ages)
	for lease := s.Lease; ; lease *= 2 {
		if lease > 64*s.Lease {
			t.Error("no lock outlived its lease")
			return
		}
		h := acquireLock(t, newLocker(t, s.Store, lease))
		end := time.Now().Add(3 * lease)
		for h.Context().Err() == nil && time.Now().Before(end) {
			if next, err := other.TryAcquire(t.Context(), lockName); err == nil {
				endWith(t, next)
				if time.Now().Before(h.Deadline()) {
					t.Errorf("two hold the lock: another got it %v before the end of the holder's lease", time.Until(h.Deadline()))
					end = time.Now()
				}
				unlock(t, next)
			}
			time.Sleep(lease / 20)
		}
		ok := h.Context().Err() == nil
		unlock(t, h)
		if ok || t.Failed() {
			return
		}
	}
}

// testTakeover: a stalled holder loses the lock when its lease ends, and not before. It learns of the loss and cannot
// harm the next holder, however often it tries. It asks the store once to unlock (S2-15).
func testTakeover(t testing.TB, s LockSetup) {
	w := &wire{Store: s.Store}
	stalled := acquireLock(t, newLocker(t, w, s.Lease))
	w.cut.Store(true)
	other := newLocker(t, s.Other, ages)
	next := acquireLock(t, other)
	if left := time.Until(stalled.Deadline()); left > 0 {
		t.Errorf("two hold the lock: the next got it %v before the end of the holder's lease", left)
	}
	if next.Token() <= stalled.Token() {
		t.Errorf("token %d was handed out after token %d", next.Token(), stalled.Token())
	}
	loses(t, stalled)
	w.cut.Store(false)
	if err := stalled.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("extending a lost lock: %v, wanted ErrLost", err)
	}
	tries := int32(unlock(t, stalled))
	for range 20 {
		unlock(t, stalled)
	}
	if n := w.finishes.Load(); n > tries {
		t.Errorf("unlocking a lost lock again and again sent %d writes, wanted %d", n, tries)
	}
	stillHeld(t, newLocker(t, s.Store, ages), "after the stale holder extended and unlocked")
	if err := next.Extend(t.Context()); err != nil {
		t.Errorf("the next holder cannot extend: %v", err)
	}
	unlock(t, next)
	unlock(t, tryLock(t, other, next))
}

// testTakenAway: a person releases a lock by force. Its holder learns of it with the next extension, and harms nobody.
func testTakenAway(t testing.TB, s LockSetup) {
	op, ok := driver.As[driver.Operator](s.Other)
	if !ok {
		t.Log("left out: the store has no driver.Operator")
		return
	}
	l := newLocker(t, s.Store, ages)
	h := tryLock(t, l, nil)
	key := driver.Key{Consumer: lock.DefaultScope, Raw: lockName}
	release := driver.Operation{Kind: driver.ForceRelease, Key: key, Keep: keep, By: "suite"}
	if _, o, err := op.Operate(t.Context(), release); err != nil || o != driver.Applied {
		t.Fatalf("release by force returned %v, %v", o, err)
	}
	next := tryLock(t, newLocker(t, s.Other, ages), h)
	if err := h.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("extending a lock that was taken away: %v, wanted ErrLost", err)
	}
	loses(t, h)
	unlock(t, h)
	stillHeld(t, l, "after the previous holder unlocked")
	unlock(t, next)
}

// testNoResponse loses responses: the holder recognizes its own writes and does not take them for another holder's.
func testNoResponse(t testing.TB, s LockSetup) {
	w := &wire{Store: s.Store}
	l, other := newLocker(t, w, ages), newLocker(t, s.Other, ages)
	w.loseClaim.Store(2)
	h := tryLock(t, l, nil)
	stillHeld(t, other, "after a claim whose response was lost")
	w.loseExtend.Store(1)
	if err := h.Extend(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
		t.Errorf("an extension without a response: %v, wanted an error that is not ErrLost", err)
	}
	if err := h.Extend(t.Context()); err != nil {
		t.Errorf("the extension repeated: %v", err)
	}
	w.loseFinish.Store(2)
	unlock(t, h)
	unlock(t, tryLock(t, other, h))
}

// testLateUnlock: the response to an unlock was lost, and another holder gets the lock before the unlock is repeated.
func testLateUnlock(t testing.TB, s LockSetup) {
	w := &wire{Store: s.Store}
	other := newLocker(t, s.Other, ages)
	h := tryLock(t, newLocker(t, w, ages), nil)
	var next *lock.Held
	w.lost = func() { next = tryLock(t, other, h) }
	w.loseFinish.Store(1)
	unlock(t, h)
	if next == nil || w.finishes.Load() != 2 {
		t.Fatalf("%d writes, wanted the lost one and its repetition", w.finishes.Load())
	}
	stillHeld(t, newLocker(t, s.Store, ages), "after a repeated unlocking by the previous holder")
	unlock(t, next)
}

// sweepUntil sweeps until something was swept: the clock that decides is the store's.
func sweepUntil(t testing.TB, s driver.Store, horizon time.Duration) (driver.Swept, bool) {
	t.Helper()
	sw, ok := driver.As[driver.Sweeper](s)
	if !ok {
		t.Log("left out: the store has no driver.Sweeper")
		return driver.Swept{}, false
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got, _, err := sw.Sweep(t.Context(), horizon, 100)
		if err != nil {
			t.Fatalf("sweep: %v", err)
		}
		if got != (driver.Swept{}) {
			return got, true
		}
	}
	t.Fatal("nothing was swept")
	return driver.Swept{}, false
}

// testLockPurged: the record of an unlocked lock is purged, and its tokens keep growing, because fences outside remember
// them.
func testLockPurged(t testing.TB, s LockSetup) {
	l, err := lock.New(s.Store, lock.Options{Lease: ages, Keep: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	h := tryLock(t, l, nil)
	for range 3 {
		unlock(t, h)
		if _, ok := sweepUntil(t, s.Store, 0); !ok {
			return
		}
		h = tryLock(t, l, h)
	}
	unlock(t, h)
}

// testAbandoned: the sweep parks a lock whose holder died long ago. The lock can be acquired all the same.
func testAbandoned(t testing.TB, s LockSetup) {
	w := &wire{Store: s.Store}
	dead := acquireLock(t, newLocker(t, w, s.Lease))
	w.cut.Store(true)
	swept, ok := sweepUntil(t, s.Store, time.Millisecond)
	if !ok {
		return
	}
	if swept.Abandoned != 1 {
		t.Fatalf("swept %+v, wanted one abandoned record", swept)
	}
	if _, operates := driver.As[driver.Operator](s.Other); !operates {
		t.Log("left out: the store has no driver.Operator to reopen it with")
		return
	}
	l := newLocker(t, s.Other, ages)
	next := acquireLock(t, l)
	if next.Token() <= dead.Token() {
		t.Errorf("token %d was handed out after token %d", next.Token(), dead.Token())
	}
	unlock(t, dead)
	stillHeld(t, newLocker(t, s.Store, ages), "after the dead holder resumed and unlocked")
	unlock(t, next)
}

// testLockNames: names and scopes are compared byte for byte.
func testLockNames(t testing.TB, s LockSetup) {
	l := newLocker(t, s.Store, ages)
	names := []string{"a", "A", "a ", "a\x00", "a\x00b", "ä", "a\u0308", "\xff", "a|b", "(a)", strings.Repeat("a", 1024)}
	held := make([]*lock.Held, 0, len(names)+1)
	for _, name := range names {
		h, err := l.TryAcquire(t.Context(), name)
		if err != nil {
			t.Errorf("lock %q next to the others: %v", name, err)
			continue
		}
		endWith(t, h)
		if h.Name() != name {
			t.Errorf("lock %q is called %q", name, h.Name())
		}
		held = append(held, h)
	}
	scoped, err := lock.New(s.Store, lock.Options{Scope: "another"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := scoped.TryAcquire(t.Context(), "a")
	if err != nil {
		t.Fatalf("a lock of another scope: %v", err)
	}
	endWith(t, h)
	for _, h := range append(held, h) {
		unlock(t, h)
	}
}

// testNotLock: a key that a consumer completed is no lock, and Acquire does not wait for it.
func testNotLock(t testing.TB, s LockSetup) {
	key := driver.Key{Consumer: lock.DefaultScope, Raw: lockName}
	mustFinish(t, s.Store, driver.Applied, complete(mustClaim(t, s.Store, key)[0]))
	if _, err := newLocker(t, s.Store, ages).Acquire(t.Context(), lockName); !errors.Is(err, lock.ErrNotLock) {
		t.Errorf("a completed key as a lock: %v, wanted ErrNotLock", err)
	}
}

// testLockDo: Do returns the function's error unchanged, whatever unlocking does. Panics go on. Nothing stays locked. A
// caller that did not get the lock unlocks nothing.
func testLockDo(t testing.TB, s LockSetup) {
	w := &wire{Store: s.Store}
	l, other := newLocker(t, w, ages), newLocker(t, s.Other, ages)
	mine := errors.New("the work failed")
	err := l.Do(t.Context(), lockName, func(context.Context, *lock.Held) error { return mine })
	if !errors.Is(err, mine) || err.Error() != mine.Error() {
		t.Errorf("Do returned %v, wanted the function's own error", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != "out of cheese" {
				t.Errorf("the panic became %v", v)
			}
			_ = l.Do(t.Context(), lockName, func(context.Context, *lock.Held) error { runtime.Goexit(); return nil })
		}()
		_ = l.Do(t.Context(), lockName, func(context.Context, *lock.Held) error { panic("out of cheese") })
	}()
	<-done
	h := tryLock(t, other, nil)
	before := w.finishes.Load()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = l.Do(short, lockName, func(context.Context, *lock.Held) error { t.Error("it ran without the lock"); return nil })
	if !errors.Is(err, lock.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Do without the lock: %v", err)
	}
	if n := w.finishes.Load(); n != before {
		t.Errorf("a caller that did not get the lock sent %d writes to unlock it", n-before)
	}
	stillHeld(t, l, "after somebody else gave up")
	unlock(t, h)
	testDoLost(t, s)
}

// testDoLost: Do reports a lock that was lost while the function ran, also when the function succeeded.
func testDoLost(t testing.TB, s LockSetup) {
	w := &wire{Store: s.Store}
	w.cut.Store(true)
	err := newLocker(t, w, s.Lease).Do(t.Context(), lockName, func(ctx context.Context, h *lock.Held) error {
		loses(t, h)
		<-ctx.Done() // it follows
		if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the function's context ended with %v, wanted ErrLost", cause)
		}
		return nil
	})
	if !errors.Is(err, lock.ErrLost) {
		t.Errorf("Do returned %v after the lock was lost, wanted ErrLost", err)
	}
}
