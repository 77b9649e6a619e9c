package semel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/idle"
)

// This file has the lease of one call of Do: its length, the heartbeat that extends it, and the write that ends it.

// slowClaims is how many claims are sent when each response arrives after the lease has ended.
const slowClaims = 3

// late reports whether the response to a claim came too late to run under its lease. After the first slow response the claim
// is repeated, in the hope of a whole lease. After that, any time left on the lease must do.
func (o *once) late(sent time.Time, slow *int) bool {
	took := time.Since(sent)
	if took <= o.lease/2 {
		return false
	}
	*slow++
	return *slow == 1 || took >= o.believed(sent)
}

// tooSlow releases a claim under which nothing can run, and returns the error for it.
func (o *once) tooSlow(ctx context.Context, g driver.Grant, sent time.Time) error {
	took := time.Since(sent)
	err := o.end(ctx, sent, driver.Finish{
		Hold: g.Hold, Final: driver.Release, Ran: driver.Unstarted, Keep: o.retention, Reason: "the store is slower than the lease",
	})
	return errors.Join(fmt.Errorf("%w before the lease had ended: the store took %v, WithLease is %v: use a lease of at least %v",
		ErrNoResponse, took.Round(time.Millisecond), o.lease, (4*took).Round(time.Millisecond)), err)
}

// leaseFrom returns how long a lease lasts that is requested at sent.
func (o *once) leaseFrom(sent time.Time) time.Duration {
	if o.until.IsZero() {
		return o.lease
	}
	return max(min(o.lease, o.until.Sub(sent)), time.Millisecond)
}

// believed returns how long a lease is treated as held, counted from before the request for it.
func (o *once) believed(sent time.Time) time.Duration { return o.leaseFrom(sent) * 9 / 10 }

// heartbeat extends the lease every third of it, and cancels the run when the lease is lost or has ended by this process's
// clock. The returned function waits until the heartbeat has stopped, and returns when the lease was last renewed.
func (o *once) heartbeat(
	ctx context.Context, stop context.CancelCauseFunc, h driver.Hold, sent time.Time, lease *leaseClock,
) func() time.Time {
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			left := time.Until(sent.Add(o.believed(sent)))
			if !idle.For(ctx, min(o.lease/3, max(left, 0))) {
				return
			}
			if left = time.Until(sent.Add(o.believed(sent))); left <= 0 {
				stop(ErrFenced)
				return
			}
			began := time.Now()
			bounded, cancel := context.WithTimeout(ctx, min(o.lease/3, left)) // no longer: the run must be stopped in time
			out, err := o.store.Extend(bounded, o.leaseFrom(began), h)
			cancel()
			switch {
			case err != nil || len(out) != 1 || out[0] == driver.Unknown:
			case out[0] == driver.Lost:
				stop(ErrFenced)
				return
			default:
				sent = began
				lease.set(sent.Sub(lease.began) + o.believed(sent))
			}
		}
	}()
	return func() time.Time { wg.Wait(); return sent }
}

// end records the outcome of the run. Without a response it repeats the same write until the store responds or the lease has
// ended (law 4), even if the caller's context is done. If the lease has already ended, there is time for one round trip: the
// store decides whether the record is still ours.
func (o *once) end(ctx context.Context, renewed time.Time, f driver.Finish) error {
	each := max(o.lease/3, 100*time.Millisecond) // a write that hangs is repeated while the lease stands
	deadline, soonest := renewed.Add(o.lease), time.Now().Add(each)
	if deadline.Before(soonest) {
		deadline = soonest
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		bounded, done := context.WithTimeout(ctx, each)
		out, err := o.store.Finish(bounded, f)
		done()
		if err == nil && len(out) == 1 {
			switch out[0] {
			case driver.Applied, driver.Recovered, driver.Settled:
				return nil
			case driver.Lost:
				return ErrFenced
			}
		}
		if !idle.For(ctx, pause) {
			return errors.Join(ErrNoResponse, err)
		}
	}
}
