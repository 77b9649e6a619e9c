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

// This file is the lease of one call of Do: how long it lasts, who extends it, and what is written when it has ended.

// slowClaims is how often a claim is repeated whose answer came when its lease had ended.
const slowClaims = 3

// late reports that a claim sent then was answered too late to run under it. The first slow answer may be an accident,
// and the next lease whole; then whatever is left of the lease has to do.
func (o *once) late(sent time.Time, slow *int) bool {
	took := time.Since(sent)
	if took <= o.lease/2 {
		return false
	}
	*slow++
	return *slow == 1 || took >= o.believed(sent)
}

// tooSlow gives a claim back under which nothing can run, and tells why.
func (o *once) tooSlow(ctx context.Context, g driver.Grant, sent time.Time) error {
	took := time.Since(sent)
	err := o.end(ctx, sent, driver.Finish{
		Hold: g.Hold, Final: driver.Release, Ran: driver.Unstarted, Keep: o.retention, Reason: "the store is slower than the lease",
	})
	return errors.Join(fmt.Errorf("%w before the lease had ended: the store took %v, WithLease is %v: use a lease of at least %v",
		ErrNoResponse, took.Round(time.Millisecond), o.lease, (4*took).Round(time.Millisecond)), err)
}

// leaseFrom is how long a lease lasts that is asked for at sent.
func (o *once) leaseFrom(sent time.Time) time.Duration {
	if o.until.IsZero() {
		return o.lease
	}
	return max(min(o.lease, o.until.Sub(sent)), time.Millisecond)
}

// believed is for how long a lease is believed to stand, from before the request that made it.
func (o *once) believed(sent time.Time) time.Duration { return o.leaseFrom(sent) * 9 / 10 }

// heartbeat extends the lease every third of it, and cancels the run when it is lost or has passed by our own clock.
// The returned function stops it and tells when the lease was renewed last.
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
			bounded, cancel := context.WithTimeout(ctx, min(o.lease/3, left)) // no longer: the run has to be stopped in time
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

// end records the end of the run; unanswered, it is the same write again until there is an answer or the lease has
// passed (law 4). It outlives the caller's context for that long. An end that comes later has the time of a round trip:
// the store decides whether the record is still ours.
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
