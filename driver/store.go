package driver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Key is what must take effect once. Raw is the text form of the tuple; the scope (consumer, tenant) keeps one
// consumer's or tenant's keys from another's. Keys are compared byte by byte.
type Key struct{ Consumer, Tenant, Raw string }

// Hash is the SHA-256 of the length-prefixed parts: no two different keys share an input. Stores index by it and
// compare Raw besides.
func (k Key) Hash() [32]byte {
	b := make([]byte, 0, 24+len(k.Consumer)+len(k.Tenant)+len(k.Raw))
	for _, s := range [...]string{k.Consumer, k.Tenant, k.Raw} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	return sha256.Sum256(b)
}

// Nonce owns one attempt: 128 random bits, fresh per attempt, never used again. The zero nonce owns nothing.
type Nonce [16]byte

// Takeover says what happens to a run that began and whose outcome nobody knows. Records keep the stricter policy of
// themselves and the claimer: a rolling deploy never weakens it.
type Takeover uint8

// The takeover policies, from the mildest to the strictest.
const (
	// Resume runs the handler again with the same effect key.
	Resume Takeover = iota
	// Probe asks whether the effect happened before it runs again.
	Probe
	// Once never runs again on its own: the key is parked for a person.
	Once
)

func (t Takeover) String() string { return [...]string{"resume", "probe", "once"}[t] }

// Claim asks for the right to run one key.
type Claim struct {
	Key         Key
	Nonce       Nonce
	Fingerprint Fingerprint
	// BodyDigest is of the whole body, whatever the fingerprint is of. WholeBody: so is the fingerprint; a record without a
	// fingerprint, made before one was asked for, is compared by the digest.
	BodyDigest BodyDigest
	WholeBody  bool
	// DeliveryID is the message id of the delivery that asks; the record remembers a few of them, so that duplicates can
	// be told apart (redelivery or producer duplicate).
	DeliveryID string
	Lease      time.Duration
	Takeover   Takeover
	// Version makes the key an entity whose messages replace each other (mode D): see [Watermark]. "" = the key takes
	// effect once.
	Version Version
	// After is the version that has to be applied before this one; "" = any gap is accepted. NoWait waits for no message
	// that is still to come, because it may stand behind this one in its group, or because it was waited for long enough:
	// it runs in spite of a gap, and what was passed over is remembered; and behind a newer version in doubt it is Late.
	After  Version
	NoWait bool
	// NewKey is the key's other identity while its recipe changes; the zero Key = there is none. The engine claims both and
	// asks stores for each by itself: they never see it.
	NewKey Key
}

// Verdict answers one claim.
type Verdict uint8

// The verdicts of the claim table.
const (
	Acquired Verdict = iota + 1 // run it
	Busy                        // somebody runs it, or it may not be retried yet: come back after Grant.Wait
	Replay                      // completed: ack, hand out Grant.Result
	Failed                      // failed for good: make sure that the dead letter exists, ack
	Parked                      // uncertain: make sure that the dead letter exists, ack
	Mismatch                    // the same key with another payload: dead letter, ack, never replay
	Stale                       // a newer version is applied: ack
	Late                        // an EXPIRED record, or an older version that must neither run nor be forgotten: dead letter (see LateDeadLetterID), ack
)

func (v Verdict) String() string {
	return [...]string{"none", "acquired", "busy", "replay", "failed", "parked", "mismatch", "stale", "late"}[v]
}

// Grant answers one [Claim].
type Grant struct {
	Verdict Verdict
	// Hold names the record's current attempt: ours when Acquired, else the one that decided.
	Hold Hold
	// Attempt counts runs in this generation including this one; Failures the recorded failed runs; Takeovers the runs
	// in a row that ended without a word. See Record.
	Attempt, Failures, Takeovers int
	// Unknown: an earlier run may have had its effect. It is derived from the record, so that a takeover whose answer
	// was lost still probes.
	Unknown bool
	// Uncertainty counts the moments when nobody could know any more whether an effect happened.
	Uncertainty int
	// Takeover is the policy that rules this record.
	Takeover Takeover
	// Wait is set with Busy: until when. Gap: what it waits for is not a run but the version before it (Claim.After). The
	// store cannot know how long that takes: Wait is for how long nothing has happened to the key.
	Wait time.Duration
	Gap  bool
	// OtherPayload is set with Replay, Failed and Parked: the claim's body is not that of the run, and no fingerprint says that it means the same.
	OtherPayload bool
	// Result is set with Replay, Reason with Failed, Parked, Stale and Late.
	Result []byte
	Reason string
	// Disposed is set with Failed when a person discarded the dead letter: just ack.
	Disposed bool
	// Redelivery: the record has seen this DeliveryID before.
	Redelivery bool
	Created    time.Time
	// Err: the verdict of this item is unknown. Claim it again with the same nonce; but not when it wraps [ErrUnreadable]:
	// then nothing was written, and the message is delivered again later, or is a dead letter.
	Err error
}

