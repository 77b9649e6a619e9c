package lab

import (
	"fmt"
	"time"
)

// Guard says whether semel stands between the queue and the handler.
type Guard string

// The two ways to run a scenario.
const (
	GuardOff Guard = "off"
	GuardOn  Guard = "on"
)

// Outcome is what a run showed, or is expected to show.
type Outcome string

// The outcomes of a run. Broken: an effect was doubled or lost. Held: every key sent has its effect exactly once, or a
// letter or parked record instead of it.
const (
	Broken Outcome = "broken"
	Held   Outcome = "held"
)

// Step names a moment in the life of a delivery.
type Step string

// The steps at which a worker can be killed, in the order in which a delivery passes them.
const (
	// AfterReceive: the queue handed the message out; nobody else knows of it yet.
	AfterReceive Step = "after-receive"
	// AfterClaim: the store granted the key; the handler has not been called (guard on only).
	AfterClaim Step = "after-claim"
	// AfterEffect: the handler did its work, and neither its completion nor its ack was written.
	AfterEffect Step = "after-effect"
	// AfterCommit: effect and completion are durable; the worker has not seen the answer (guard on only).
	AfterCommit Step = "after-commit"
	// Outside: the parent kills the process whatever it is doing.
	Outside Step = "outside"
)

// Scenario describes a run: plain data, from which Plan makes the schedule.
type Scenario struct {
	Name    string
	Load    Load
	Work    Work
	Workers Workers
	Kills   []KillRule
	Expect  map[Guard]Outcome
	// Timeout bounds one run; a run that has not emptied its queue by then is an error, not a verdict.
	Timeout time.Duration
}

// Load is what the producer sends.
type Load struct {
	// Orders is the number of distinct keys; Retries is how many of them the producer sends a second time, under another
	// message id, as one does that did not see the first answer.
	Orders, Retries int
	// Rate is messages per second; 0 = all at once.
	Rate float64
	// Amount is what one order costs, in minor units of Currency (ISO 4217; JPY has none, so it is yen).
	Amount   int64
	Currency string
}

// Work is how long the handler takes for an order.
type Work struct {
	Min, Max time.Duration
	// Slow orders hang for SlowFor at their first delivery: longer than the visibility, to show an overrun. Only at the
	// first, because a plain consumer that is too slow every time never ends: each ack comes after the next hand-out.
	Slow    int
	SlowFor time.Duration
}

// Workers describes the worker processes.
type Workers struct {
	Count int
	// Concurrency is the number of handlers at once in a guarded worker. The unguarded one is the common loop: one
	// message after the other out of a buffer of Prefetch.
	Concurrency, Prefetch int
	// Visibility is the queue's visibility timeout.
	Visibility time.Duration
	// Restart is how long after its death a worker is started again.
	Restart time.Duration
}

// KillRule plans Count kills at one step.
type KillRule struct {
	Step  Step
	Count int
	// GuardOn: only with the guard on. All other kills are the same in both runs.
	GuardOn bool
	// ByPassage kills a worker at its n-th passage of the step instead of at the passage of one chosen order.
	ByPassage bool
}

// UsageError reports an option that cannot be used: which flag, and how to mend it.
type UsageError struct{ Flag, Problem, Mend string }

func (e *UsageError) Error() string { return fmt.Sprintf("--%s: %s (%s)", e.Flag, e.Problem, e.Mend) }
