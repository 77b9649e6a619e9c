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

// responder completes every action of a machine, like a store that treats one key, bad, in a way of its own.
type responder struct {
	*fixture
	done        map[string]int // ends by key and kind
	flushes     int
	deadLetters []*driver.DeadLetter
	// end is the error of a flush of ends with the bad key at place at, claim that of such claims.
	end   func(works []driver.Work, at int) error
	claim func(claims []driver.Claim, at int, g *driver.Grant) error
	// commit, if set, is the error of an open transaction with the bad key.
	commit  func(items []*machine.Item, at int) error
	settle  func(key string) driver.Outcome
	paused  int
	plain   bool // handlers have their effects elsewhere
	reasons []string
}

var (
	errRefused = fmt.Errorf("internal error of the server: %w", driver.ErrNotCommitted)
	errSilent  = errors.New("no response in time")
	errDisk    = fmt.Errorf("%w: %w: disk full", driver.ErrNotCommitted, driver.ErrOutage)
)

func traceAll(machine.TraceEvent) bool { return true }

func newResponder(t *testing.T, change func(*machine.Config)) *responder {
	w := &responder{done: map[string]int{}}
	w.fixture = newFixture(t, func(c *machine.Config) {
		c.Trace, c.Batch, c.Concurrency, c.InFlight = traceAll, 10, 10, 30
		c.BackoffMin, c.BackoffMax = 100*time.Millisecond, time.Second
		if change != nil {
			change(c)
		}
	})
	return w
}

const bad = "bad"

func place[T any](list []T, key func(T) string) int {
	for i := range list {
		if key(list[i]) == bad {
			return i
		}
	}
	return -1
}

// serve completes all open actions, and those that follow, but receives.
func (w *responder) serve() {
	w.t.Helper()
	for n := 0; n < len(w.open); {
		a := w.open[n]
		if a.Kind == machine.ActionReceive {
			n++
			continue
		}
		w.open = append(w.open[:n:n], w.open[n+1:]...)
		w.complete(a)
		n = 0
	}
}

func (w *responder) complete(a machine.Action) {
	ev := machine.Event{Lane: a.Lane, Items: a.Items, Item: a.Item, Sent: w.now}
	switch a.Kind {
	case machine.ActionClaim, machine.ActionBegin:
		ev.Kind = machine.Claimed
		if a.Kind == machine.ActionBegin {
			ev.Kind = machine.Begun
		}
		ev.Grants = make([]driver.Grant, len(a.Claims))
		for i, c := range a.Claims {
			ev.Grants[i] = w.acquired(c)
			ev.Grants[i].Failures = w.done[c.Key.Raw+" release"]
		}
		if at := place(a.Claims, func(c driver.Claim) string { return c.Key.Raw }); at >= 0 && w.claim != nil {
			ev.Err = w.claim(a.Claims, at, &ev.Grants[at])
		}
	case machine.ActionRun:
		if ev.Kind = machine.Ran; !w.plain {
			ev.Result.Effects = a.Item.Key.Raw
		}
		for range a.Items {
			ev.Results = append(ev.Results, machine.Result{})
		}
	case machine.ActionFinish:
		ev.Kind = machine.Finished
		w.flushes++
		if at := place(a.Works, func(k driver.Work) string { return k.Finish.Hold.Key.Raw }); at >= 0 && w.end != nil && a.Works[at].Finish.Final == driver.Complete {
			ev.Err = w.end(a.Works, at)
		}
		if ev.Err == nil {
			ev.Outcomes = applied(len(a.Works))
			for i := range a.Works {
				w.ended(&a.Works[i])
			}
		}
	case machine.ActionCommit:
		ev.Kind = machine.Committed
		if at := place(a.Items, func(it *machine.Item) string { return it.Key.Raw }); at >= 0 && w.commit != nil {
			ev.Err = w.commit(a.Items, at)
		}
		if ev.Err == nil {
			for i := range a.Works {
				w.ended(&a.Works[i])
			}
		}
	case machine.ActionRollback:
		ev.Kind = machine.RolledBack
	case machine.ActionSettle:
		ev.Kind, ev.Outcomes = machine.Settled, applied(len(a.Items))
		for i, s := range a.Settlements {
			if s.DeadLetter != nil {
				w.deadLetters = append(w.deadLetters, s.DeadLetter)
			}
			if w.settle != nil {
				ev.Outcomes[i] = w.settle(a.Items[i].Key.Raw)
			}
		}
	case machine.ActionExtend, machine.ActionProlong:
		ev.Kind, ev.Outcomes = machine.Extended, applied(len(a.Items))
		if a.Kind == machine.ActionProlong {
			ev.Kind = machine.Prolonged
		}
	case machine.ActionTrace:
		w.paused += b2i(a.TraceEvent.Kind == machine.TracePaused)
		if a.TraceEvent.Kind == machine.TraceDecided && a.TraceEvent.Item.Key.Raw == bad {
			w.reasons = append(w.reasons, a.TraceEvent.Reason)
		}
		return
	default:
		return
	}
	w.step(ev)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *responder) ended(k *driver.Work) {
	w.done[k.Finish.Hold.Key.Raw+" "+k.Finish.Final.String()]++
}

// live lets time pass, and completes the actions that follow.
func (w *responder) live(d time.Duration) {
	w.t.Helper()
	for end := w.now + d; w.now < end; {
		w.serve()
		w.pass(min(5*time.Millisecond, end-w.now))
	}
	w.serve()
}

// send delivers messages. The bad one is redelivered whenever it was returned.
func (w *responder) send(count int, keys ...string) {
	w.t.Helper()
	var as []machine.Arrival
	for _, k := range keys {
		a := message(fmt.Sprintf("m-%s-%d-%v", k, count, w.now), k)
		a.Count = count
		as = append(as, a)
	}
	w.receive(as...)
}

// healthy counts the keys of messages whose effects were committed.
func (w *responder) healthy() (n int) {
	for k := range w.done {
		n += b2i(strings.HasSuffix(k, " complete") && !strings.HasPrefix(k, bad))
	}
	return n
}