// Hold names one attempt in every later write: token and nonce are both compared.
type Hold struct {
	Key        Key
	Generation uint32
	// Epoch counts the deliberate re-runs of a completed key; it is part of the effect key.
	Epoch uint32
	Token uint64
	Nonce Nonce
	// Version is the version of the run; "" when the key has none. It is part of the effect key.
	Version Version
	// NewKey names the attempt that holds the key's other identity (Claim.Mirror); nil = there is none. Stores never see it.
	NewKey *Hold
}

// Final is the state that a [Finish] writes.
type Final uint8

// The ends of an attempt.
const (
	Complete Final = iota + 1 // COMPLETED, with the result
	Fail                      // FAILED, terminal; its dead letter follows
	Release                   // RELEASED, to be retried
	Park                      // UNCERTAIN; its dead letter follows
)

func (f Final) String() string {
	return [...]string{"none", "complete", "fail", "release", "park"}[f]
}

// Ran tells a release how far the run came.
type Ran uint8

// How far a run came.
const (
	// Unstarted: the handler was never called. The attempt is refunded.
	Unstarted Ran = iota
	// NotApplied: it ran, and it is certain that its effect did not happen.
	NotApplied
	// MaybeApplied: it ran, and nobody knows: the record remembers the doubt.
	MaybeApplied
)

// Finish completes, fails, releases or parks one attempt: all four share one flush.
type Finish struct {
	Hold   Hold
	Final  Final
	Ran    Ran  // Release, Fail: MaybeApplied leaves a doubt in the record
	Refund bool // Release: no failure is counted, and no attempt after the first (busy downstream, drain)
	// RetryAfter delays the next attempt of a release.
	RetryAfter time.Duration
	// Keep is how long the record is kept from now (release: at least until the retry plus Keep).
	Keep   time.Duration
	Result []byte
	Reason string
	// Compensated goes with Fail: what the run had done was undone, step by step. The record's epoch is raised, so that a
	// redrive runs under new effect keys: downstreams may have been told to refuse the old ones forever.
	Compensated bool
}

// Store is what every record store offers. All methods may be called concurrently; each item is decided in one atomic
// step as the Decide functions say. Answers are positional.
type Store interface {
	// Claim decides claims. The keys of one call are distinct, the engine sees to it. An error means that every verdict
	// is unknown; Grant.Err that one is. A repeated claim with the same nonce answers the same grant and renews the
	// lease.
	Claim(ctx context.Context, c ...Claim) ([]Grant, error)
	// Extend renews leases: Applied, Lost, Settled or Unknown.
	Extend(ctx context.Context, lease time.Duration, h ...Hold) ([]Outcome, error)
	// Finish ends attempts: Applied, Recovered, Lost or Unknown. Repeating an applied Finish answers Applied.
	Finish(ctx context.Context, f ...Finish) ([]Outcome, error)
	// Features is asked by New, and may be asked again at any time. It does no I/O: what only the server knows is found
	// out when the store is opened.
	Features() StoreFeatures
}

// StoreFeatures tell the engine, the suite and the guarantee line what a store can do.
type StoreFeatures struct {
	// Name says where the records are, for people; Kind is the adapter's ("sqlite", "postgres").
	Name, Kind string
	// Durable: an applied write survives the death of every process. ServerClock: one clock decides expiry.
	Durable, ServerClock bool
	// Caveats are sentences about this very server or configuration that weaken the promise ("synchronous_commit is off:
	// the last commits before a crash of the server can be lost"). Each is printed among the promise's assumptions. One
	// that says that applied writes can be lost comes with Durable false: the adapter sets both.
	Caveats []string
	// MaxResult is the largest result in bytes; 0 = no limit.
	MaxResult int
	// Emits: Work.Emit commits with the record (an outbox, or a queue in the same database).
	Emits bool
	// ListsUncertain: RecordInspector.Records finds the UNCERTAIN records without reading any others. See [CountUncertain].
	ListsUncertain bool
	// MaxTx bounds a synchronous transaction (modes B and C); 0 = no bound but the lease. The engine cancels a run before
	// it has passed. A Commit that comes too late answers ErrNotCommitted; the next transaction is then smaller.
	MaxTx time.Duration
}

