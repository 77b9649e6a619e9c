package semel

import (
	"context"
	"sync"
	"time"
)

// runContext is a run's context, made when somebody first looks at it: most handlers never wait for it, and a real one
// costs three allocations a message. It behaves as context.WithCancelCause(parent) does; context.Cause works, and
// contexts derived from it need no goroutine, because Value and Done come from a real one.
type runContext struct {
	parent  context.Context
	attempt *Attempt // whose run it is; nil when it is that of a batch
	lease   leaseClock

	mu    sync.Mutex
	inner context.Context
	stop  context.CancelCauseFunc
	cause error // why it ended, when it ended before it was made
}

func (c *runContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.stop = context.WithCancelCause(c.parent)
		if c.cause != nil {
			c.stop(c.cause)
		}
	}
	return c.inner
}

// end cancels it. The first cause stays. It may come before the run began and after it ended.
func (c *runContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
	if c.stop != nil {
		c.stop(cause)
	}
}

// ended tells why it was cancelled; nil when it was not.
func (c *runContext) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

func (c *runContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *runContext) Done() <-chan struct{}       { return c.made().Done() }
func (c *runContext) Err() error                  { return c.made().Err() }

func (c *runContext) Value(key any) any {
	if key == (attemptKey{}) {
		return c.attempt
	}
	return c.made().Value(key)
}
