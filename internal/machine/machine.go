// Package machine is semel's engine as one sans-I/O state machine: it owns every delivery's state and decides what
// happens next. It does no I/O, reads no clock, starts no goroutine and iterates no map; randomness comes in through
// Config.Nonce. The goroutine shell (package semel) performs its actions against real adapters, the simulator
// (internal/sim) against modelled ones, so that what is simulated is what runs.
//
// Reading order: machine.go (nouns), step.go (dispatch and pump), delivery.go and finish.go (one delivery's life, top to
// bottom), item.go (its bookkeeping), note.go (what observers are told), lease.go (heartbeat and deadlines), group.go (ordering
// and twins), solo.go (keys that kill their process), limit.go (rates and shares), breaker.go (a downstream that is not
// there), busy.go (duplicates of a key in progress), stop.go (drain), tx.go (modes B and C), refused.go (what the store refuses
// to write for one message).
package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// Mode says how a finished attempt becomes durable.
type Mode uint8

// The modes.
const (
	// Separate: the record is finished in the store, then the delivery is settled in the queue (mode A).
	Separate Mode = iota
	// Joined: record, effects, messages and settlement are one write (mode A2 on one database).
	Joined
	// Open: the handler runs inside the transaction that holds the claims (modes B and C).
	Open
)

// Config is the machine's part of a consumer's configuration; every field is set.
type Config struct {
	Concurrency, Batch, Lanes int
	// InFlight bounds the deliveries in flight whose end is still to come. Those that are being finished and settled, twice
	// Batch × Lanes of them at most, come on top: they must not keep the next ones from being fetched.
	InFlight                 int
	Lease, Visibility, Guard time.Duration
	// FailBusy dead-letters duplicates of a key in progress at once; see failsBusy.
	FailBusy bool
	// Redrives: the broker moves a message away after a number of deliveries.
	Redrives               bool
	Timeout, MaxRuntime    time.Duration // Timeout 0 = none
	Grace, HardStop        time.Duration
	MaxAttempts            int
	BackoffMin, BackoffMax time.Duration
	Keep                   time.Duration
	Keeps                  Keeps
	ResultMax              int
	Limit                  int
	// Every is the time between two starts of runs, Burst how many may come at once; 0 = no such limit. Pool* say the same,
	// and how many may run at once, of the messages of each pool (Arrival.Pool).
	Every, PoolEvery                  time.Duration
	Burst, PoolBurst, PoolConcurrency int
	Breaker                           BreakerConfig
	Takeover                          driver.Takeover
	Probes                            bool // a probe is configured
	Extends, Orders, Counts           bool // the queue's features
	Mode                              Mode
	JoinedAck                         bool // Open: the settlement commits with the transaction
	Batched                           bool // Open: one call of the handler gets all members of a transaction
	// Park is how old a message may become that waits for the version before its own; 0 = none waits.
	Park time.Duration
	// MaxAge is how old a message may become before it is begun; 0 = any age.
	MaxAge time.Duration
	// Until is when the process is stopped from outside: no lease ends later. 0 = it is not.
	Until time.Duration
	// Nonce returns 128 fresh random bits.
	Nonce func() driver.Nonce
	// Trace selects the notes that become ActionTrace actions: each costs. Nil = none.
	Trace func(TraceEvent) bool
}

// Arrival is a delivery with what the shell took out of it.
type Arrival struct {
	driver.Delivery
	Key driver.Key
	// NewKey is the key's other identity while its recipe changes; zero = there is none.
	NewKey      driver.Key
	Fingerprint driver.Fingerprint
	// BodyDigest and WholeBody are those of the claim.
	BodyDigest driver.BodyDigest
	WholeBody  bool
	// KeyErr: it has no usable key. Unkeyed: run it without protection all the same.
	KeyErr  error
	Unkeyed bool
	// Pool names those who share a limit; "" = there is none.
	Pool string
	// Version and After are those of the claim. BadVersion: KeyErr is about the version.
	Version, After driver.Version
	BadVersion     bool
	// Age is how old the message was when it came; UnknownAge = nobody knows.
	Age time.Duration
}

// EventKind names what happened outside.
type EventKind uint8

