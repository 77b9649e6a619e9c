package awstest

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// ErrFault is wrapped by the errors of connections that a fault broke. Faults with a response of the service (throttling,
// conflicts) are errors of the SDK.
var ErrFault = errors.New("injected fault")

// Kind names a fault.
type Kind string

// The faults. Those that apply to some operations only do nothing to others.
const (
	// Before: the connection breaks and nothing was done.
	Before Kind = "before"
	// After: the request is carried out and its response is lost.
	After Kind = "after"
	// Late: the connection breaks now and the request is carried out later, when others may have gone on. ReceiveMessage,
	// which hands something out, is carried out at once instead, as with After.
	Late Kind = "late"
	// Delay: the request is delayed, or its response is, for some time or until its context ends.
	Delay Kind = "delay"
	// Hang: no response arrives until the request's context ends.
	Hang Kind = "hang"
	// Internal: HTTP 500.
	Internal Kind = "500"
	// Unavailable: HTTP 503, nothing was done.
	Unavailable Kind = "503"
	// Throttled: ThrottlingException or ProvisionedThroughputExceededException of DynamoDB, or a transaction that was
	// cancelled for such a reason; RequestThrottled of SQS; ThrottlingException of Step Functions. Nothing was done.
	Throttled Kind = "throttled"
	// Conflict: TransactionConflictException, or TransactionCanceledException for this reason. Nothing was done. DynamoDB's
	// item writes and transactions only. A transaction whose token was sent before may get TransactionInProgressException
	// instead.
	Conflict Kind = "conflict"
	// Partial: one part of a batch is held back and reported as unprocessed (BatchGetItem, BatchWriteItem), or as failed and
	// not by the sender's fault (SQS).
	Partial Kind = "partial"
	// Stale: GetItem without ConsistentRead gets an earlier response of this connection for the same key; no item, if there
	// is none.
	Stale Kind = "stale"
	// Torn: the request is carried out, and the connection breaks in the body of the response: its status and headers
	// arrive.
	Torn Kind = "torn"
)

// Rates are probabilities from 0 to 1. A request gets at most one fault besides the delay.
type Rates struct {
	Before, After, Late, Delay, Hang, Internal, Unavailable, Throttled, Conflict, Partial, Stale, Torn float64
}

// Fault is one scheduled fault.
type Fault struct {
	// Operation is the operation with the fault ("UpdateItem"), Call the number of its request, from 1. The SDK's retries
	// are requests too.
	Operation string
	Call      int
	Kind      Kind
	// Done: the request is carried out although its sender cannot see that (Hang, Internal; Partial: the entries that SQS
	// reports as failed), or before the delay (Delay). With rates it applies to half of these faults.
	Done bool
	// By is the time of Delay and Late. Defaults to the plan's.
	By time.Duration
}

// Plan configures the faults of a connection. The zero Plan has none. The fault of the n-th request of an operation depends
// only on Seed, the operation and n, so a run with the same order of requests per operation is repeatable.
type Plan struct {
	Seed uint64
	Rates
	// DelayBy is how long a delay takes, LateBy the longest time after which a late request is carried out.
	DelayBy, LateBy time.Duration
	// Only limits the rates to these operations ("GetItem", "ReceiveMessage"). Empty = all.
	Only []string
	// Operations has other rates for some operations.
	Operations map[string]Rates
	// Schedule has faults that always happen, independent of the rates and Only.
	Schedule []Fault
}

// Faults carries out a [Plan] on connections of the SDK's clients: its Wrap goes into [Config]. One Faults may serve
// clients of several services. Its methods may be called concurrently.
type Faults struct {
	plan Plan
	late sync.WaitGroup

	mu     sync.Mutex
	outage bool
	calls  map[string]int
	counts map[string]int
	seen   map[string]*reply // responses of GetItem, by key
	tokens map[string]bool   // of transactions that were sent
}

// NewFaults makes the faults of a plan.
func NewFaults(p Plan) *Faults {
	return &Faults{plan: p, calls: map[string]int{}, counts: map[string]int{}, seen: map[string]*reply{}, tokens: map[string]bool{}}
}

// Wrap adds the faults to a connection.
func (f *Faults) Wrap(next http.RoundTripper) http.RoundTripper { return &faulty{f: f, next: next} }

// Outage cuts the connections until it is called with false: every request fails before it is sent, and responses on their
// way are lost. That simulates a partition, and a dead process, of which only earlier requests remain.
func (f *Faults) Outage(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outage = on
}

// Counts returns how often each fault was injected, by its kind; "outage" is a request that Outage stopped.
func (f *Faults) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]int, len(f.counts))
	for k, n := range f.counts {
		all[k] = n
	}
	return all
}

// Calls returns the number of requests of an operation, failed ones included.
func (f *Faults) Calls(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[operation]
}

// Wait waits until all late requests are carried out.
func (f *Faults) Wait() { f.late.Wait() }

func (f *Faults) count(kind Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[string(kind)]++
}

// cut reports, and counts, that the connections are cut.
func (f *Faults) cut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.outage {
		f.counts["outage"]++
	}
	return f.outage
}

// fate is the fault of one request.
type fate struct {
	kind   Kind // "" = nothing
	done   bool
	delay  time.Duration
	behind bool // the response is delayed
	late   time.Duration
	random *rand.Rand
}

// draw decides the fate of a request.
func (f *Faults) draw(op string) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	n := f.calls[op]
	h := fnv.New64a()
	_, _ = h.Write([]byte(op))
	x := fate{random: rand.New(rand.NewPCG(f.plan.Seed^h.Sum64(), uint64(n)))}
	for _, s := range f.plan.Schedule {
		if s.Operation == op && s.Call == n {
			x.set(s, f.plan)
		}
	}
	if x.kind != "" || !f.concerns(op) {
		return x
	}
	x.roll(f.rates(op), f.plan)
	return x
}

func (f *Faults) concerns(op string) bool {
	return len(f.plan.Only) == 0 || slices.Contains(f.plan.Only, op)
}

func (f *Faults) rates(op string) Rates {
	if r, ok := f.plan.Operations[op]; ok {
		return r
	}
	return f.plan.Rates
}

func (x *fate) set(s Fault, p Plan) {
	switch s.Kind {
	case Delay:
		x.delay, x.behind = max(s.By, 0), s.Done
		if s.By == 0 {
			x.delay = p.DelayBy
		}
	case Late:
		x.kind, x.late = Late, s.By
		if s.By == 0 {
			x.late = p.LateBy
		}
	default:
		x.kind, x.done = s.Kind, s.Done
	}
}

// roll draws all random values, even unused ones, so that a changed rate leaves the other draws alone.
func (x *fate) roll(r Rates, p Plan) {
	hit, behind := x.random.Float64() < r.Delay, x.random.IntN(2) == 0
	if hit && x.delay == 0 {
		x.delay, x.behind = p.DelayBy, behind
	}
	x.done = x.random.IntN(2) == 0
	x.late = time.Duration(x.random.Float64() * float64(p.LateBy))
	at := x.random.Float64()
	for _, o := range [...]struct {
		kind Kind
		rate float64
	}{
		{Before, r.Before},
		{After, r.After},
		{Late, r.Late},
		{Hang, r.Hang},
		{Internal, r.Internal},
		{Unavailable, r.Unavailable},
		{Throttled, r.Throttled},
		{Conflict, r.Conflict},
		{Partial, r.Partial},
		{Stale, r.Stale},
		{Torn, r.Torn},
	} {
		if at < o.rate {
			x.kind = o.kind
			return
		}
		at -= o.rate
	}
}
