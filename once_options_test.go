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

// TestDoRefusesOptions: a lease that has ended when it begins would be claimed forever, and what is not retained is no
// protection. Both are said before anything is claimed.
func TestDoRefusesOptions(t *testing.T) {
	for field, o := range map[string]semel.DoOption{
		"WithLease": semel.WithLease(0), "WithRetention": semel.WithRetention(-time.Hour),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, runs := memory.NewStore(), 0
		for range 2 {
			_, _, err := semel.Do(ctx, s, semel.Key{Consumer: "c", Raw: "k"}, func(context.Context, *semel.Attempt) (int, error) {
				runs++
				return 0, nil
			}, o)
			if bad := (*semel.ConfigError)(nil); !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("%s: %v, wanted a ConfigError", field, err)
			}
		}
		cancel()
		if runs != 0 {
			t.Errorf("%s: %d runs", field, runs)
		}
	}
}

// TestDoKeepsNoLeaseBeyondUntil: neither the claim nor the heartbeat asks for more.
func TestDoKeepsNoLeaseBeyondUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.NewStore()
		k := semel.Key{Consumer: "c", Raw: "k"}
		until := time.Now().Add(40 * time.Second)
		_, d, err := semel.Do(t.Context(), st, k, func(ctx context.Context, _ *semel.Attempt) (int, error) {
			for range 38 {
				time.Sleep(time.Second)
				r, _, err := st.Record(ctx, k)
				if err != nil || r.LeaseUntil.After(until) || r.LeaseUntil.Before(time.Now()) {
					t.Fatalf("%v before the end the lease ends %v behind it, %v", time.Until(until), r.LeaseUntil.Sub(until), err)
				}
			}
			return 1, ctx.Err()
		}, semel.WithUntil(until))
		if err != nil || d != semel.Executed {
			t.Errorf("%s, %v", d, err)
		}
	})
}

// dumb is a store that applies claims but responds only from some time on.
type dumb struct {
	*memory.Store
	until time.Time
	gone  bool // it does not even see the end of a call's context
}

func (s *dumb) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	g, err := s.Store.Claim(ctx, c...)
	if time.Now().After(s.until) {
		return g, err
	}
	if s.gone {
		return nil, errors.New("no route")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestFM34_ClaimTimeout: if the store does not respond in time, nothing runs, and Do returns in time.
func TestFM34_ClaimTimeout(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &dumb{Store: memory.NewStore(), until: time.Now().Add(time.Hour), gone: gone}
			began := time.Now()
			_, _, err := semel.Do(t.Context(), s, semel.Key{Raw: "k"}, func(context.Context, *semel.Attempt) (int, error) {
				t.Error("it ran")
				return 0, nil
			}, semel.WithClaimTimeout(5*time.Second))
			if took := time.Since(began); !errors.Is(err, semel.ErrNoResponse) || took < 5*time.Second || took > 7*time.Second {
				t.Errorf("gone %v: %v after %v", gone, err, took)
			}
		})
	}
}

// TestClaimTimeoutIsOfSilence: Do does not give up a store that responds late but in time, and waiting for another run does
// not count.
func TestClaimTimeoutIsOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &dumb{Store: memory.NewStore(), until: time.Now().Add(3 * time.Second), gone: true}
		k := semel.Key{Raw: "k"}
		slow := func(context.Context, *semel.Attempt) (string, error) { time.Sleep(time.Minute); return "first", nil }
		done := make(chan error, 1)
		go func() {
			_, _, err := semel.Do(t.Context(), s, k, slow, semel.WithClaimTimeout(5*time.Second))
			done <- err
		}()
		time.Sleep(10 * time.Second)
		got, d, err := semel.Do(t.Context(), s.Store, k, slow, semel.WithWait(), semel.WithClaimTimeout(5*time.Second))
		if err != nil || got != "first" || d != semel.Replayed {
			t.Errorf("who waits got %q, %s, %v", got, d, err)
		}
		if err := <-done; err != nil {
			t.Errorf("the first: %v", err)
		}
	})
}
