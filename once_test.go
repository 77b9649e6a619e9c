package semel_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

type receipt struct{ Amount int }

func TestDoRunsOnceAndReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		k := semel.Key{Consumer: "http", Raw: "order-1"}
		var runs atomic.Int32
		charge := func(context.Context, *semel.Attempt) (receipt, error) {
			runs.Add(1)
			time.Sleep(5 * time.Minute) // far longer than the lease: the heartbeat keeps it
			return receipt{100}, nil
		}
		var wg sync.WaitGroup
		var executed, replayed atomic.Int32
		for range 20 {
			wg.Go(func() {
				got, d, err := semel.Do(t.Context(), s, k, charge, semel.WithWait())
				if err != nil || got.Amount != 100 {
					t.Errorf("%+v %s %v", got, d, err)
				}
				switch d {
				case semel.Executed:
					executed.Add(1)
				case semel.Replayed:
					replayed.Add(1)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 || executed.Load() != 1 || replayed.Load() != 19 {
			t.Fatalf("%d runs, %d executed, %d replayed", runs.Load(), executed.Load(), replayed.Load())
		}
	})
}

func TestDoRefusals(t *testing.T) {
	s := memory.NewStore()
	k := semel.Key{Consumer: "http", Raw: "order-1"}
	ok := func(context.Context, *semel.Attempt) (string, error) { return "x", nil }
	fp := func(s string) semel.Fingerprint { return semel.Fingerprint("v001" + s) }
	started, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, _, err := semel.Do(t.Context(), s, k, func(context.Context, *semel.Attempt) (string, error) {
			close(started)
			<-release
			return "", semel.NotApplied(errors.New("refused"))
		}, semel.WithFingerprint(fp("a")))
		done <- err
	}()
	<-started
	if _, d, err := semel.Do(t.Context(), s, k, ok, semel.WithFingerprint(fp("a"))); !errors.Is(err, semel.ErrBusy) || d != semel.BusyDeferred {
		t.Errorf("%s %v", d, err)
	}
	if _, _, err := semel.Do(t.Context(), s, k, ok, semel.WithFingerprint(fp("b"))); !errors.Is(err, semel.ErrMismatch) {
		t.Errorf("%v", err)
	}
	close(release)
	if err := <-done; err == nil || err.Error() != "refused" {
		t.Errorf("the function's own error: %v", err)
	}
	if v, d, err := semel.Do(t.Context(), s, k, ok, semel.WithFingerprint(fp("a"))); v != "x" || d != semel.Executed || err != nil {
		t.Errorf("a released key can be tried again: %q %s %v", v, d, err)
	}
	bad := semel.Key{Consumer: "http", Raw: "order-2"}
	_, _, _ = semel.Do(t.Context(), s, bad, func(context.Context, *semel.Attempt) (string, error) {
		return "", semel.Permanent(errors.New("no"))
	})
	if _, _, err := semel.Do(t.Context(), s, bad, ok); !errors.Is(err, semel.ErrFailed) {
		t.Errorf("%v", err)
	}
	var key *key.Error
	if _, _, err := semel.Do(t.Context(), s, semel.Key{Consumer: "http"}, ok); !errors.As(err, &key) {
		t.Errorf("%v", err)
	}
}

func TestFM59_ResultThatCannotBeStoredDoesNotRunAgain(t *testing.T) {
	s := memory.NewStore()
	k := semel.Key{Consumer: "http", Raw: "order-1"}
	runs := 0
	f := func(context.Context, *semel.Attempt) (func(), error) { runs++; return func() {}, nil }
	if _, d, err := semel.Do(t.Context(), s, k, f); !errors.Is(err, semel.ErrResultNotStored) || d != semel.Executed {
		t.Fatalf("%s %v", d, err)
	}
	if _, d, err := semel.Do(t.Context(), s, k, f); !errors.Is(err, semel.ErrResultNotStored) || d != semel.Replayed || runs != 1 {
		t.Fatalf("%s %v, %d runs", d, err, runs)
	}
}

// TestFM59_ProbedResultThatDoesNotFit: what the probe found applied is recorded as done, though its result is of no use.
func TestFM59_ProbedResultThatDoesNotFit(t *testing.T) {
	s, k, runs := memory.NewStore(), semel.Key{Consumer: "http", Raw: "order-1"}, 0
	f := func(context.Context, *semel.Attempt) (int, error) {
		if runs++; runs == 1 {
			panic("after the effect")
		}
		return runs, nil
	}
	if _, _, err := semel.Do(t.Context(), s, k, f); err == nil {
		t.Fatal("the panic is no error")
	}
	_, _, err := semel.Do(t.Context(), s, k, f, semel.WithProbe(
		func(_ context.Context, a *semel.Attempt) (semel.ProbeResult, error) {
			a.SetResult([]byte("no JSON"))
			return semel.ProbeApplied, nil
		}))
	if !errors.Is(err, semel.ErrResultNotStored) {
		t.Errorf("the error does not report that the result is lost: %v", err)
	}
	if _, d, err := semel.Do(t.Context(), s, k, f); !errors.Is(err, semel.ErrResultNotStored) || d != semel.Replayed || runs != 1 {
		t.Errorf("%s %v, %d runs", d, err, runs)
	}
}

// lossy drops the responses of writes that were applied.
type lossy struct {
	*memory.Store
	claims, finishes int
}

func (l *lossy) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	g, err := l.Store.Claim(ctx, c...)
	if l.claims > 0 {
		l.claims--
		return nil, errors.New("connection reset")
	}
	return g, err
}

func (l *lossy) Finish(ctx context.Context, f ...driver.Finish) ([]driver.Outcome, error) {
	o, err := l.Store.Finish(ctx, f...)
	if l.finishes > 0 {
		l.finishes--
		return nil, errors.New("connection reset")
	}
	return o, err
}

func TestFM31_FM32_NoResponseWritesAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lossy{Store: memory.NewStore(), claims: 3, finishes: 3}
		runs := 0
		v, d, err := semel.Do(t.Context(), s, semel.Key{Consumer: "http", Raw: "k"},
			func(context.Context, *semel.Attempt) (int, error) { runs++; return 7, nil })
		if v != 7 || d != semel.Executed || err != nil || runs != 1 {
			t.Fatalf("%d %s %v, %d runs", v, d, err, runs)
		}
	})
}

func TestDoProbesAfterADoubt(t *testing.T) {
	s := memory.NewStore()
	k := semel.Key{Consumer: "http", Raw: "k"}
	probe := semel.WithProbe(func(_ context.Context, a *semel.Attempt) (semel.ProbeResult, error) {
		a.SetResult([]byte(`42`))
		return semel.ProbeApplied, nil
	})
	fail := func(context.Context, *semel.Attempt) (int, error) { return 0, errors.New("reset") }
	if _, d, err := semel.Do(t.Context(), s, k, fail, probe); err == nil || d != semel.Retried {
		t.Fatalf("%s %v", d, err)
	}
	v, d, err := semel.Do(t.Context(), s, k, fail, probe)
	if v != 42 || d != semel.Replayed || err != nil {
		t.Fatalf("%d %s %v", v, d, err)
	}
}
