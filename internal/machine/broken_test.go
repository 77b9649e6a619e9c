package machine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// newDeployment makes a machine that detects a broken deployment by three keys.
func newDeployment(t *testing.T, change func(*machine.Config)) *fixture {
	return newFixture(t, func(c *machine.Config) {
		c.Trace, c.Concurrency, c.MaxAttempts = traceAll, 1, 1
		c.Breaker = machine.BreakerConfig{Failures: 5, Keys: 3, OpenMin: time.Second, OpenMax: 8 * time.Second}
		if change != nil {
			change(c)
		}
	})
}

// one receives a message, runs it and writes its end.
func (r *fixture) one(key string, res machine.Result) {
	r.t.Helper()
	r.receive(message("m-"+key, key))
	r.claim(nil)
	r.ran(key, res)
	r.finish(driver.Applied)
	if r.has(machine.ActionSettle) > 0 {
		r.settle(driver.Applied)
	}
}

// pauses returns the breaker's trace events.
func (r *fixture) pauses() (all []machine.TraceEvent) {
	for _, a := range r.open {
		if a.Kind == machine.ActionTrace && a.TraceEvent.Kind == machine.TracePaused {
			all = append(all, a.TraceEvent)
		}
	}
	return all
}

// failsOf returns a failure for the common reason. Each names its message in another way.
func failsOf(key string) machine.Result {
	text := map[string]string{
		"k1": "handler exited 1: order k1: no such table: inbox_1", "k2": "handler exited 2: order 'Bob the second': no such table: inbox_2",
		"k3": "handler exited 1: order bob@example.com: no such table: a/b\n  line 3",
	}[key]
	if text == "" {
		text = fmt.Sprintf("handler exited 1: order %s: no such table: inbox_9", key)
	}
	return machine.Result{Class: machine.Failed, NotApplied: true, Err: errors.New(text)}
}

// TestBrokenDeploymentPauses: the runs of three keys fail for one reason and none succeeds. Nothing else is spent until one
// does; one message at a time is tried.
func TestBrokenDeploymentPauses(t *testing.T) {
	r := newDeployment(t, nil)
	for _, k := range []string{"k1", "k2"} {
		r.one(k, failsOf(k))
	}
	if r.m.Open() {
		t.Fatal("two keys are no deployment")
	}
	r.one("k3", failsOf("k3"))
	paused := r.pauses()
	if !r.m.Open() || len(paused) != 1 || paused[0].Err == nil || !strings.Contains(paused[0].Reason, "none has succeeded since the start") {
		t.Fatalf("open %v, notes %+v", r.m.Open(), paused)
	}
	r.receive(message("late", "late")) // it was on its way
	if s := r.settle(driver.Applied).Settlements; s[0].Action != driver.Defer {
		t.Fatalf("settled %+v", s)
	}
	for n, pause := range []int{1, 2, 4, 8, 8} {
		r.none(machine.ActionReceive, "nothing is fetched")
		r.pass(time.Duration(pause*9) * time.Second / 8)
		if m := r.take(machine.ActionReceive); m.Max != 1 {
			t.Fatalf("%d are fetched to try with", m.Max)
		}
		key := fmt.Sprint("try", string(rune('a'+n)))
		r.step(machine.Event{Kind: machine.Received, Arrivals: deadLetters(key), Sent: r.now})
		r.claim(nil)
		r.none(machine.ActionReceive, "one at a time")
		r.ran(key, failsOf(key))
		r.finish(driver.Applied)
		r.settle(driver.Applied)
	}
	r.pass(9 * time.Second)
	r.one("good", machine.Result{})
	if r.notes(machine.TraceResumed) != 1 || r.m.Load().Breaker != "closed" {
		t.Fatalf("load %+v after a success", r.m.Load())
	}
	for _, k := range []string{"k4", "k5", "k6", "k7"} {
		r.one(k, failsOf(k))
	}
	if r.m.Open() {
		t.Fatal("a run has succeeded: these are bad messages")
	}
}

// TestBadMessagesAreNoBrokenDeployment: these do not pause a worker.
func TestBadMessagesAreNoBrokenDeployment(t *testing.T) {
	for name, f := range map[string]func(*fixture){
		"one message again and again": func(r *fixture) {
			for range 9 {
				r.one("k1", failsOf("k1"))
			}
		},
		"a success came first": func(r *fixture) {
			r.one("good", machine.Result{})
			for _, k := range []string{"k1", "k2", "k3", "k4"} {
				r.one(k, failsOf(k))
			}
		},
		"another reason each": func(r *fixture) {
			for i, text := range strings.Fields("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda") {
				r.one(fmt.Sprint("k", i), machine.Result{Class: machine.Permanent, NotApplied: true, Err: errors.New(text)})
			}
		},
		"deferred": func(r *fixture) {
			for i := range 9 {
				r.one(fmt.Sprint("k", i), machine.Result{Class: machine.Deferred, NotApplied: true, Err: errBoom})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newDeployment(t, nil)
			if f(r); r.m.Open() {
				t.Errorf("paused: %+v", r.pauses())
			}
		})
	}
}

// TestBrokenDeploymentByEffects: handlers that return nil, and whose effects the store refuses, have not succeeded.
func TestBrokenDeploymentByEffects(t *testing.T) {
	r := newDeployment(t, func(c *machine.Config) { c.Mode = machine.Joined })
	for _, k := range []string{"k1", "k2", "k3"} {
		if r.m.Open() {
			t.Fatal("paused too early")
		}
		r.receive(message("m-"+k, k))
		r.claim(nil)
		r.ran(k, machine.Result{Effects: k})
		a := r.take(machine.ActionFinish)
		r.step(machine.Event{Kind: machine.Finished, Items: a.Items, Err: &driver.ItemError{Index: 0, Err: errors.New("no such table")}})
		r.finish(driver.Applied)
	}
	if !r.m.Open() {
		t.Fatal("three keys failed for one reason")
	}
}

// TestFirstFailuresAreNoBrokenDeployment: first failures, whose retry may succeed, do not pause the worker. Second ones do.
func TestFirstFailuresAreNoBrokenDeployment(t *testing.T) {
	r := newDeployment(t, func(c *machine.Config) { c.MaxAttempts = 10 })
	for i := range 9 {
		key := fmt.Sprint("k", i)
		r.one(key, failsOf(key))
	}
	if r.m.Open() {
		t.Fatal("paused after first failures")
	}
	for _, key := range []string{"k1", "k2", "k3"} {
		r.receive(message("m-"+key, key))
		r.claim(func(_ string, g *driver.Grant) { g.Failures, g.Attempt = 1, 2 })
		r.ran(key, failsOf(key))
		r.finish(driver.Applied)
		r.settle(driver.Applied)
	}
	if !r.m.Open() {
		t.Fatal("three keys failed twice")
	}
}
