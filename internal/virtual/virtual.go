package virtual

import (
	"context"
	"sync"
	"time"

	"github.com/semel-dev/semel/internal/idle"
)

// Time is the clock of code that waits.
type Time interface {
	// Now returns the present. Only differences between its results count, not the date.
	Now() time.Time
	// Pause waits for d, or for the end of ctx.
	Pause(ctx context.Context, d time.Duration)
	// Beat calls f every d, concurrently with its caller, until f returns false or stop is called. stop waits for a call in
	// flight.
	Beat(d time.Duration, f func() (more bool)) (stop func())
}

type key struct{}

// With returns a context whose time is t.
func With(ctx context.Context, t Time) context.Context { return context.WithValue(ctx, key{}, t) }

// Of returns the context's time, or the machine's.
func Of(ctx context.Context) Time {
	if t, ok := ctx.Value(key{}).(Time); ok {
		return t
	}
	return Real{}
}

// Real is the machine's time.
type Real struct{}

// Now is time.Now.
func (Real) Now() time.Time { return time.Now() }

// Pause sleeps.
func (Real) Pause(ctx context.Context, d time.Duration) { idle.For(ctx, d) }

// Beat calls f from a goroutine.
func (Real) Beat(d time.Duration, f func() bool) (stop func()) {
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if !f() {
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		done.Wait()
	})
}
