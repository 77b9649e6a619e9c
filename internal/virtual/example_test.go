package virtual_test

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/internal/virtual"
)

// mail simulates a producer who sends one message, and sends it again every second until it is confirmed. The receiver
// must take it once.
type mail struct {
	virtual.World
	events    virtual.Events[func()]
	taken     int
	confirmed bool
}

const lost = 0 // the fault: the response of an operation

func (w *mail) Simulate(s virtual.Schedule, t *virtual.Trace) (int, *virtual.Violation) {
	w.events.Reset()
	*w = mail{World: w.World, events: w.events}
	w.Begin(s, 1, t)
	w.events.Add(0, w.send)
	for w.Broken == nil && w.events.Len() > 0 {
		at, do := w.events.Next()
		w.Now = at
		do()
	}
	return w.Operations, w.Broken
}

func (w *mail) send() {
	if w.confirmed {
		return
	}
	_, planted := w.Operation()
	arrives := w.Now + w.Between(time.Millisecond, 20*time.Millisecond)
	w.events.Add(arrives, func() {
		w.take()
		w.confirmed = !(planted && w.Fault == lost) && (w.Faultless || w.Chance(900))
	})
	w.events.Add(w.Now+time.Second, w.send)
}

func (w *mail) take() {
	w.Log(-1, "the message arrives")
	if w.taken > 0 && w.Mistake == 0 {
		return // a duplicate
	}
	if w.taken++; w.taken > 1 {
		w.Fail("once", -1, "it was taken %d times", w.taken)
	}
}

func Example() {
	kind := &virtual.Kind{
		Prefix: "mail: ", New: func() virtual.Simulator { return &mail{} }, Done: func(virtual.Simulator) { /* it counts nothing */ },
		Faults: []string{"a lost response"}, Mistakes: []virtual.Mistake{{}, {Name: "duplicates are taken", Invariants: "once"}},
	}
	x := &virtual.Explorer{Context: context.Background(), First: 1, Workers: 1, Progress: func(s string) { fmt.Println(s) }}
	x.FindMistakes(kind)
	x.CrashPoints(kind, 100)
	x.Seeds(kind, 1000)
	// Output:
	// mutant "mail: duplicates are taken": found true after 60 seeds (once)
	// mail: 100 crash points, 0 violations
	// mail: 1000 seeds, 0 violations
}
