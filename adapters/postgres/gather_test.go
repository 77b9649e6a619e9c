package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
)

// doubling is a gather that doubles numbers, each flush in a millisecond, and notes how many went together.
func doubling(sizes *[]int) *gather[int, int] {
	var mu sync.Mutex
	return newGather(func(ctx context.Context, items []int) ([]int, error) {
		mu.Lock()
		*sizes = append(*sizes, len(items))
		mu.Unlock()
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		out := make([]int, len(items))
		for i, n := range items {
			out[i] = 2 * n
		}
		return out, nil
	})
}

func TestGatherReturnsEachItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		g := doubling(&sizes)
		var wg sync.WaitGroup
		for caller := range 64 {
			wg.Go(func() {
				for round := range 20 {
					n := caller*100 + round
					if got, err := g.one(t.Context(), n); err != nil || got != 2*n {
						t.Errorf("%d got %d: %v", n, got, err)
					}
				}
			})
		}
		wg.Wait()
		// The first goes alone, the 63 that came meanwhile together; after that all 64 call at once.
		if len(sizes) > 25 {
			t.Errorf("%d calls took %d flushes: %v", 64*20, len(sizes), sizes)
		}
	})
}

func TestGatherKeepsNobodyWaitingWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		g := doubling(&sizes)
		begin := time.Now()
		for range 100 {
			if _, err := g.one(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 100*time.Millisecond {
			t.Errorf("100 calls of a millisecond took %v", took)
		}
	})
}

// A call that was not sent is certainly not applied; one that was may be.
func TestGatherTellsUnsentFromUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{}, 8)
		cancelled := make(chan struct{})
		g := newGather(func(ctx context.Context, items []int) ([]int, error) {
			started <- struct{}{}
			<-ctx.Done()
			close(cancelled)
			return nil, ctx.Err()
		})
		sent, cancelSent := context.WithCancel(t.Context())
		result := make(chan error, 2)
		go func() { _, err := g.one(sent, 1); result <- err }()
		<-started
		unsent, cancelUnsent := context.WithCancel(t.Context())
		go func() { _, err := g.one(unsent, 2); result <- err }()
		synctest.Wait()
		cancelUnsent()
		if err := <-result; !errors.Is(err, driver.ErrNotCommitted) || !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was not sent: %v", err)
		}
		cancelSent()
		if err := <-result; errors.Is(err, driver.ErrNotCommitted) || !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was sent: %v", err)
		}
		<-cancelled // nobody waits for the flush any more
	})
}

// A flush whose callers are not all gone goes on; when they are, it is cancelled.
func TestGatherCancelsAFlushThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		first := true
		g := newGather(func(ctx context.Context, items []int) ([]int, error) {
			if first {
				first = false
				time.Sleep(time.Millisecond)
				return items, nil
			}
			<-ctx.Done()
			ended = ctx.Err()
			return nil, ended
		})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = g.one(t.Context(), 0) })
		synctest.Wait()
		ctx1, cancel1 := context.WithCancel(t.Context())
		ctx2, cancel2 := context.WithCancel(t.Context())
		wg.Go(func() { _, _ = g.one(ctx1, 1) })
		wg.Go(func() { _, _ = g.one(ctx2, 2) })
		time.Sleep(5 * time.Millisecond)
		cancel1()
		synctest.Wait()
		if ended != nil {
			t.Error("the flush was cancelled while somebody waited for it")
		}
		cancel2()
		wg.Wait()
		synctest.Wait()
		if ended == nil {
			t.Error("nobody waits for the flush, and it goes on")
		}
	})
}

// A connection that died silently must not stop the calls of others.
func TestGatherGoesOnBesideAStuckFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var calls atomic.Int64
		g := newGather(func(ctx context.Context, items []int) ([]int, error) {
			if calls.Add(1) == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return items, nil
		})
		wg.Go(func() { _, _ = g.one(ctx, 1) })
		time.Sleep(gatherStuck + time.Millisecond)
		if got, err := g.one(t.Context(), 7); err != nil || got != 7 {
			t.Errorf("%d, %v", got, err)
		}
		cancel()
		wg.Wait()
		if got, err := g.one(t.Context(), 8); err != nil || got != 8 {
			t.Errorf("after it: %d, %v", got, err)
		}
	})
}

// Calls from before it was known to be stuck return without another caller.
func TestGatherRelievesThoseBehindAStuckFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		g := newGather(func(ctx context.Context, items []int) ([]int, error) {
			if calls.Add(1) == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return items, nil
		})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = g.one(ctx, 1) })
		synctest.Wait()
		begin := time.Now()
		for i := range 3 {
			wg.Go(func() {
				if got, err := g.one(t.Context(), i); err != nil || got != i || time.Since(begin) > 2*gatherStuck {
					t.Errorf("%d, %v after %v", got, err, time.Since(begin))
				}
			})
		}
		time.AfterFunc(10*gatherStuck, cancel)
		wg.Wait()
		if n := calls.Load(); n != 2 {
			t.Errorf("%d flushes, wanted 2", n)
		}
	})
}

func TestGatherTellsEverybodyOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		g := newGather(func(context.Context, []int) ([]int, error) {
			time.Sleep(time.Millisecond)
			return nil, broken
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := g.one(t.Context(), 1); !errors.Is(err, broken) {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
	})
}

// TestFM47_LockedKeyAmongOthers: claims of one key each go together, and one whose key a frozen worker's transaction
// holds waits without the others.
func TestFM47_LockedKeyAmongOthers(t *testing.T) {
	// A slow machine gets more time: a wait of any length shows who waits for whom.
	for wait := 3 * time.Second; lockedKeyAmongOthers(t, wait) >= wait; wait *= 4 {
		if wait > time.Minute {
			t.Fatalf("the others wait for the locked key, %v long", wait)
		}
	}
}

// lockedKeyAmongOthers returns how long the others took.
func lockedKeyAmongOthers(t *testing.T, wait time.Duration) (took time.Duration) {
	db := openFor(t, Options{LockWait: wait})
	s := db.Store()
	ks := testKeys("k%d", 200)
	tx, _, err := s.Begin(t.Context(), claimsOf(ks[:1], long)...)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var locked, others sync.WaitGroup
	claim := func(i int, want driver.Verdict) {
		gs, err := s.Claim(t.Context(), claimsOf(ks[i:i+1], long)...)
		if err != nil || gs[0].Verdict != want {
			t.Errorf("key %d returned %+v, %v, wanted %v", i, gs, err, want)
		}
	}
	locked.Go(func() { claim(0, driver.Busy) })
	for caller := range 8 {
		others.Go(func() {
			for i := caller + 1; i < len(ks); i += 8 {
				claim(i, driver.Acquired)
			}
		})
	}
	others.Wait()
	took = time.Since(began)
	locked.Wait()
	if took := time.Since(began); took < wait {
		t.Errorf("the locked key was given up after %v", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return took
}
