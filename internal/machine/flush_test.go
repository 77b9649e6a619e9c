package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// fast completes rounds of a batch in which every flush takes 8 ms and handlers no time. It leaves a round running, with the
// next batch waiting.
func fast(t *testing.T) *fixture {
	r := newFixture(t, func(c *machine.Config) { c.Concurrency, c.Batch, c.InFlight = 10, 10, 30 })
	n := 0
	for range 4 {
		for n < 40 && r.has(machine.ActionReceive) > 0 && r.m.InFlight() < 20 {
			var as []machine.Arrival
			for range 10 {
				n++
				as = append(as, message(fmt.Sprint(n), fmt.Sprint("k", n)))
			}
			r.receive(as...)
		}
		if n == 40 {
			break
		}
		r.round(0)
	}
	for r.has(machine.ActionClaim) > 0 {
		r.claim(nil)
	}
	return r
}

// round claims, runs and finishes as many items as possible.
func (r *fixture) round(takes time.Duration) {
	r.t.Helper()
	for r.has(machine.ActionClaim) > 0 && r.has(machine.ActionRun) == 0 {
		r.claim(nil)
	}
	r.now += takes
	for _, k := range r.running() {
		r.ran(k, machine.Result{})
	}
	for r.has(machine.ActionFinish) > 0 {
		r.now += 8 * time.Millisecond
		r.finish(driver.Applied)
	}
	for r.has(machine.ActionSettle) > 0 {
		r.settle(driver.Applied)
	}
}

// running lists the keys whose handlers run.
func (r *fixture) running() (keys []string) {
	for i := range r.open {
		if r.open[i].Kind == machine.ActionRun {
			keys = append(keys, r.open[i].Item.Key.Raw)
		}
	}
	return keys
}

func TestFlushWaitsForHandlersThatAreAboutToReturn(t *testing.T) {
	r := fast(t)
	keys := r.running()
	for _, k := range keys[:9] {
		r.ran(k, machine.Result{})
		r.none(machine.ActionFinish, "the others of the batch are about to return")
		r.none(machine.ActionClaim, "the slots of a batch become free one by one")
	}
	r.ran(keys[9], machine.Result{})
	if a := r.take(machine.ActionFinish); len(a.Works) != 10 {
		t.Errorf("the flush carries %d works", len(a.Works))
	}
	if a := r.take(machine.ActionClaim); len(a.Claims) != 10 {
		t.Errorf("the claim carries %d keys", len(a.Claims))
	}
}

func TestFlushDoesNotWaitLong(t *testing.T) {
	r := fast(t)
	r.ran(r.running()[0], machine.Result{})
	r.none(machine.ActionFinish, "the others of the batch are about to return")
	began := r.now
	r.pass(r.m.Next() - r.now)
	if n := r.has(machine.ActionFinish); n != 1 || r.now-began > 2*time.Millisecond {
		t.Errorf("%d flushes after %v, a quarter of a round trip of 8 ms", n, r.now-began)
	}
}

// If handlers take longer than a flush, nothing waits for them.
func TestFlushDoesNotWaitForSlowHandlers(t *testing.T) {
	r := fast(t)
	for r.m.InFlight() > 0 {
		r.round(40 * time.Millisecond)
		if r.has(machine.ActionReceive) > 0 {
			r.receive()
		}
	}
	r.receive(message("a", "a"), message("b", "b"))
	r.claim(nil)
	r.ran("a", machine.Result{})
	if r.has(machine.ActionFinish) != 1 {
		t.Error("the end of a waits for b, which will take its time")
	}
}

// What is being finished and settled makes room for the next batch, within bounds.
func TestEndsDoNotKeepTheNextFromBeingFetched(t *testing.T) {
	r := newFixture(t, func(c *machine.Config) { c.Concurrency, c.Batch, c.InFlight = 2, 2, 4 })
	n := 0
	for range 20 {
		if r.has(machine.ActionReceive) == 0 {
			break
		}
		a := r.take(machine.ActionReceive)
		as := make([]machine.Arrival, a.Max)
		for i := range as {
			n++
			as[i] = message(fmt.Sprint(n), fmt.Sprint("k", n))
		}
		r.step(machine.Event{Kind: machine.Received, Arrivals: as, Sent: r.now})
		for r.has(machine.ActionClaim) > 0 {
			r.claim(nil)
			for _, k := range r.running() {
				r.ran(k, machine.Result{})
			}
		}
	}
	// The finish flush stays open: 4 that are not finished, and twice a batch that are.
	if got := r.m.InFlight(); got != 8 {
		t.Errorf("%d in flight, wanted 4 and twice a batch of 2", got)
	}
}
