package semel_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// inDoubt makes a record with the policy Probe and an unknown outcome.
func inDoubt(t *testing.T, s *memory.Store, k semel.Key) {
	t.Helper()
	ask := func(context.Context, *semel.Attempt) (semel.ProbeResult, error) { return semel.ProbeUnknown, nil }
	fail := func(context.Context, *semel.Attempt) (int, error) { return 0, errors.New("reset by peer") }
	if _, d, _ := semel.Do(t.Context(), s, k, fail, semel.WithProbe(ask)); d != semel.Retried {
		t.Fatalf("the first call ended as %s", d)
	}
	time.Sleep(time.Second)
}

// TestFM82_DoWithoutProbeDoesNotRunInDoubt: the stricter policy of record and caller rules.
func TestFM82_DoWithoutProbeDoesNotRunInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := memory.NewStore(), semel.Key{Consumer: "http", Raw: "k"}
		inDoubt(t, s, k)
		_, d, err := semel.Do(t.Context(), s, k, func(context.Context, *semel.Attempt) (int, error) {
			t.Error("ran although the effect may have happened")
			return 0, nil
		})
		if d != semel.ParkedUncertain || !errors.Is(err, semel.ErrUncertain) {
			t.Errorf("%s %v", d, err)
		}
	})
}

// A claim whose caller is gone ends by itself: its heartbeat ends with the call, however the call ends.
func TestDoEndsItsHeartbeat(t *testing.T) {
	s := memory.NewStore()
	for name, call := range map[string]func(t *testing.T, k semel.Key){
		"probe panics": func(t *testing.T, k semel.Key) {
			inDoubt(t, s, k)
			ask := func(context.Context, *semel.Attempt) (semel.ProbeResult, error) { panic("boom") }
			_, d, err := semel.Do(t.Context(), s, k, func(context.Context, *semel.Attempt) (int, error) { return 0, nil },
				semel.WithProbe(ask))
			if p := (*semel.PanicError)(nil); d != semel.ParkedUncertain || !errors.As(err, &p) || !errors.Is(err, semel.ErrUncertain) {
				t.Errorf("%s %v", d, err)
			}
		},
		"function ends its goroutine": func(t *testing.T, k semel.Key) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _, _ = semel.Do(t.Context(), s, k, func(context.Context, *semel.Attempt) (int, error) {
					runtime.Goexit()
					return 0, nil
				})
			}()
			<-done
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := semel.Key{Consumer: "http", Raw: name}
				call(t, k)
				time.Sleep(time.Hour)
				r, ok, err := s.Record(t.Context(), k)
				if err != nil || !ok || r.State == driver.InProgress && time.Since(r.LeaseUntil) < 0 {
					t.Errorf("ok=%v err=%v, after an hour the lease is still extended: %+v", ok, err, r)
				}
			})
		})
	}
}

// unreadable responds to every claim like a store whose record this program cannot read.
type unreadable struct {
	semel.Store
	asked *int
}

func (s unreadable) Claim(context.Context, ...driver.Claim) ([]driver.Grant, error) {
	*s.asked++
	return []driver.Grant{{Err: driver.ErrUnreadable}}, nil
}

// TestFM82_DoSaysThatARecordIsUnreadable: at once, and without a run.
func TestFM82_DoSaysThatARecordIsUnreadable(t *testing.T) {
	asked := 0
	_, _, err := semel.Do(t.Context(), unreadable{memory.NewStore(), &asked}, semel.Key{Consumer: "http", Raw: "k"},
		func(context.Context, *semel.Attempt) (int, error) {
			t.Error("it ran")
			return 0, nil
		})
	if !errors.Is(err, semel.ErrUnreadable) || asked != 1 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
