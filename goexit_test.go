package semel_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
)

// A handler that ends its goroutine (as FailNow of a test does) is a failure, and costs neither its slot nor the drain.
func TestGoexitIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			if runs.Add(1) <= 2 {
				runtime.Goexit()
			}
			return nil
		}), func(c *semel.Config) { c.Concurrency = 1 })
		r.send(msg("a"), msg("b"))
		r.start()
		if s := r.after(5 * time.Minute); s.Effects != 2 || s.Retried != 2 || !r.record("a").State.Terminal() {
			t.Errorf("%d runs, summary %+v", runs.Load(), s)
		}
	})
}

func TestGoexitOfAProbeParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			runs++
			return context.Canceled
		}), func(c *semel.Config) {
			c.Takeover = semel.Probe
			c.Probe = func(context.Context, *semel.Attempt) (semel.ProbeResult, error) {
				runtime.Goexit()
				return semel.ProbeNotApplied, nil
			}
		})
		r.send(msg("a"))
		r.start()
		if s := r.after(5 * time.Minute); runs != 1 || s.Rejected+s.Uncertain != 1 || len(r.deadLetters()) != 1 {
			t.Errorf("%d runs, summary %+v", runs, s)
		}
	})
}
