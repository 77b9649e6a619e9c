package semel_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// sluggish is a store that responds late to the next claim, whose extensions fail and then hang, and that stores only small
// results.
type sluggish struct {
	*memory.Store
	claim time.Duration
	deaf  bool
	asked int
	most  int
}

func (s *sluggish) Features() driver.StoreFeatures {
	f := s.Store.Features()
	f.MaxResult = s.most
	return f
}

func (s *sluggish) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	out, err := s.Store.Claim(ctx, c...)
	d := s.claim
	s.claim = 0
	time.Sleep(d)
	return out, err
}

func (s *sluggish) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	if s.deaf {
		if s.asked++; s.asked == 1 {
			return nil, errors.New("connection refused")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Extend(ctx, lease, h...)
}

func (s *sluggish) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	if s.most > 0 && len(f[0].Result) > s.most {
		return nil, errors.New("too large")
	}
	return s.Store.Finish(ctx, f...)
}

// TestFM36_DoDoesNotRunUnderAnEndedLease: a claim whose response arrives after its lease has ended is renewed first.
func TestFM36_DoDoesNotRunUnderAnEndedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sluggish{Store: memory.NewStore(), claim: time.Minute}
		_, d, err := semel.Do(t.Context(), s, semel.Key{Consumer: "http", Raw: "k"},
			func(_ context.Context, a *semel.Attempt) (int, error) {
				if left := time.Until(a.Deadline); left <= 0 {
					t.Errorf("begun %v after the end of the lease", -left)
				}
				return 1, nil
			}, semel.WithLease(10*time.Second))
		if d != semel.Executed || err != nil {
			t.Errorf("%s %v", d, err)
		}
	})
}

// TestFM9_DoStopsInTime: an extension that hangs does not keep the run from being stopped before its lease has ended, by a tenth of it.
func TestFM9_DoStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sluggish{Store: memory.NewStore(), deaf: true}
		_, d, err := semel.Do(t.Context(), s, semel.Key{Consumer: "http", Raw: "k"},
			func(ctx context.Context, a *semel.Attempt) (int, error) {
				<-ctx.Done()
				if left := time.Until(a.Deadline); left < time.Second/2 {
					t.Errorf("stopped %v before the end of the lease", left)
				}
				return 0, ctx.Err()
			}, semel.WithLease(10*time.Second))
		if d != semel.Fenced || !errors.Is(err, semel.ErrFenced) {
			t.Errorf("%s %v", d, err)
		}
	})
}

// TestFM58_DoKeepsNoResultThatTheStoreRefuses: the effect is recorded without it, and does not happen again.
func TestFM58_DoKeepsNoResultThatTheStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, runs := &sluggish{Store: memory.NewStore(), most: 100}, 0
		for _, want := range []semel.Decision{semel.Executed, semel.Replayed} {
			v, d, err := semel.Do(t.Context(), s, semel.Key{Consumer: "http", Raw: "k"},
				func(context.Context, *semel.Attempt) ([]byte, error) {
					runs++
					return bytes.Repeat([]byte("x"), 101), nil
				})
			if d != want || !errors.Is(err, semel.ErrResultNotStored) || !strings.Contains(err.Error(), "101 bytes") || runs != 1 {
				t.Fatalf("%s %v, %d runs, want %s", d, err, runs, want)
			}
			if want == semel.Executed && len(v) != 101 {
				t.Errorf("the caller that ran it got %d bytes", len(v))
			}
		}
	})
}
