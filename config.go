package semel

import (
	"context"
	"log/slog"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// Types that programs share with adapters. Package driver has their contracts.
type (
	// Message is a message as its sender sent it.
	Message = driver.Message
	// Key identifies the operation that must take effect once.
	Key = driver.Key
	// Queue delivers messages.
	Queue = driver.Queue
	// Store keeps the idempotency records.
	Store = driver.Store
	// Statements are SQL effects that commit with the record: the T of InTx that needs no open transaction.
	Statements = driver.Statements
	// Fingerprint is the hash of the payload's relevant parts, with the id of its recipe.
	Fingerprint = driver.Fingerprint
	// Takeover is the policy for a key whose earlier run has an unknown outcome.
	Takeover = driver.Takeover
	// DeadLetter is a message that was set aside for a person.
	DeadLetter = driver.DeadLetter
)

// The takeover policies, from the mildest to the strictest.
const (
	// Resume runs the handler again with the same effect key. The default.
	Resume = driver.Resume
	// Probe asks Config.Probe whether the effect happened before it runs again.
	Probe = driver.Probe
	// Once does not run the handler again: the key is parked as uncertain, for a person.
	Once = driver.Once
)

// BusyPolicy is the policy for a duplicate whose key is in progress: another message of the key runs, or waits for its next
// attempt.
type BusyPolicy uint8

// The policies for duplicates of a key in progress.
const (
	// BusyDefer returns the duplicate to the queue until the lease of the run ends. Then it is replayed, or takes over.
	BusyDefer BusyPolicy = iota
	// BusyFail moves the duplicate to the dead-letter queue at once (kind busy), so that it is not redelivered over and over.
	// It is not acked, because the run may still fail. A redrive drops the dead letter if the key is completed, and sends it
	// again if not.
	//
	// The cost is dead letters that somebody has to look at or redrive. Some deliveries are deferred all the same:
	// redeliveries of the running message itself (so a run that crashes is repeated), messages of an ordered group, messages
	// that were redriven from a dead letter, and messages without an ID. BusyFail cannot be combined with Versions.
	BusyFail
)

// ProbeResult reports whether an effect happened.
type ProbeResult uint8

// The results of a probe.
const (
	// ProbeUnknown: the probe cannot tell. The key is parked for a person.
	ProbeUnknown ProbeResult = iota
	// ProbeApplied: the effect happened. The probe has set its result, if any, with Attempt.SetResult.
	ProbeApplied
	// ProbeNotApplied: the effect did not happen, and no earlier attempt can make it happen any more.
	ProbeNotApplied
)

// ProbeFunc asks the downstream whether the effect of a key happened. It gets the attempt that would run.
type ProbeFunc func(ctx context.Context, a *Attempt) (ProbeResult, error)

// Config describes a consumer. Only Queue, Store and Handler are required. The zero value of every other field is the
// documented default.
type Config struct {
	// Queue delivers the messages, Store keeps the records. The caller closes both after Run has returned.
	Queue Queue
	Store Store
	// Handler does the work: a HandlerFunc, or InTx for effects that commit with the record.
	Handler Handler

	// Consumer names the scope of the keys: two consumers handle the same message once each. Defaults to the queue's
	// name.
	Consumer string
	// Tenant narrows the scope of a key further. Defaults to none.
	Tenant func(m *Message) string
	// Key returns the key of a message. Prefer one that names the business operation. Defaults to key.ByID.
	Key key.Func
	// PreviousKey describes the keys from before Key or Consumer was changed. While it is set, each message is claimed under
	// both keys. Defaults to none.
	PreviousKey *PreviousKey
	// AllowUnkeyed runs messages without a key unprotected, and counts them. It cannot be combined with InTx, nor with a queue
	// that does not count deliveries. Defaults to false: such messages become dead letters.
	AllowUnkeyed bool
	// Fingerprint detects one key with two payloads. Defaults to none.
	Fingerprint key.FingerprintFunc
	// Versions makes each key an entity whose messages replace each other: key.ByVersion, key.ByTimestamp, key.BySequence.
	// Defaults to nil: each key takes effect once.
	Versions *key.Versions

	// Settings are settings that all workers of a consumer must share and that the engine cannot compare, by name: how keys are
	// made, for example. Workers report them to the store with Takeover and Retention (driver.WorkerLog), and semel doctor and the
	// console warn of workers that differ. Defaults to none.
	Settings map[string]string

	// Takeover is the policy for a key whose earlier run has an unknown outcome. Defaults to Resume.
	Takeover Takeover
	// ClaimAtCommit claims the first delivery of a message together with its effects: the write that completes the record also
	// makes it, and only a look for an earlier record comes before the run. It saves a write for each message. It needs an InTx
	// handler that queues its effects (*Statements), a database with SQL as store, and a queue that counts deliveries. Other
	// deliveries are claimed before they run, as without it, and so is a failed run before it is recorded.
	//
	// Such a run holds nothing that others see: its Token is 0, LeaseUntil is zero, Store is nil. If two copies of a message run
	// at once, the effects of one are dropped. Whatever a handler does besides queueing effects can then happen more than once,
	// and no record shows it. New refuses it with Probe, Once, Versions, PreviousKey and handlers in open transactions.
	// Defaults to false.
	ClaimAtCommit bool
	// Probe is called before every run that follows a run with an unknown outcome, if Takeover is Probe. It is required then.
	Probe ProbeFunc

	// Busy is the policy for a duplicate that arrives while another message of its key is in progress. Defaults to BusyDefer.
	Busy BusyPolicy

	// Concurrency is the number of handlers that run at once, 100,000 at most. No more keys than this are claimed, so for full
	// batches of fast handlers it should be Batch × Committers or more. Defaults to 16, and for InTx with *Statements to
	// Batch × Committers if that is more, because such handlers return quickly. It does not bound handlers in open
	// transactions (InTx with any other type, InTxBatch): one of those runs per committer.
	Concurrency int
	// Batch limits how many items one claim or commit carries, 100,000 at most. One Receive or one settlement carries up to
	// a batch for every committer. Nothing is fetched ahead of slow handlers (50 ms; half a second for those of one open
	// transaction), because a message that waits here is kept from other workers. Defaults to 100.
	Batch int
	// Committers is the number of claims and commits in flight at once, sharded by key, or the number of open transactions.
	// Defaults to 1, at most 64.
	Committers int

	// Visibility is how long a delivery is kept from other workers without a heartbeat, 100 ms or more. Defaults to 30 s. The
	// lease in the store is 0.9 of it. The heartbeat renews a lease after a third of its time. The first heartbeat applies it
	// to the delivery. Until then the queue's own setting counts (Options.Visibility of the adapters): set both alike.
	Visibility time.Duration
	// Timeout cancels a run, which counts as failed. Defaults to none: the heartbeat keeps long runs alive. In an open
	// transaction (InTx with *sql.Tx or pgx.Tx) it is at most 0.9 of the store's limit for one (its MaxTx).
	Timeout time.Duration
	// MaxRuntime is the hard limit of a run: the run is cancelled and its lease no longer extended. Defaults to 15 min.
	MaxRuntime time.Duration
	// Grace is how long running handlers may take when the consumer stops, before they are cancelled. Defaults to 25 s.
	// Deliveries that have not started are returned at once.
	Grace time.Duration

	// Rate limits how many runs start per second. Defaults to no limit.
	Rate Rate
	// PerGroup limits the runs of each group of messages, for example of each tenant. Defaults to no limit.
	PerGroup GroupLimit

	// MaxAttempts is the number of failed runs after which a message becomes a dead letter. Defaults to 5.
	MaxAttempts int
	// Backoff bounds the delay before the next attempt: it starts at Min and doubles up to Max, with jitter between the two.
	// Defaults to 1 s to 5 min.
	Backoff Backoff
	// Retry has rules for classes of failures. The first rule that matches applies. Defaults to none.
	Retry []RetryRule
	// Breaker stops runs while a downstream is unavailable. Its zero value opens after five errors in a row that are marked
	// Unavailable.
	Breaker Breaker
	// Retention is how long a record is kept after its message ended. It must cover the horizon of late duplicates: how late
	// the queue can deliver a copy (its Horizon), plus ProducerRetries. Defaults to 14 days, or to the horizon if that is
	// longer.
	Retention time.Duration
	// Retain overrides Retention by how a message ended. Defaults to Retention for all.
	Retain Retain
	// ProducerRetries is how long producers keep sending the same message. Defaults to 0: producers do not repeat a message
	// later than the queue itself can redeliver it.
	ProducerRetries time.Duration
	// MaxAge is the age, since it was sent, up to which a message may start, its delay included. An older one becomes a
	// dead letter ("too old") without a run. There are exceptions: a key that was started before continues at any age, and
	// so does a message that was redriven from a dead letter. A message whose send time is unknown has no age. The clock of
	// the sender or of the broker is compared with this process's. Defaults to 0: any age.
	MaxAge time.Duration
	// Until is when this process is certain to be stopped or frozen: the deadline of a Lambda invocation. No lease lasts
	// beyond it, because nothing could renew it. Defaults to the zero time: no such moment.
	Until time.Time
	// LongTerm is how long a record stays EXPIRED after its retention: without result and fingerprint, but with key and token.
	// A duplicate that arrives in that time becomes a dead letter of kind late, for a person to decide on. It neither runs nor
	// is it dropped. The store keeps the period, and the sweeps of all workers obey it. LongTerm is 24 hours or more and
	// cannot be combined with Versions. The store must be a driver.LongTerm (DynamoDB is not: use a longer Retention there).
	// Defaults to 0: a duplicate that arrives after Retention runs.
	LongTerm time.Duration
	// ResultMax is the largest result that is stored, in bytes. Of a larger one only its size and digest are kept.
	// Defaults to 64 KiB.
	ResultMax int
	// Limit stops the consumer after this number of deliveries. Defaults to 0: no limit.
	Limit int

	// Middleware is called around every run, the first outermost.
	Middleware []Middleware
	// Events observes the consumer. Defaults to no observer.
	Events Events
	// Logger gets an error for each dead letter and each panic (with its stack), a warning for each failure that is retried
	// and each run with an unknown outcome, and the normal course of every message at debug level. Each line carries
	// worker, queue and consumer. Defaults to slog.Default(). slog.New(slog.DiscardHandler) is silent.
	Logger *slog.Logger
}
