package cli

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// This file has the two reasons for a worker to stop by itself.

const (
	emptyEvery = 50 * time.Millisecond
	// Counts that are approximate lag behind: they have to say nothing several times, over a while.
	emptyEveryApprox = time.Second
	emptyApprox      = 6
	// When nothing is visible and the queue is not empty, a person may wonder what is waited for.
	waitingAfter, waitingEvery = 10 * time.Second, time.Minute
)

func tick(ctx context.Context, t *time.Ticker) bool {
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// watchEmpty calls stop when the queue has nothing visible, in flight or delayed. Twice in a row, because a
// message that is being returned may for a moment be in none of the three; six times, over five seconds, on queues that
// count approximately.
func watchEmpty(ctx context.Context, q driver.QueueInspector, log *slog.Logger, stop context.CancelCauseFunc) {
	t := time.NewTicker(emptyEvery)
	defer t.Stop()
	approx, tell := false, time.Now().Add(waitingAfter)
	for empty := 0; tick(ctx, t); {
		st, err := q.Stats(ctx)
		if st.Approximate && !approx {
			approx, empty = true, 0
			t.Reset(emptyEveryApprox)
		}
		switch {
		case err != nil:
			if ctx.Err() == nil {
				log.Warn("cannot tell whether the queue is empty", "err", err)
			}
			empty = 0
		case st.Empty():
			empty++
		default:
			empty = 0
		}
		switch now := time.Now(); {
		case err != nil || st.Empty() || st.Visible > 0:
			tell = now.Add(waitingAfter)
		case now.After(tell):
			tell = now.Add(waitingEvery)
			log.Info("--until-empty: nothing is visible, and the queue is not empty: waiting for the rest",
				"in_flight", st.InFlight, "delayed", st.Delayed)
		}
		if empty == 2 && !approx || empty == emptyApprox {
			stop(errEmpty)
			return
		}
	}
}

// idleWatch knows when something came last, and what runs.
type idleWatch struct {
	mu      sync.Mutex
	last    time.Time
	running int
}

func (i *idleWatch) events() semel.Events {
	note := func(change int) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.last = time.Now()
		i.running += change
	}
	return semel.Events{
		Delivery: func(e semel.Event) {
			if e.Kind == semel.EventReceived {
				note(0)
			}
		},
		Attempt: func(e semel.Event) {
			switch e.Kind {
			case semel.EventStarted:
				note(1)
			case semel.EventEnded:
				note(-1)
			default:
			}
		},
	}
}

func (i *idleWatch) since() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running > 0 {
		return 0
	}
	return time.Since(i.last)
}

// watchIdle stops the worker when nothing came for --idle-timeout and nothing runs.
func (s *shift) watchIdle(ctx context.Context) {
	limit := time.Duration(s.w.IdleTimeout)
	s.idle.mu.Lock()
	if s.idle.last.IsZero() {
		s.idle.last = time.Now()
	}
	s.idle.mu.Unlock()
	for {
		left := limit - s.idle.since()
		if left <= 0 {
			s.stop(errIdle)
			return
		}
		t := time.NewTimer(max(left, 10*time.Millisecond))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}