// Work is one finished attempt with everything that has to become durable with it.
type Work struct {
	Finish Finish
	// Ack settles the delivery in the same write; nil when queue and store are not one. A receipt that was handed out
	// again is no error here, because the record decides.
	Ack *Settlement
	// Effects is a buffer that Committer.Offers made, or nil. In a Tx.Commit the effects that a batch handler queued are in
	// the first work and belong to all works of the call.
	Effects any
	Emit    []Message
}

// Committer adds mode A2 (protocol section 3): run without a transaction, then effects, record, messages and ack in
// one guarded write. It is an optional interface of stores: find it, as all others, with [As].
type Committer interface {
	// Commit writes works atomically, each guarded by its Hold: an item whose hold is Lost writes nothing at all, the
	// others are committed. An item that was already applied by the same hold answers Applied and does nothing. When
	// an item's effects are refused, nothing of that item is committed and the error is an *ItemError that names it (see
	// Transient there, and [ErrBlocked]: an adapter answers while a lock lasts, and before ctx is done). The
	// others are to be committed again: one that a store had to write before (in a transaction of its own) answers Applied
	// then. Any other error means Unknown for all, unless it wraps [ErrNotCommitted].
	Commit(ctx context.Context, w ...Work) ([]Outcome, error)
	// Offers reports whether the store can write effects of the kind that the pointer effects points to, and sets
	// *effects to a new empty buffer.
	Offers(effects any) bool
	// Joins reports that q is in the same database, so that Work.Ack commits too. Use [Settles] to find the store's own queue
	// behind a wrapper.
	Joins(q Queue) bool
}

// Transactor adds modes B and C (protocol sections 4 and 5): the claims are in the effects' own transaction. It is an optional
// interface of stores that are a [Committer].
type Transactor interface {
	// Begin opens a transaction and decides the claims inside it. When no claim is Acquired the Tx may be nil.
	Begin(ctx context.Context, c ...Claim) (Tx, []Grant, error)
	// OffersTx reports whether Tx.As can fill the handle (a pointer to the handle type).
	OffersTx(handle any) bool
}

// Tx is an open transaction that holds claims.
type Tx interface {
	// As sets *handle to the client library's transaction: **sql.Tx, *pgx.Tx.
	As(handle any) bool
	// Commit writes the works and commits: records, effects, messages and acks, all of it or nothing. A claim without a work
	// leaves no record: its item failed or did not run. Effects come after what was done through the handle; an adapter
	// over a network sends them together with COMMIT. Since the transaction holds all claims, effects that belong to
	// several works are written when every one of these is, and never when one is not.
	//
	// nil = all committed; *ItemError = rolled back, culprit named (the first work, when effects are refused that belong to
	// all; a negative index, when nobody knows whose they were); [ErrNotCommitted] (wrapped) = certainly rolled back, run again; anything else = not known: repeat the claims.
	Commit(ctx context.Context, w ...Work) error
	// Rollback gives everything back, the claims included. It may be called after Commit.
	Rollback(ctx context.Context) error
}

// TxClassifier is an optional interface of [Tx]; [As] finds it. Transient says of an error, which a handler got from the transaction's
// handle, that it is not the handler's failure: [ErrNotCommitted] (a serialization failure, a deadlock), [ErrBlocked] (a lock
// that somebody else holds) or [ErrOutage]; nil when it is. The engine rolls back and runs the handlers again, and no attempt
// is spent. A message that alone gets ErrNotCommitted again and again, while others are committed, has failed.
type TxClassifier interface {
	Transient(err error) error
}

// RecordFilter selects records.
type RecordFilter struct {
	Consumer string // "" = all
	State    State  // Absent = all
	Limit    int    // 0 = all
	// Newest lists those first that were changed last. No store has an index by that time, because each write of a record would
	// have to change it: all records are read, and Limit of them are kept.
	Newest bool
}