// The events: each but Wake and Drain answers one action.
const (
	Wake       EventKind = iota // time passed
	Received                    // Arrivals, Err
	Claimed                     // Lane, Items, Grants, Sent, Err
	Ran                         // Item, Result; Items and Results: of a batch
	Finished                    // Lane, Items, Outcomes, Err; Result: what it makes of a culprit's refused effects
	Settled                     // Items, Outcomes, Err
	Extended                    // Items, Outcomes, Sent, Err: leases
	Prolonged                   // Items, Outcomes, Sent, Err: visibility
	Begun                       // Lane, Items, Grants, Err: an open transaction
	Committed                   // Lane, Items, Err
	RolledBack                  // Lane
	Drain                       // stop: return what has not started
)

// Event is one thing that happened. Items is the slice of the action that it answers.
type Event struct {
	Kind     EventKind
	Lane     int
	Arrivals []Arrival
	// Claims, Works and Settlements give the action's slice back, if the shell is done with it.
	Claims      []driver.Claim
	Works       []driver.Work
	Settlements []driver.Settlement
	Items       []*Item
	Item        *Item
	Grants      []driver.Grant
	Outcomes    []driver.Outcome
	Result      Result
	// Results are those of the members of a batch, in their order; none: it failed as a whole, and Result tells how.
	Results []Result
	Sent    time.Duration // when the request was sent: deadlines count from before it
	Err     error
}

// outcome answers the i-th item: Unknown when the answer does not name it.
func (e *Event) outcome(i int) driver.Outcome {
	if i < len(e.Outcomes) {
		return e.Outcomes[i]
	}
	return driver.Unknown
}

// Class is how a run ended.
type Class uint8

// The classes of results.
const (
	OK          Class = iota
	Failed            // to be retried
	Permanent         // no retry can fix it
	Deferred          // nobody's failure: no attempt is spent
	Dropped           // completed on purpose without effect
	Parked            // nobody can tell what happened: set aside for a person
	Transient         // Open: the transaction was refused, which is nobody's failure: it is repeated
	Unavailable       // the downstream's failure: no attempt is spent, and the breaker counts it
)

// ProbeAnswer is what a probe said.
type ProbeAnswer uint8

// The answers.
const (
	NotProbed ProbeAnswer = iota
	ProbeApplied
	ProbeNotApplied
	ProbeUnknown
)

// Result is what a run or a probe came to.
type Result struct {
	Class      Class
	NotApplied bool // a failure that certainly had no effect
	After      time.Duration
	HasAfter   bool
	Value      []byte
	Effects    any
	Emit       []driver.Message
	Probe      ProbeAnswer
	// Compensated: Permanent, and everything that was done was undone.
	Compensated bool
	// Rule replaces the configuration's attempts and backoff for this failure; nil = it does not.
	Rule *Rule
	Err  error
}

// Rule is what a class of failures has of its own; a field that is 0 is the configuration's.
type Rule struct {
	MaxAttempts            int
	BackoffMin, BackoffMax time.Duration
}

// ActionKind names what the shell has to do.
type ActionKind uint8

// The actions.
const (
	ActionReceive  ActionKind = iota // Max
	ActionClaim                      // Lane, Items, Claims
	ActionRun                        // Item, Job; Items: all that one call gets (Batched)
	ActionCancel                     // Item, Cause
	ActionFinish                     // Lane, Items, Works
	ActionSettle                     // Items, Settlements
	ActionExtend                     // Items, Holds, Lease
	ActionProlong                    // Items, Receipts
	ActionBegin                      // Lane, Items, Claims
	ActionCommit                     // Lane, Items, Works
	ActionRollback                   // Lane
	ActionTrace                      // Note
	ActionRenewed                    // Item, Until: the lease of its present run was extended
	ActionStop                       // Stuck: Run may return
)

// Cause is why a run is cancelled.
type Cause uint8

// The causes.
const (
	NoCause Cause = iota
	CauseFenced
	CauseTimeout
	CauseDraining
)

// Job is what a run needs to know; the item itself is the machine's.
type Job struct {
	Hold        driver.Hold
	Attempt     int
	Deadline    time.Duration
	Unknown     bool
	Probe       bool // ask, do not run
	Unprotected bool
	InTx        bool // inside the lane's open transaction
	Lane        int
}

