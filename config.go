package semel

import (
	"context"
	"log/slog"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// The nouns that programs meet are the adapters' own: see package driver for their contracts.
type (
	// Message is what a sender sent.
	Message = driver.Message
	// Key is what must take effect once.
	Key = driver.Key
	// Queue hands out deliveries.
	Queue = driver.Queue
	// Store keeps the idempotency records.
	Store = driver.Store
	// Statements are SQL effects that commit with the record: the T of InTx that needs no open transaction.
	Statements = driver.Statements
	// Fingerprint is the hash of the meaningful payload with the id of its recipe.
	Fingerprint = driver.Fingerprint
	// Takeover says what happens to a run whose outcome nobody knows.
	Takeover = driver.Takeover
	// DeadLetter is a message set aside for a person.
	DeadLetter = driver.DeadLetter
)

// The takeover policies, from the mildest to the strictest.
const (
	// Resume runs the handler again with the same effect key. The default.
	Resume = driver.Resume
	// Probe asks Config.Probe whether the effect happened before it runs again.
	Probe = driver.Probe
	// Once never runs again on its own: the key is parked as uncertain, for a person.
	Once = driver.Once
)

// BusyPolicy says what becomes of a duplicate whose key is in progress: another message runs under it, or waits for its next
// attempt.
type BusyPolicy uint8

// The policies for duplicates of a key in progress.
const (
	// BusyDefer puts the duplicate back until the lease of the run ends. Then it is replayed, or takes over.
	BusyDefer BusyPolicy = iota
	// BusyFail moves the duplicate to the dead-letter queue at once (kind busy), so that it does not come again and again. It is
	// never just acked: the run may still fail. A redrive drops it when the key is completed, and sends it again when not.
	//
	// What it gives up: dead letters that somebody has to look at or redrive. Redeliveries of the running message itself are
	// deferred all the same, so a run that dies is repeated. Messages of an ordered group, messages that were sent again from a
	// dead letter, and messages without an ID are deferred, too. Not with Versions.
	BusyFail
)

// ProbeResult answers the question whether an effect happened.
type ProbeResult uint8

// The answers of a probe.
const (
	// ProbeUnknown: it cannot be told. The key is parked for a person.
	ProbeUnknown ProbeResult = iota
	// ProbeApplied: it happened; the probe set the result with Attempt.SetResult, if there is one.
	ProbeApplied
	// ProbeNotApplied: it did not happen, and no earlier attempt can make it happen any more.
	ProbeNotApplied
)

// ProbeFunc asks the outside world whether the effect of a key happened. It gets the attempt that would run.
type ProbeFunc func(ctx context.Context, a *Attempt) (ProbeResult, error)

// Config describes a consumer. Only Queue, Store and Handler are needed; the zero value of everything else is the
// documented default.
type Config struct {
	// Queue hands out the messages, Store keeps the records. Who opened them closes them.
	Queue Queue
	Store Store
	// Handler does the work: a HandlerFunc, or InTx for effects that commit with the record.
	Handler Handler

	// Consumer names the scope of the keys: two consumers handle the same message once each. Defaults to the queue's
	// name.
	Consumer string
	// Tenant narrows the scope of a key further. Defaults to none.
	Tenant func(m *Message) string
	// Key is what must take effect once. Defaults to key.ByID.
	Key key.Func
	// PreviousKey is how keys were named before Key or Consumer was changed: both identities are claimed while it is set.
	// Defaults to none.
	PreviousKey *PreviousKey
	// AllowUnkeyed runs messages without a key unprotected, and counts them; not with InTx, and not on a queue that does not
	// count deliveries. Defaults to false: they become dead letters.
	AllowUnkeyed bool
	// Fingerprint guards against one key with two payloads. Defaults to none.
	Fingerprint key.FingerprintFunc
	// Versions makes keys entities whose messages replace each other: key.ByVersion, key.ByTimestamp, key.BySequence. Defaults to nil:
	// each key takes effect once.
	Versions *key.Versions

	// Takeover says what happens to a run whose outcome nobody knows. Defaults to Resume.
	Takeover Takeover
	// Probe is asked before every run that follows a doubt, when Takeover is Probe (where it is required).
	Probe ProbeFunc

	// Busy says what becomes of a duplicate that comes while another message of its key is in progress. Defaults to BusyDefer.
	Busy BusyPolicy

	// Concurrency is the number of handlers that run at once, 100,000 at most. Only so many keys are claimed, so for full
	// batches of fast handlers it should be Batch × Committers or more. Defaults to 16; to Batch × Committers for InTx with
	// *Statements, because such handlers are over in no time. It does not bound handlers in open transactions (InTx with
	// any other type, InTxBatch): of those one runs per committer.
	Concurrency int
	// Batch bounds how many items one claim or commit carries, 100,000 at most; one Receive and one settlement carry up to
	// a batch for every committer. Nothing is fetched ahead of slow handlers (50 ms; half a second for those of one open
	// transaction), because what waits here is kept from other workers. Defaults to 100.
	Batch int
	// Committers is the number of claims and commits under way at once, sharded by key; with open transactions it is the
	// number of those. Defaults to 1.
	Committers int

	// Visibility is how long a delivery is kept from others without a heartbeat. Defaults to 30 s. The lease in the
	// store is 0.9 of it, the heartbeat a third of the lease.
	Visibility time.Duration
	// Timeout cancels a run; it counts as failed. Defaults to none: the heartbeat keeps long runs alive. In an open
	// transaction (InTx with *sql.Tx or pgx.Tx) it is at most 0.9 of what the store allows one to take (its MaxTx).
	Timeout time.Duration
	// MaxRuntime is the hard limit of a run: it is cancelled, and its lease no longer extended. Defaults to 15 min.
	MaxRuntime time.Duration
	// Grace is how long running handlers may take when the consumer stops, before they are cancelled. Defaults to 25 s.
	// What has not started is returned at once.
	Grace time.Duration

	// Rate bounds how many runs are started in a second. Defaults to no limit.
	Rate Rate
	// PerGroup bounds the runs of each group of messages, a tenant's say. Defaults to no limit.
	PerGroup GroupLimit

	// MaxAttempts is the number of failed runs after which a message becomes a dead letter. Defaults to 5.
	MaxAttempts int
	// Backoff bounds the delay before the next attempt: at least Min, doubling up to Max, with jitter within the two.
	Backoff Backoff
	// Retry says otherwise for classes of failures; the first rule that matches decides. Defaults to none.
	Retry []RetryRule
	// Breaker keeps runs away from a downstream that is not there. Its zero value opens after five errors in a row that are
	// marked Unavailable.
	Breaker Breaker
	// Retention is how long a record outlives its message; it must cover the horizon of late duplicates: how late the queue
	// can deliver a copy (its Horizon) and ProducerRetries. Defaults to 14 days, and to the horizon where that is longer.
	Retention time.Duration
	// Retain says otherwise by how a message ended. Defaults to Retention for all.
	Retain Retain
	// ProducerRetries is how long producers go on sending the same thing. Defaults to 0: for no longer than the queue itself
	// can bring it again.
	ProducerRetries time.Duration
	// MaxAge is how long after it was sent a message may still be begun, its delay included. One that is older becomes a
	// dead letter ("too old") without a run. A key that was begun before goes on however old its message is, and so does a
	// message that was sent again from a dead letter; messages of which nobody knows when they were sent have no age. Compares
	// the sender's clock, or the broker's, with this one's. Defaults to 0: any age.
	MaxAge time.Duration
	// Until is when this process is stopped or stands still for certain, whatever it does: the deadline of a Lambda
	// invocation. No lease reaches beyond it, because nobody could renew it. Defaults to the zero time: it is not.
	Until time.Time
	// LongTerm is how long a record stays EXPIRED after its retention: without result and fingerprint, but with key and token.
	// A duplicate that comes in that time becomes a dead letter of kind late, for a person to decide on; it neither runs nor
	// is it dropped. The store keeps the period, and the sweeps of all workers obey it. 24 hours or more; not with Versions;
	// the store must be a driver.LongTerm (DynamoDB is none: use a longer Retention there). Defaults to 0: a duplicate that
	// comes after Retention runs.
	LongTerm time.Duration
	// ResultMax is the largest result that is stored, in bytes; of a larger one only its size and digest are kept.
	// Defaults to 64 KiB.
	ResultMax int
	// Limit stops the consumer after so many deliveries. Defaults to 0: no limit.
	Limit int

	// Middleware is called around every run, the first outermost.
	Middleware []Middleware
	// Events observes. Defaults to nothing.
	Events Events
	// Logger gets an error for each dead letter and each panic (with its stack), a warning for each failure that is repeated
	// and each doubt whether an effect happened, and the normal course of every message at debug level. Each line carries
	// worker, queue and consumer. Defaults to slog.Default(); slog.New(slog.DiscardHandler) is silent.
	Logger *slog.Logger
}