// Compare orders records as a list of f has them: oldest first, or those first that were changed last.
func (f RecordFilter) Compare(a, b Record) int {
	if f.Newest {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(b.Token, a.Token))
	}
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Token, b.Token))
}

// RecordInspector is an optional interface of stores.
type RecordInspector interface {
	Record(ctx context.Context, k Key) (r Record, ok bool, err error)
	// Records lists records, oldest first unless f says otherwise.
	Records(ctx context.Context, f RecordFilter) ([]Record, error)
}

// RecordScanner is an optional interface of stores whose records may be too many for one list.
type RecordScanner interface {
	// ScanRecords calls each with every record that f selects, in no particular order, and reads them in pages: neither
	// memory nor a long transaction grows with their number. A record that exists all the time comes exactly once, one
	// that is made or purged meanwhile at most once. An error of each ends the scan and is returned as it is. Limit bounds
	// the calls.
	ScanRecords(ctx context.Context, f RecordFilter, each func(Record) error) error
}

// Operator is an optional interface of stores: what a person may do to a record. See [DecideOperate].
type Operator interface {
	Operate(ctx context.Context, op Operation) (Record, Outcome, error)
}

// Meter is an optional interface of stores that are paid by use.
type Meter interface {
	// Consumed is what all calls of this store value consumed so far: it only grows. It blocks on nothing and may be
	// called concurrently.
	Consumed() Units
}

// Units count what a store that is paid by use consumed: calls of the service, and its units of reading and writing
// (Amazon DynamoDB: read and write request units).
type Units struct {
	Calls         int64
	Reads, Writes float64
}

// Since is what was consumed after earlier.
func (u Units) Since(earlier Units) Units {
	return Units{Calls: u.Calls - earlier.Calls, Reads: u.Reads - earlier.Reads, Writes: u.Writes - earlier.Writes}
}

// Historian is an optional interface of stores whose server can forget what it confirmed: by a failover, or from a backup.
type Historian interface {
	// History changes whenever that may have happened: whatever a process remembers of the store it remembers for one
	// history. It blocks on nothing and may be called concurrently.
	History() uint64
}

// Cached is an optional interface of stores that answer some claims from memory (package cache).
type Cached interface {
	// CacheStats is what the memory holds, and what it did since the store value was made. It blocks on nothing but the
	// memory's own lock and may be called concurrently.
	CacheStats() CacheStats
}

// CacheStats tell what a cache holds and did.
type CacheStats struct {
	// Entries and Bytes are what it holds now, Size is the most entries that it will ever hold.
	Entries, Size int
	Bytes         int64
	// Hits counts claims that were answered without the store, Misses those that were not; both only grow.
	Hits, Misses int64
}

// Sweeper is an optional interface of stores.
type Sweeper interface {
	// Sweep does up to limit of these ([DecideSweep]): it purges or expires records that are past their retention, by the
	// long-term periods that are registered in the store ([LongTerm]), and parks claims of these consumers that were abandoned
	// for longer than horizon, which is theirs; without consumers it parks those of all. more tells that there is still work.
	// It never blocks claims for long.
	Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (s Swept, more bool, err error)
}

// Swept counts what a sweep did, and tells what it left.
type Swept struct {
	Purged, Abandoned int
	// Expired counts records that became EXPIRED.
	Expired int
	// Lag is an estimate, and never too much: how long ago the retention of a record ended that the sweep met and had to
	// leave. 0 = it met none. A store that looks at its records at intervals only (DynamoDB) counts from the look at which
	// the record was due.
	Lag time.Duration
}

// Count is what counts towards the limit of a sweep.
func (s Swept) Count() int { return s.Purged + s.Abandoned + s.Expired }

// Did reports that something was purged, expired or parked.
func (s Swept) Did() bool { return s.Count() > 0 }

// Overdue raises Lag to how long a record's retention is over.
func (s *Swept) Overdue(now, retainUntil time.Time) { s.Lag = max(s.Lag, now.Sub(retainUntil)) }

// Add counts a further step: what it left is what is left now.
func (s *Swept) Add(step Swept) {
	s.Purged += step.Purged
	s.Abandoned += step.Abandoned
	s.Expired += step.Expired
	s.Lag = step.Lag
}
