// Package plan has what a scenario is made of, and makes the schedule of a run out of it: everything that chance decides,
// decided beforehand.
package plan

import (
	"fmt"
	"strconv"
	"time"
)

// Guard says whether semel is between the queue and the handler.
type Guard string

// The two ways to run a scenario.
const (
	GuardOff Guard = "off"
	GuardOn  Guard = "on"
)

// Outcome is what a run showed, or is expected to show.
type Outcome string

// The outcomes of a run. Broken: an effect was doubled, lost, or applied in the wrong order. Held: every key sent has its
// effect exactly once, or a dead letter or parked record instead of it.
const (
	Broken Outcome = "broken"
	Held   Outcome = "held"
)

// Design names a consumer: semel's own, or one of those that people write by hand.
type Design string

// The designs. Each unguarded one is the program of a well-known tutorial or design document, with its own hole.
const (
	// Plain receives, works, acks.
	Plain Design = "plain"
	// CheckLast looks the id up, works, records the id if it is not there, acks.
	CheckLast Design = "check-last"
	// CheckLastBlind is CheckLast, and records the id without the condition.
	CheckLastBlind Design = "check-last-blind"
	// SkipBusy marks the id as being worked on, and acks whatever is marked already.
	SkipBusy Design = "skip-busy"
	// MarkFirst records the id, then works, then acks; what is recorded is skipped.
	MarkFirst Design = "mark-first"
	// TTLLock takes a lock that expires and is never extended, looks the id up, works, records it.
	TTLLock Design = "ttl-lock"
	// MessageID remembers the broker's message id, without any gap: what is sent again has another id.
	MessageID Design = "message-id"
	// FailFast works a batch of items off and stops at the first bad one: the whole batch comes again.
	FailFast Design = "fail-fast"
	// LastWriter applies whatever version arrives.
	LastWriter Design = "last-writer"
	// SagaByHand does the items one after the other, and undoes what it remembers when one cannot be done.
	SagaByHand Design = "saga-by-hand"
	// DualWrite records the id, commits the order, and then sends the mail.
	DualWrite Design = "dual-write"
	// Semel is the engine, with the effect in the transaction of its record.
	Semel Design = "semel"
	// SemelKeyed is the engine with an effect at a service that honours the effect key (Idempotency-Key).
	SemelKeyed Design = "semel-keyed"
	// SemelSteps is the engine with a journal: each item of a message is a step of its own.
	SemelSteps Design = "semel-steps"
	// SemelSaga is the engine with a journal in which each step's compensation is registered before the step runs.
	SemelSaga Design = "semel-saga"
	// SemelOutbox is the engine with the mail emitted in the transaction of the order, and a relay that sends it.
	SemelOutbox Design = "semel-outbox"
)

// Scenario describes a run: plain data, from which Plan makes the schedule.
type Scenario struct {
	// Name is the scenario's on the command line. Title describes in a line what goes wrong, Asks is the question behind
	// it, Hint what to set or build.
	Name, Title, Asks, Hint string
	// Slow scenarios take more than a few seconds.
	Slow    bool
	Load    Load
	Work    Work
	Workers Workers
	Faults  []Fault
	Wire    Wire
	Designs map[Guard]Design
	Expect  map[Guard]Expect
	// Timeout bounds one run; a run that has not emptied its queue by then is an error, not a verdict.
	Timeout time.Duration
}

// Expect is what a run has to show.
type Expect struct {
	Verdict Outcome
	Figures []Figure
}

// Figure bounds one number of a run (its name in the JSON verdict). Max -1 = no bound.
type Figure struct {
	Name     string `json:"name"`
	Min, Max int
}

// Range tells a person what is expected.
func (f Figure) Range() string {
	switch f.Max {
	case f.Min:
		return strconv.Itoa(f.Min)
	case -1:
		return fmt.Sprintf("%d or more", f.Min)
	}
	return fmt.Sprintf("%d to %d", f.Min, f.Max)
}

