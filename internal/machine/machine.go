// Package machine is semel's engine as one sans-I/O state machine. It owns the state of every delivery and decides what
// happens next. It does no I/O, reads no clock, starts no goroutine and iterates no map. Randomness comes in through
// Config.Nonce. The goroutine shell (package semel) performs its actions on real adapters, the simulator (internal/sim) on
// modelled ones: the code that is simulated is the code that runs.
//
// Reading order:
//
//   - machine.go: types
//   - step.go: dispatch
//   - delivery.go and finish.go: one delivery's life, from top to bottom
//   - item.go: the state of one delivery
//   - trace.go: trace events
//   - lease.go: heartbeat and deadlines
//   - group.go: ordered groups and local duplicates
//   - quarantine.go: keys whose runs may have killed their process
//   - limit.go: rates and pools
//   - breaker.go: a downstream that is down
//   - refused.go: writes that the store refuses for one message
//   - version.go: mode D
//   - tx.go and batch.go: modes B and C
//   - stop.go: drain
package machine

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// Mode is how a finished attempt becomes durable.
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

// Config is the machine's part of a consumer's configuration. Every field is set.
type Config struct {
	Concurrency, Batch, Lanes int
	// InFlight bounds the deliveries in flight that are not being finished or settled. Up to 2 × Batch × Lanes that are being
	// finished or settled come on top, so that they do not keep the next ones from being fetched.
	InFlight                 int
	Lease, Visibility, Guard time.Duration
	// FailBusy dead-letters duplicates of a key in progress at once; see failsBusy.
	FailBusy bool
	// Redrives: the broker moves a message to its dead-letter queue after a number of deliveries.
	Redrives               bool
	Timeout, MaxRuntime    time.Duration // Timeout 0 = none
	Grace, HardStop        time.Duration
	MaxAttempts            int
	BackoffMin, BackoffMax time.Duration
	Keep                   time.Duration
	Keeps                  Keeps
	ResultMax              int
	Limit                  int
	// Every is the time between two starts of runs, Burst how many may start at once. 0 = no such limit. PoolEvery and
	// PoolBurst limit the messages of each pool (Arrival.Pool) in the same way, PoolConcurrency how many of them run at once.
	Every, PoolEvery                  time.Duration
	Burst, PoolBurst, PoolConcurrency int
	Breaker                           BreakerConfig
	Takeover                          driver.Takeover
	Probes                            bool // a probe is configured
	Extends, Orders, Counts           bool // the queue's features
	Mode                              Mode
	JoinedAck                         bool // Open: the settlement commits with the transaction
	Batched                           bool // Open: one call of the handler gets all members of a transaction
	// AtCommit: the first delivery of a message is claimed by the write that completes it. Not with Open, versions, probes, Once
	// or a previous key; the queue counts deliveries.
	AtCommit bool
	// Park is the maximum age of a message that waits for the version before its own. 0 = no message waits.
	Park time.Duration
	// MaxAge is the maximum age of a message when its first run begins. 0 = any age.
	MaxAge time.Duration
	// Until is when the process is stopped from outside: no lease ends later. 0 = it is not.
	Until time.Duration
	// Nonce returns 128 fresh random bits.
	Nonce func() driver.Nonce
	// Trace selects the trace events that become ActionTrace actions: each costs. Nil = none.
	Trace func(TraceEvent) bool
}

// Keeps is how long a record is kept, by how its message ended. 0 = Config.Keep.
type Keeps struct{ Completed, Failed, Dropped, Released time.Duration }

// Arrival is a delivery with the key, version and pool that the shell extracted from it.
type Arrival struct {
	driver.Delivery
	Key driver.Key
	// NewKey is the message's key by the new recipe while the recipe changes. Zero = it does not change.
	NewKey      driver.Key
	Fingerprint driver.Fingerprint
	// BodyDigest and WholeBody are those of the claim.
	BodyDigest driver.BodyDigest
	WholeBody  bool
	// KeyErr: it has no usable key. Unkeyed: run it without protection all the same.
	KeyErr  error
	Unkeyed bool
	// Pool names the messages that share a limit. "" = none.
	Pool string
	// Version and After are those of the claim. BadVersion: KeyErr is about the version.
	Version, After driver.Version
	BadVersion     bool
	// Age is the age of the message when it arrived, or UnknownAge.
	Age time.Duration
}

// EventKind names what happened outside.
type EventKind uint8

// The events. Each but Wake and Drain completes one action.
const (
	Wake       EventKind = iota // time passed
	Received                    // Arrivals, Err
	Claimed                     // Lane, Items, Grants, Sent, Err
	Ran                         // Item, Result; Items and Results: of a batch
	Finished                    // Lane, Items, Outcomes, Err; Result: the culprit's result after its effects were refused
	Settled                     // Items, Outcomes, Err
	Extended                    // Items, Outcomes, Sent, Err: leases
	Prolonged                   // Items, Outcomes, Sent, Err: visibility
	Begun                       // Lane, Items, Grants, Err: an open transaction
	Committed                   // Lane, Items, Err
	RolledBack                  // Lane
	Drain                       // stop: return what has not started
)

// Event is one thing that happened. Items is the slice of the action that it completes.
type Event struct {
	Kind     EventKind
	Lane     int
	Arrivals []Arrival
	// Claims, Works and Settlements return the action's slice, if the shell no longer needs it.
	Claims      []driver.Claim
	Works       []driver.Work
	Settlements []driver.Settlement
	Items       []*Item
	Item        *Item
	Grants      []driver.Grant
	Outcomes    []driver.Outcome
	Result      Result
	// Results are those of the members of a batch, in their order. None: the batch failed as a whole, with Result.
	Results []Result
	Sent    time.Duration // when the request was sent: deadlines count from before it
	Err     error
}

