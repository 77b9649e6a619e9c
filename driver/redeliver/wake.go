package redeliver

import (
	"context"
	"sync"
	"time"
)

// Wake wakes the receives of a queue that wait for a change. The zero Wake is ready. Its methods may be called concurrently.
type Wake struct {
	mu sync.Mutex
	c  chan struct{}
}

// C returns a channel that the next Signal closes. A receive gets it before it looks for messages, and misses no change then.
func (w *Wake) C() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == nil {
		w.c = make(chan struct{})
	}
	return w.c
}

// Signal wakes all that wait.
func (w *Wake) Signal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c != nil {
		close(w.c)
		w.c = nil
	}
}

// Wait waits until d has passed or wake is closed (nil = never). It returns the error of ctx if that ends first.
func Wait(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-wake:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