// Action is one thing to do. Slices belong to the shell until the answering event was stepped.
type Action struct {
	Kind        ActionKind
	Lane        int
	Max         int
	Item        *Item
	Items       []*Item
	Claims      []driver.Claim
	Works       []driver.Work
	Settlements []driver.Settlement
	Holds       []driver.Hold
	Lease       time.Duration
	Receipts    []any
	Job         Job
	Cause       Cause
	Until       time.Duration
	TraceEvent  TraceEvent
	Stuck       int
}

type lane struct {
	claims          deque
	claiming        bool
	finishes        deque
	finishing       bool
	claimBuf        buffer[driver.Claim]
	finishBuf       buffer[driver.Work]
	claimAt, doneAt time.Duration // not before
	claimTries      int           // claims (or, in Open, transactions) in a row that failed
	tries           int           // finishes in a row that failed
	running         int           // handlers of its items that run
	finishAt        time.Duration // when the present finish flush was sent
	trip            time.Duration // how long the last one took
	gathering       time.Duration // something waits to be finished since; 0 = nothing
	// apart are ends to be written one at a time, beside the flush; writing tells that one is being written. refused and
	// unheard count the flushes in a row that were refused, or not answered (refused.go).
	apart            deque
	writing          bool
	refused, unheard int
	answers          int // Machine.answers when the first of the unheard was sent
	claimMost        int // bounds the next claim flush, after one failed; 0 = it does not
	tx               txLane
}

// Machine is the engine. It is used from one goroutine.
type Machine struct {
	cfg    Config
	now    time.Duration
	out    []Action
	counts Counts

	head, tail *Item // in flight, in order of arrival
	inFlight   int
	busy       int           // slots taken: claiming, ready, running
	running    int           // handlers that run
	ending     int           // items that are being finished and settled
	pace       time.Duration // how long handlers take, a moving average
	paced      bool          // one has returned
	lastStart  time.Duration // of a handler
	claimable  int           // items queued for a claim
	leaders    map[driver.Key]*Item
	groups     map[string]*group
	lanes      []lane
	ready      deque         // to be run in quarantine: just claimed, or waiting unclaimed for their turn
	suspects   int           // whose claims are being given up
	alone      *Item         // claims or runs in quarantine: nothing else starts
	turnAt     time.Duration // since when nothing else starts, for the next of ready; 0 = it is the others' turn
	restUntil  time.Duration // the others' turn lasts at least until then
	hush       time.Duration // how long a turn waits for what runs to end

	receiving bool
	asked     int  // deliveries, by the present receive
	backlog   bool // the last receive brought all that was asked for
	receiveAt time.Duration
	recvTries int

	settles   deque
	settling  bool
	settleBuf buffer[driver.Settlement]
	settleAt  time.Duration
	settleErr int // settle flushes in a row of which nothing was answered
	extending bool
	extendBy  time.Duration // by the present extension
	prolong   bool          // a visibility extension is under way

	down      bool // the store does not answer
	downAt    time.Duration
	downTries int
	refusals  int // writes in a row that certainly did not happen
	// How often the store answered, how many of its answers tell of a write that it made, and of an end that it made durable.
	answers, writes, ends int

	pools   map[string]*pool
	idle    []idlePool    // in the order in which they became idle
	blocked []*pool       // somebody waits in them
	poolAt  time.Duration // one of them may go on
	waiting int           // items that wait for their pool
	// following counts twins of those that run.
	following int
	starts    bucket
	brk       breaker
	opened    bool // the breaker, in this step
	succeeded bool // a run
	failing   []failing

	beatAt   time.Duration
	scanAt   time.Duration
	draining bool
	graceAt  time.Duration
	graced   bool
	stopped  bool

	free, limbo []*Item
}

const never = time.Duration(1<<63 - 1)

// New makes a machine. The configuration is complete and valid: the shell sees to it.
func New(cfg Config) *Machine {
	m := &Machine{
		cfg: cfg, leaders: make(map[driver.Key]*Item, cfg.InFlight), groups: map[string]*group{},
		lanes: make([]lane, cfg.Lanes), beatAt: never, scanAt: never,
		pools: map[string]*pool{}, poolAt: never,
	}
	return m
}

// Counts returns the summary so far.
func (m *Machine) Counts() Counts { return m.counts }

// Running is the number of handlers that run.
func (m *Machine) Running() int { return m.running }

// InFlight is the number of deliveries in flight.
func (m *Machine) InFlight() int { return m.inFlight }