// Exactly expects one value.
func Exactly(name string, n int) Figure { return Figure{name, n, n} }

// AtLeast expects n or more.
func AtLeast(name string, n int) Figure { return Figure{name, n, -1} }

// Load is what the producer sends.
type Load struct {
	// Orders is the number of distinct keys; Retries is how many of them the producer sends a second time, under another
	// message id, as a producer that did not see the first response does.
	Orders, Retries int
	// PerKey is how many messages of different ids each key gets at once. 0 = 1.
	PerKey int
	// Again is how many orders are sent once more, under another id, when all are done: a redriven dead-letter queue.
	Again int
	// Poison is how many orders no handler can do.
	Poison int
	// FailOnce is how many orders fail at their first try, and only then.
	FailOnce int
	// Versions is how many versions of each key are sent, in a shuffled order. 0 = none.
	Versions int
	// Items is the number of items in the batch that one message holds, each with an effect of its own; BadItems of them
	// fail until the batch is redelivered. 0 = none.
	Items, BadItems int
	// Saga: the items are the steps of a saga. In poison orders the last one can never be done: all others have to be
	// undone.
	Saga bool
	// Mail: each order has two effects, the order itself in the database and a mail by a service elsewhere.
	Mail bool
	// Rate is messages per second; 0 = all at once.
	Rate float64
	// Name is the key of the one order, as a document calls it; "" = order-0001. The log of such a scenario's workers
	// is reported line by line, with the texts and the seconds of the document. Faster is how many times as fast the
	// scenario runs as the document's program does; 0 = 1.
	Name   string
	Faster float64
	// Amount is what one order costs, in minor units of Currency (ISO 4217; JPY has none, so it is yen).
	Amount   int64
	Currency string
}

// Work is how long the handler takes for an order.
type Work struct {
	Min, Max time.Duration
	// Slow orders hang for SlowFor at their first delivery: longer than the visibility, to show an overrun. Only at the
	// first, because a plain consumer that is too slow every time never ends: each ack comes after the next delivery.
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
	// Heartbeat makes the unguarded designs extend the visibility while they work. semel always does.
	Heartbeat bool
	// MaxAttempts is how often a message is tried before it becomes a dead letter. 0 = 5.
	MaxAttempts int
	// Restart is how long after its death a worker is started again.
	Restart time.Duration
	// Scale lets the number of workers follow the backlog. Its zero value does not.
	Scale Scale
}

// Scale is target tracking: as many workers as the backlog needs, one step at a time.
type Scale struct {
	// Backlog is how many waiting messages one worker may have. 0 = no scaling.
	Backlog int
	// From is the number of workers at the start, Workers.Count the most there may be.
	From int
	// Every is the time between two decisions.
	Every time.Duration
	// GuardOn: with the guard off there are From workers all the time.
	GuardOn bool
}

// Action is what a fault does.
type Action string

// The faults that strike a process, or what all of them stand on.
const (
	// Kill is SIGKILL.
	Kill Action = "kill"
	// Freeze is SIGSTOP, and SIGCONT later: a long garbage collection, a suspended virtual machine.
	Freeze Action = "freeze"
	// Deploy replaces the process: semel is asked to drain, the others get a SIGTERM that they do not handle.
	Deploy Action = "deploy"
	// Outage lets every call to the database fail.
	Outage Action = "outage"
)

// Fault plans Count strikes at one step.
type Fault struct {
	Do    Action
	Step  Step
	Count int
	// For is how long a Freeze or an Outage lasts.
	For time.Duration
	// GuardOn: only with the guard on. All other faults are the same in both runs.
	GuardOn bool
	// ByPassage strikes a worker at its n-th passage of the step instead of at the passage of one chosen order.
	ByPassage bool
}

