package worker

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/semel-dev/semel"
)

// breaker keeps runs away from a downstream that is not there. While it is open messages are deferred without spending
// an attempt; when its time is over one run goes through and decides whether it closes or stays open for twice as long.
//
// It differs from the usual breakers in two points, which is why it is our own: one failure opens it, because the
// handler said what is wrong, and it tells the caller how long to wait.
type breaker struct {
	log      *slog.Logger
	min, max time.Duration
	now      func() time.Time

	mu      sync.Mutex
	until   time.Time
	pause   time.Duration // 0 = closed
	probing bool
	reason  string
}

// errOpen is why a message was deferred by an open breaker.
var errOpen = errors.New("the breaker is open")

func newBreaker(log *slog.Logger) *breaker {
	return &breaker{log: log, min: time.Second, max: time.Minute, now: time.Now}
}

// admit returns nil when a run may go ahead; else the error that defers it. Whoever is admitted calls done.
func (b *breaker) admit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pause == 0 {
		return nil
	}
	left := b.until.Sub(b.now())
	if left <= 0 && !b.probing {
		b.probing = true
		return nil
	}
	// Those behind a probe come back soon after it; a little spread, by the pause, keeps them from coming all at once.
	return semel.Deferred(withDetail(errOpen, b.reason), max(left, b.min/4))
}

// ok closes the breaker.
func (b *breaker) ok() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pause > 0 {
		b.log.Info("breaker closed", "was", b.reason)
	}
	b.pause, b.probing = 0, false
}

// cancelled lets the next one probe: this run said nothing about the downstream.
func (b *breaker) cancelled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// trip opens the breaker, or keeps it open for twice as long when the probe failed, and returns the pause. wait is what
// the downstream asked for, 0 = nothing.
func (b *breaker) trip(reason string, wait time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	switch {
	case b.pause == 0:
		b.pause = b.min
	case b.probing:
		b.pause = min(2*b.pause, b.max)
	default: // a run from before it opened
		return max(b.until.Sub(now), b.min)
	}
	b.probing, b.reason = false, reason
	pause := max(b.pause, min(wait, 10*b.max))
	b.until = now.Add(pause)
	b.log.Error("breaker open: nothing is run for now", "for", pause, "reason", reason)
	return pause
}
