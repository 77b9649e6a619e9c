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

// dumb is a store whose claims are applied, and answered only from some time on.
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

// TestFM34_ClaimTimeout: a store that does not answer in time runs nothing, and Do says so in time.
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

// TestClaimTimeoutIsOfSilence: a store that answers late but in time is not given up, and waiting for somebody else's
// run is not counted.
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