// Wire is what goes wrong between a worker and its queue and store: shares of the calls, from 0 to 1. The calls are drawn
// by the seed, per process and in the order of its calls.
type Wire struct {
	// ForgetAck: the queue accepts the ack, and delivers the message again all the same, as SQS documents of
	// standard queues. LoseAck: the ack arrives, its response does not.
	ForgetAck float64 `json:"forget_ack,omitempty"`
	LoseAck   float64 `json:"lose_ack,omitempty"`
	// FailExtend: the heartbeat does not arrive.
	FailExtend float64 `json:"fail_extend,omitempty"`
	// LoseCommit: completion and effect are durable, the response is lost.
	LoseCommit float64 `json:"lose_commit,omitempty"`
	// LoseEffect: the service did what it was asked, its response is lost.
	LoseEffect float64 `json:"lose_effect,omitempty"`
	// SlowStore: the store takes SlowFor longer.
	SlowStore float64       `json:"slow_store,omitempty"`
	SlowFor   time.Duration `json:"slow_for,omitempty"`
}

// Step names a moment in the life of a delivery.
type Step string

// The steps at which a worker can be struck, in the order in which a delivery passes them.
const (
	// AfterReceive: the queue handed the message out; no other process knows of it yet.
	AfterReceive Step = "after-receive"
	// AfterClaim: the store granted the key; the handler has not been called. Of the unguarded designs, those that mark an
	// id before the work pass it.
	AfterClaim Step = "after-claim"
	// BetweenEffects: one of several effects of a run is made, the next one is not.
	BetweenEffects Step = "between-effects"
	// AfterEffect: the handler did its work, and neither its completion nor its ack was written.
	AfterEffect Step = "after-effect"
	// AfterCommit: effect and completion are durable; the worker has not seen the response (guard on only).
	AfterCommit Step = "after-commit"
	// Outside: the parent strikes whatever the process is doing.
	Outside Step = "outside"
)

// sentences describe what each design does, in order.
var sentences = map[Design]string{
	Plain: "Receives, works, acks. It does not know what was done before.",
	CheckLast: "Looks the id up, works, then records it on the condition that it is new, and acks. Between look-up " +
		"and record another worker may do the same work.",
	CheckLastBlind: "Looks the id up, works, then records it without a condition, and acks. The second worker does not notice.",
	SkipBusy:       "Marks the id as in progress, works, marks it done. A message with a marked id is acked, even while its work is in progress.",
	MarkFirst:      "Records the id, then works, then acks. A recorded id is skipped, even if its work never happened.",
	TTLLock: "Takes a lock that expires and is never extended, looks the id up, works, records it, deletes the lock, " +
		"even if another worker owns it by then.",
	MessageID:  "Guards the work without a gap, by the broker's message id. A message that is sent again has another id.",
	FailFast:   "Works through the items of a message and stops at the first bad one. The whole message is redelivered, with the good items.",
	LastWriter: "Applies every version in the order of arrival.",
	Semel: "Claims the key before the work, extends its lease meanwhile, and commits effect and record in one " +
		"transaction that a late owner cannot pass.",
	SemelKeyed: "Claims the key before the work, extends its lease meanwhile, and calls the service under an effect " +
		"key that stays the same in every attempt.",
	SagaByHand: "Does the steps one after the other, and undoes them if one cannot be done. It keeps the list in its own memory.",
	DualWrite: "Records the id and commits the order in its database, then sends the mail by a service elsewhere, then acks. " +
		"If it dies in between, the mail is never sent.",
	SemelSaga: "Keeps a journal in which each step's compensation is registered before the step runs; a failed run is " +
		"undone in reverse order, by any process.",
	SemelOutbox: "Commits the mail with the order and the record, in one transaction; a relay sends it under one id.",
	SemelSteps:  "Claims the key before the work and keeps a journal, in which each item is a step with an effect key of its own.",
}

// Sentence describes what the consumer does; "" for an unknown design.
func (d Design) Sentence() string { return sentences[d] }
