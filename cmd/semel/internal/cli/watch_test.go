package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/driver"
)

// counted returns the given counts, one a call.
type counted struct {
	driver.QueueInspector
	began  time.Time
	approx bool
	busy   func(after time.Duration) bool
	// delayed messages are there for so long
	delayed time.Duration
}

func (c counted) Stats(context.Context) (driver.QueueStats, error) {
	s := driver.QueueStats{Approximate: c.approx}
	if c.busy(time.Since(c.began)) {
		s.Visible = 1
	}
	if time.Since(c.began) < c.delayed {
		s.Delayed = 3
	}
	return s, nil
}

// Counts that lag behind have to say nothing for five seconds; exact ones twice.
func TestUntilEmptyOnApproximateCounts(t *testing.T) {
	for name, c := range map[string]struct {
		approx     bool
		busy       func(time.Duration) bool
		least, not time.Duration
	}{
		"exact":        {false, func(time.Duration) bool { return false }, 100 * time.Millisecond, 100 * time.Millisecond},
		"approximate":  {true, func(time.Duration) bool { return false }, 5 * time.Second, 8 * time.Second},
		"late message": {true, func(d time.Duration) bool { return d > 4*time.Second && d < 5500*time.Millisecond }, 10 * time.Second, 13 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				began := time.Now()
				watchEmpty(ctx, counted{began: began, approx: c.approx, busy: c.busy}, slog.New(slog.DiscardHandler), cancel)
				if took := time.Since(began); took < c.least || took > c.not {
					t.Errorf("stopped after %v, want %v to %v", took, c.least, c.not)
				}
				if !errors.Is(context.Cause(ctx), errEmpty) {
					t.Errorf("ended by %v", context.Cause(ctx))
				}
			})
		})
	}
}

// The worker logs what it waits for, after a while and every minute. Delayed messages belong to the queue.
func TestUntilEmptyTellsWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		var log bytes.Buffer
		began := time.Now()
		q := counted{began: began, busy: func(d time.Duration) bool { return d < 5*time.Second }, delayed: 100 * time.Second}
		watchEmpty(ctx, q, slog.New(slog.NewTextHandler(&log, nil)), cancel)
		if took := time.Since(began); took < 100*time.Second || took > 101*time.Second {
			t.Errorf("stopped after %v, with messages that were delayed for 100 s", took)
		}
		if n := strings.Count(log.String(), "waiting for the rest\" in_flight=0 delayed=3"); n != 2 {
			t.Errorf("logged %d times, want after 10 s and a minute later:\n%s", n, log.String())
		}
	})
}
