package semel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

var lateKey = semel.Key{Consumer: "http", Raw: "k"}

// deafStore extends nothing.
type deafStore struct{ *memory.Store }

func (deafStore) Extend(context.Context, time.Duration, ...driver.Hold) ([]driver.Outcome, error) {
	return nil, errors.New("connection refused")
}

// strictStore does what database clients do: a call whose context has ended is not sent.
type strictStore struct{ deafStore }

func (s strictStore) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.deafStore.Finish(ctx, f...)
}

// TestFM9_DoOffersALateSuccess: a function that succeeds when its lease has ended by our own clock is recorded if nobody
// took the key over, and fenced if somebody did.
func TestFM9_DoOffersALateSuccess(t *testing.T) {
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := strictStore{deafStore{memory.NewStore()}}
			other := make(chan error, 1)
			v, d, err := semel.Do(t.Context(), s, lateKey, func(ctx context.Context, _ *semel.Attempt) (int, error) {
				<-ctx.Done()
				time.Sleep(30 * time.Second)
				if taken {
					_, d, err := semel.Do(context.WithoutCancel(ctx), s.Store, lateKey, func(context.Context, *semel.Attempt) (int, error) { return 2, nil })
					if d != semel.Executed {
						err = errors.Join(err, errors.New("the key was not taken over"))
					}
					other <- err
				}
				return 1, nil
			}, semel.WithLease(10*time.Second))
			if taken {
				if err := <-other; err != nil {
					t.Fatal(err)
				}
				if d != semel.Fenced || !errors.Is(err, semel.ErrFenced) {
					t.Errorf("after a takeover: %d %s %v", v, d, err)
				}
			} else if v != 1 || d != semel.Executed || err != nil {
				t.Errorf("late, and nobody took it over: %d %s %v", v, d, err)
			}
			want := 1
			if taken {
				want = 2
			}
			if v, d, err := semel.Do(t.Context(), s, lateKey, func(context.Context, *semel.Attempt) (int, error) { return 3, nil }); v != want || d != semel.Replayed {
				t.Errorf("the key replays %d %s %v, want %d", v, d, err, want)
			}
		})
	}
}

// TestFM16_DoSaysForHowLongAKeyIsBusy, at once and when the wait for it has ended.
func TestFM16_DoSaysForHowLongAKeyIsBusy(t *testing.T) {
	for name, opts := range map[string][]semel.DoOption{"at once": nil, "after a wait": {semel.WithWait()}} {
		synctest.Test(t, func(t *testing.T) {
			s := memory.NewStore()
			if _, err := s.Claim(t.Context(), driver.Claim{Key: lateKey, Nonce: driver.Nonce{1}, Lease: time.Minute}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			began := time.Now()
			_, d, err := semel.Do(ctx, s, lateKey, func(context.Context, *semel.Attempt) (int, error) { return 1, nil }, opts...)
			var busy *semel.BusyError
			if d != semel.BusyDeferred || !errors.Is(err, semel.ErrBusy) || !errors.As(err, &busy) {
				t.Fatalf("%s: %q %v", name, d, err)
			}
			left := time.Minute - time.Since(began)
			if busy.Key != "k" || busy.Wait < left || busy.Wait > left+time.Second {
				t.Errorf("%s: %v, and the lease lasts another %v", name, busy, left)
			}
			if waits := len(opts) > 0; waits != errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// lateStore responds to claims late.
type lateStore struct {
	*memory.Store
	d     time.Duration
	asked int
}

func (s *lateStore) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	s.asked++
	out, err := s.Store.Claim(ctx, c...)
	time.Sleep(s.d)
	return out, err
}

// TestFM36_DoOnAStoreAsSlowAsTheLease: with anything left of the lease it runs; with nothing left it ends soon, says what
// to change, and leaves the key free.
func TestFM36_DoOnAStoreAsSlowAsTheLease(t *testing.T) {
	for took, runs := range map[time.Duration]int{60 * time.Millisecond: 1, 95 * time.Millisecond: 0, 150 * time.Millisecond: 0} {
		for _, opts := range [][]semel.DoOption{nil, {semel.WithClaimTimeout(time.Second)}} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s, ran := &lateStore{Store: memory.NewStore(), d: took}, 0
				_, d, err := semel.Do(ctx, s, lateKey, func(context.Context, *semel.Attempt) (int, error) { ran++; return 1, nil },
					append(opts, semel.WithLease(100*time.Millisecond))...)
				if ran != runs || s.asked > 3 {
					t.Fatalf("a claim takes %v: %d runs after %d claims, %s %v", took, ran, s.asked, d, err)
				}
				if runs == 1 {
					if d != semel.Executed || err != nil {
						t.Errorf("%s %v", d, err)
					}
					return
				}
				if d != "" || !errors.Is(err, semel.ErrNoResponse) {
					t.Errorf("%s %v", d, err)
				}
				if _, d, err := semel.Do(ctx, s.Store, lateKey, func(context.Context, *semel.Attempt) (int, error) { return 1, nil }); d != semel.Executed {
					t.Errorf("afterwards: %s %v", d, err)
				}
			})
		}
	}
}

// TestFM58_DoMissesAResult: a key that was completed without a result replays that as an error, unless there is nothing to
// miss.
func TestFM58_DoMissesAResult(t *testing.T) {
	s := memory.NewStore()
	g, err := s.Claim(t.Context(), driver.Claim{Key: lateKey, Nonce: driver.Nonce{1}, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Finish(t.Context(), driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour, Reason: "completed by a person"}); err != nil {
		t.Fatal(err)
	}
	if v, d, err := semel.Do(t.Context(), s, lateKey, func(context.Context, *semel.Attempt) (int, error) { return 1, nil }); v != 0 ||
		d != semel.Replayed || !errors.Is(err, semel.ErrResultNotStored) {
		t.Errorf("an int: %d %s %v", v, d, err)
	}
	if v, d, err := semel.Do(t.Context(), s, lateKey, func(context.Context, *semel.Attempt) ([]byte, error) { return nil, nil }); v != nil ||
		d != semel.Replayed || err != nil {
		t.Errorf("bytes: %v %s %v", v, d, err)
	}
	if _, d, err := semel.Do(t.Context(), s, lateKey, func(context.Context, *semel.Attempt) (struct{}, error) { return struct{}{}, nil }); d != semel.Replayed || err != nil {
		t.Errorf("a struct without fields: %s %v", d, err)
	}
}