// outcome returns the outcome of the i-th item: Unknown when the event has none for it.
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
	Deferred          // not a failure: no attempt is spent
	Dropped           // completed on purpose without effect
	Parked            // the outcome is unknown: an operator has to resolve it
	Transient         // Open: the transaction was refused, which is not the message's failure: it is repeated
	Unavailable       // the downstream's failure: no attempt is spent, and the breaker counts it
)

// ProbeResult is what a probe found.
type ProbeResult uint8

// The results of a probe.
const (
	NotProbed ProbeResult = iota
	ProbeApplied
	ProbeNotApplied
	ProbeUnknown
)

// Result is the result of a run or a probe.
type Result struct {
	Class      Class
	NotApplied bool // the run failed and definitely had no effect
	After      time.Duration
	HasAfter   bool
	Value      []byte
	Effects    any
	Emit       []driver.Message
	Probe      ProbeResult
	// Compensated: Permanent, and all its effects were undone.
	Compensated bool
	// Rule overrides the configuration's attempts and backoff for this failure. Nil = no override.
	Rule *Rule
	Err  error
}

// Rule is the retry rule of a class of failures. A field that is 0 is the configuration's.
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
	ActionRun                        // Item, Job; Items: all members of the call (Batched)
	ActionCancel                     // Item, Cause
	ActionFinish                     // Lane, Items, Works
	ActionSettle                     // Items, Settlements
	ActionExtend                     // Items, Holds, Lease
	ActionProlong                    // Items, Receipts
	ActionBegin                      // Lane, Items, Claims
	ActionCommit                     // Lane, Items, Works
	ActionRollback                   // Lane
	ActionTrace                      // TraceEvent
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

// Job is the input of a run. The item itself belongs to the machine.
type Job struct {
	Hold        driver.Hold
	Attempt     int
	Deadline    time.Duration
	Unknown     bool
	Probe       bool // call the probe, not the handler
	Unprotected bool
	InTx        bool // inside the lane's open transaction
	AtCommit    bool // its commit claims it: it has neither a token nor a lease
	Lane        int
}

// Action is one thing to do. Its slices belong to the shell until the event that completes it was stepped.
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
	running         int           // running handlers of its items
	finishAt        time.Duration // when the present finish flush was sent
	trip            time.Duration // how long the last one took
	gathering       time.Duration // since when an item waits to be finished; 0 = none does
	// apart holds ends that are written one at a time, next to the flush. writing: one of them is being written. refused and
	// noResponse count the flushes in a row that were refused, or got no response (refused.go).
	apart               deque
	writing             bool
	refused, noResponse int
	responses           int // Machine.responses when the first flush of noResponse was sent
	claimMost           int // bounds the next claim flush, after one failed; 0 = no bound
	tx                  txLane
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
	running    int           // running handlers
	ending     int           // items that are being finished and settled
	avgHandler time.Duration // how long handlers take, a moving average
	anyHandler bool          // a handler has returned: avgHandler is known
	lastStart  time.Duration // of a handler
	claimable  int           // items queued for a claim
	leaders    map[driver.Key]*Item
	groups     map[string]*group
	lanes      []lane

	quarantine  deque         // items to run in quarantine: just claimed, or waiting without a claim for their turn
	releasing   int           // items of them whose claims are being released
	quarantined *Item         // the item that is claimed or run in quarantine: nothing else starts
	turnAt      time.Duration // since when nothing else starts, for the next item in quarantine; 0 = it is the others' turn
	restUntil   time.Duration // the others' turn lasts at least until then
	turnWait    time.Duration // how long a turn waits for running handlers to return

	receiving bool
	asked     int  // deliveries, by the present receive
	backlog   bool // the last receive returned as many deliveries as it asked for
	receiveAt time.Duration
	recvTries int

	settles   deque
	settling  bool
	settleBuf buffer[driver.Settlement]
	settleAt  time.Duration
	settleErr int // settle flushes in a row that failed as a whole
	extending bool
	extendBy  time.Duration // by the present extension
	prolong   bool          // a visibility extension is in flight

	down      bool // the store does not respond
	downAt    time.Duration
	downTries int
	refusals  int // writes in a row that definitely did not happen
	// How often the store responded, how many of its responses confirmed a write, and how many a durable end.
	responses, writes, ends int

	pools   map[string]*pool
	idle    []idlePool    // in the order in which they became idle
	blocked []*pool       // pools with waiting items
	spare   []*pool       // the buffer that blocked had before, empty
	poolAt  time.Duration // when an item of one of them may start
	waiting int           // items that wait for their pool
	// following counts the local duplicates of running items.
	following int
	starts    bucket
	brk       breaker
	opened    bool // the breaker, in this step
	succeeded bool // a run has succeeded
	failing   []failing

	beatAt   time.Duration
	scanAt   time.Duration
	draining bool
	graceAt  time.Duration
	graced   bool
	stopped  bool

	free, freed []*Item // freed: in this step; reused from the next step on
}

const never = time.Duration(1<<63 - 1)

// New returns a machine. The shell has completed and checked the configuration.
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

// Running returns the number of running handlers.
func (m *Machine) Running() int { return m.running }

// InFlight returns the number of deliveries in flight.
func (m *Machine) InFlight() int { return m.inFlight }
