package ops

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// TestCanary redrives ten dead letters with a canary of three, while a worker that runs beside handles what comes.
func TestCanary(t *testing.T) {
	for name, c := range map[string]struct {
		h        func(*semel.Attempt) error
		idle     bool
		redriven int
		state    driver.State
		timeout  bool
	}{
		"the cause is gone":    {h: works, redriven: 10},
		"it fails again":       {h: permanent, redriven: 3, state: driver.FailedState},
		"no worker is running": {idle: true, redriven: 3, state: driver.Released, timeout: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				for i := range 10 {
					s.send(semel.Message{ID: fmt.Sprint("m", i)})
				}
				s.work(nil, permanent)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if !c.idle {
					worker, err := semel.New(semel.Config{
						Queue: s.q, Store: s.db.Store(), MaxAttempts: 1,
						Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error { return c.h(a) }),
					})
					if err != nil {
						t.Fatal(err)
					}
					ended := make(chan error, 1)
					go func() { ended <- worker.Run(ctx) }()
					defer func() { stop(); <-ended }()
				}
				redriven := 0
				err := s.box().Each(ctx, s.deadLetters(), Batch{Rate: 10, Canary: 3, CanaryTimeout: time.Minute},
					func(ctx context.Context, l driver.DeadLetter) (Result, error) {
						return s.box().Redrive(ctx, l, Options{By: "test"})
					},
					func(r Result) {
						if r.Outcome != Redriven {
							t.Errorf("%+v", r)
						}
						redriven++
					})
				var canary *CanaryError
				if errors.As(err, &canary) != (c.state != 0) || err != nil && (canary == nil || canary.State != c.state || (canary.Timeout > 0) != c.timeout) {
					t.Errorf("got %v", err)
				}
				if redriven != c.redriven {
					t.Errorf("%d were redriven, wanted %d", redriven, c.redriven)
				}
			})
		})
	}
}

// TestFM80_DiscardedDuringABatch: a dead letter that a person discards while a redrive waits is not sent again.
func TestFM80_DiscardedDuringABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.send(semel.Message{ID: "m0"})
		s.send(semel.Message{ID: "m1"})
		s.work(nil, permanent)
		var all []Result
		err := s.box().Each(t.Context(), s.deadLetters(), Batch{Rate: 1}, func(ctx context.Context, l driver.DeadLetter) (Result, error) {
			return s.box().Redrive(ctx, l, Options{By: "test"})
		}, func(r Result) {
			if all = append(all, r); len(all) > 1 {
				return
			}
			for _, l := range s.deadLetters() {
				if _, err := s.box().Discard(t.Context(), l, Options{By: "somebody"}); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil || len(all) != 2 || all[0].Outcome != Redriven || all[1].Outcome != Refused || all[1].Key == "" {
			t.Errorf("%+v, %v", all, err)
		}
		if got := s.work(nil, works); len(got) != 1 {
			t.Errorf("effects %v", got)
		}
	})
}
