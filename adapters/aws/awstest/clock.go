package awstest

import (
	"sync"
	"time"
)

// Clock is the clock of a fake service. Its methods may be called concurrently.
type Clock struct {
	mu      sync.Mutex
	frozen  bool
	at      time.Time     // frozen: the time
	ahead   time.Duration // else: how far ahead of the machine's clock
	changed chan struct{}
}

// System is the machine's clock, or the bubble's inside of testing/synctest.
func System() *Clock { return &Clock{changed: make(chan struct{})} }

// Frozen is a clock that stands still until it is advanced.
func Frozen(at time.Time) *Clock { return &Clock{frozen: true, at: at, changed: make(chan struct{})} }

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen {
		return c.at
	}
	return time.Now().Add(c.ahead)
}

// Advance moves the clock, back when d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	c.ahead += d
	close(c.changed)
	c.changed = make(chan struct{})
}

// Wait waits until the clock may have reached at, because it was advanced or the time passed by itself. It may return early,
// so check Now. stop ends it.
func (c *Clock) Wait(stop <-chan struct{}, at time.Time) { c.WaitEither(stop, nil, at) }

// WaitEither is Wait with two reasons to stop. Either may be nil.
func (c *Clock) WaitEither(stop, other <-chan struct{}, at time.Time) {
	c.mu.Lock()
	changed, frozen := c.changed, c.frozen
	left := at.Sub(c.at)
	if !frozen {
		left = at.Sub(time.Now().Add(c.ahead))
	}
	c.mu.Unlock()
	if left <= 0 {
		return
	}
	var passed <-chan time.Time
	if !frozen {
		t := time.NewTimer(left)
		defer t.Stop()
		passed = t.C
	}
	select {
	case <-passed:
	case <-changed:
	case <-stop:
	case <-other:
	}
}
