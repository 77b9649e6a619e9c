package driver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Key identifies the operation that must take effect once. Raw is the text form of the tuple. The scope (Consumer, Tenant)
// separates the keys of consumers and tenants. Keys are compared byte by byte.
type Key struct{ Consumer, Tenant, Raw string }

// Hash returns the SHA-256 of the length-prefixed parts: different keys have different inputs. Stores index by it and also
// compare Raw.
func (k Key) Hash() [32]byte {
	b := make([]byte, 0, 24+len(k.Consumer)+len(k.Tenant)+len(k.Raw))
	for _, s := range [...]string{k.Consumer, k.Tenant, k.Raw} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	return sha256.Sum256(b)
}

// Nonce identifies the owner of one attempt: 128 random bits, drawn for each attempt. The zero nonce owns nothing.
type Nonce [16]byte

// Takeover is the policy for a run that began and whose outcome is unknown. A record keeps the stricter policy of its own and
// the claim's, so that a rolling deploy cannot weaken it.
type Takeover uint8

// The takeover policies, from the mildest to the strictest.
const (
	// Resume runs the handler again with the same effect key.
	Resume Takeover = iota
	// Probe asks whether the effect happened before it runs again.
	Probe
	// Once does not run the handler again: the key is parked for a person.
	Once
)

func (t Takeover) String() string { return [...]string{"resume", "probe", "once"}[t] }

// Claim asks for the right to run one key.
type Claim struct {
	Key         Key
	Nonce       Nonce
	Fingerprint Fingerprint
	// BodyDigest covers the whole body, whatever the fingerprint covers. WholeBody: the fingerprint also covers the whole body.
	// A record without a fingerprint, made before the consumer used one, is then compared by the digest.
	BodyDigest BodyDigest
	WholeBody  bool
	// DeliveryID is the message ID of the delivery. The record keeps a few of them, to tell a redelivery from a producer
	// duplicate.
	DeliveryID string
	Lease      time.Duration
	Takeover   Takeover
	// Version makes the key an entity whose messages replace each other (mode D): see [Watermark]. "" = the key takes
	// effect once.
	Version Version
	// After is the version that must be applied before this one. "" = any gap is accepted.
	//
	// NoWait: the claim waits for no message that is still to come, because that message may be behind this one in its group,
	// or because the wait was long enough. The version runs in spite of a gap, and the record remembers what it passed over.
	// After a newer version with an unknown outcome it is Late.
	After  Version
	NoWait bool
	// NewKey is the new key while a key recipe changes, or the zero Key. The engine claims both keys one by one, so stores
	// do not see it.
	NewKey Key
	// AtCommit: a key without a record needs none before its run, because the commit makes it (Work.Claim). The verdict is then
	// Acquired, with token 0, and nothing is written. It is a read that locks nothing. A record that exists decides as always.
	// Only stores with StoreFeatures.ClaimsAtCommit get such claims, and none with a Version.
	AtCommit bool
}

// Verdict is the decision on one claim.
type Verdict uint8

// The verdicts of the claim table.
const (
	Acquired Verdict = iota + 1 // run it
	Busy                        // another attempt runs it, or its retry is not due: claim again after Grant.Wait
	Replay                      // completed: ack, return Grant.Result
	Failed                      // failed permanently: make sure that the dead letter exists, ack
	Parked                      // uncertain: make sure that the dead letter exists, ack
	Mismatch                    // the same key with another payload: dead letter, ack, no replay
	Stale                       // a newer version was applied: ack
	Late                        // an EXPIRED record, or an older version that must not run: dead letter (see LateDeadLetterID), ack
)

func (v Verdict) String() string {
	return [...]string{"none", "acquired", "busy", "replay", "failed", "parked", "mismatch", "stale", "late"}[v]
}

// Grant is the result of one [Claim].
type Grant struct {
	Verdict Verdict
	// Hold identifies the record's current attempt: ours if Acquired, otherwise the one that decided the verdict.
	Hold Hold
	// Attempt counts runs in this generation including this one, Failures the recorded failed runs, and Takeovers the
	// consecutive runs whose lease expired. See Record.
	Attempt, Failures, Takeovers int
	// Unknown: an earlier run may have had its effect. It is read from the record, so that a takeover whose response was
	// lost still probes.
	Unknown bool
	// Uncertainty counts how often the outcome of an effect became unknown.
	Uncertainty int
	// Takeover is the policy of this record.
	Takeover Takeover
	// Wait is set with Busy: the time until the next claim can succeed. Gap: the claim waits not for a run but for the version
	// before it (Claim.After). The store cannot know how long that takes, and Wait is the time since the key last changed.
	Wait time.Duration
	Gap  bool
	// OtherPayload is set with Replay, Failed and Parked: the claim's body differs from that of the run, and there is no
	// fingerprint by which both are the same.
	OtherPayload bool
	// Result is set with Replay, Reason with Failed, Parked, Stale and Late.
	Result []byte
	Reason string
	// Trace is the span of the run that ended the record, or "". Only sampled ones are kept.
	Trace Traceparent
	// Disposed is set with Failed if a person discarded the dead letter: just ack.
	Disposed bool
	// Redelivery: the record has seen this DeliveryID before.
	Redelivery bool
	Created    time.Time
	// Err: the verdict of this item is unknown. Claim it again with the same nonce, unless Err wraps [ErrUnreadable]: then
	// nothing was written, and the message is redelivered later or becomes a dead letter.
	Err error
}

// Hold identifies one attempt in every later write. Stores compare both token and nonce. Token 0 is that of an attempt that is
// claimed at its commit: it owns no record, so no guard accepts it.
type Hold struct {
	Key        Key
	Generation uint32
	// Epoch counts the deliberate re-runs of a completed key. It is part of the effect key.
	Epoch uint32
	Token uint64
	Nonce Nonce
	// Version is the version of the run, or "" if the key has none. It is part of the effect key.
	Version Version
	// NewKey identifies the attempt that holds the new key (Claim.NewKey), or is nil. Stores do not see it.
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

// Ran is how far a released or failed run came.
type Ran uint8

// How far a run came.
const (
	// Unstarted: the handler was not called. The attempt is refunded.
	Unstarted Ran = iota
	// NotApplied: it ran, and its effect certainly did not happen.
	NotApplied
	// MaybeApplied: it ran, and the outcome is unknown. The record stores the doubt.
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
	// Compensated goes with Fail: everything that the run did was undone, step by step. The record's epoch is raised, so that
	// a redrive runs under new effect keys: downstreams may refuse the old ones forever.
	Compensated bool
}

// Store is the interface of every record store. All methods may be called concurrently. Each item is decided in one atomic
// step, as the Decide functions define. Results are positional.
type Store interface {
	// Claim decides claims. The engine makes sure that the keys of one call are distinct. An error means that every verdict is
	// unknown, Grant.Err that one is. A repeated claim with the same nonce returns the same grant and renews the lease.
	Claim(ctx context.Context, c ...Claim) ([]Grant, error)
	// Extend renews leases: Applied, Lost, Settled or Unknown.
	Extend(ctx context.Context, lease time.Duration, h ...Hold) ([]Outcome, error)
	// Finish ends attempts: Applied, Recovered, Lost or Unknown. Repeating an applied Finish returns Applied.
	Finish(ctx context.Context, f ...Finish) ([]Outcome, error)
	// Features is called by New, and may be called again at any time. It does no I/O: facts that only the server knows are
	// read when the store is opened.
	Features() StoreFeatures
}

// StoreFeatures describes what a store can do, for the engine, the conformance suite and the guarantee line.
type StoreFeatures struct {
	// Name is where the records are, for people. Kind names the adapter ("sqlite", "postgres").
	Name, Kind string
	// Durable: an applied write survives the end of every process. ServerClock: one clock decides expiry.
	Durable, ServerClock bool
	// Caveats are sentences about this server or configuration that weaken the guarantee ("synchronous_commit is off: the
	// last commits before a crash of the server can be lost"). Each is printed among the assumptions of the guarantee. If
	// applied writes can be lost, the adapter must also set Durable to false.
	Caveats []string
	// MaxResult is the largest result in bytes. 0 = no limit.
	MaxResult int
	// Emits: Work.Emit commits with the record (an outbox, or a queue in the same database).
	Emits bool
	// ClaimsAtCommit: the store is a [Committer] that takes Claim.AtCommit and Work.Claim.
	ClaimsAtCommit bool
	// ListsUncertain: RecordInspector.Records finds the UNCERTAIN records without reading any others. See [CountUncertain].
	ListsUncertain bool
	// MaxTx limits a synchronous transaction (modes B and C). 0 = no limit but the lease. The engine cancels a run before the
	// limit. A Commit that comes too late returns ErrNotCommitted, and the next transaction is smaller.
	MaxTx time.Duration
}

// Work is one finished attempt with everything that must become durable with it.
type Work struct {
	Finish Finish
	// Claim is the claim of an attempt that has no record yet (Claim.AtCommit): the commit inserts the completed record, as
	// [DecideInsert] decides. Finish is then a Complete with the hold of that claim's grant.
	Claim *Claim
	// Ack settles the delivery in the same write. It is nil if queue and store are not in one database. A receipt of a message
	// that was redelivered is no error here, because the record decides.
	Ack *Settlement
	// Effects is a buffer that Committer.Offers made, or nil. In a Tx.Commit the effects that a batch handler queued are in
	// the first work and belong to all works of the call.
	Effects any
	Emit    []Message
}

// Committer adds mode A2 (protocol section 3): the handler runs without a transaction, then effects, record, messages and ack
// commit in one guarded write. It is an optional interface of stores: find it, like all others, with [As].
type Committer interface {
	// Commit writes works atomically, each guarded by its Hold: an item whose hold is Lost writes nothing at all, and the
	// others are committed. An item that was already applied by the same hold returns Applied and does nothing.
	//
	// A work with a Claim (StoreFeatures.ClaimsAtCommit) inserts its record before the first effect of the call, and never
	// updates one. If there is a record, the item is Lost, or Applied if this very work made it.
	//
	// If an item's effects are refused, nothing of that item is committed, and the error is an *ItemError that names it (see
	// ItemError.Transient, and [ErrBlocked]: an adapter returns it while a lock lasts, before ctx is done). The caller must
	// then commit the others again: an item that the store had already written in a transaction of its own returns Applied.
	// Any other error means Unknown for all, unless it wraps [ErrNotCommitted].
	Commit(ctx context.Context, w ...Work) ([]Outcome, error)
	// Offers reports whether the store can write effects of the type that the pointer effects points to. If so, it sets
	// *effects to a new empty buffer.
	Offers(effects any) bool
	// Joins reports whether q is in the same database, so that Work.Ack commits too. Use [Settles] to find the store's own
	// queue behind a wrapper.
	Joins(q Queue) bool
}

// Transactor adds modes B and C (protocol sections 4 and 5): the claims are in the effects' own transaction. It is an optional
// interface of stores that are a [Committer].
type Transactor interface {
	// Begin opens a transaction and decides the claims inside it. The Tx may be nil if no claim is Acquired.
	Begin(ctx context.Context, c ...Claim) (Tx, []Grant, error)
	// OffersTx reports whether Tx.As can set the handle (a pointer to the handle type).
	OffersTx(handle any) bool
}

// Tx is an open transaction that holds claims.
type Tx interface {
	// As sets *handle to the client library's transaction: **sql.Tx, *pgx.Tx.
	As(handle any) bool
	// Commit writes the works and commits: records, effects, messages and acks, all of it or nothing. A claim without a work
	// leaves no record: its item failed or did not run. Effects come after everything that was done through the handle. An
	// adapter over a network sends them together with COMMIT. The transaction holds all claims, so effects that belong to
	// several works are written only if all of these works are.
	//
	// Commit returns
	//   - nil: all is committed
	//   - an *ItemError: rolled back because of the named item (the first work if effects are refused that belong to all, a
	//     negative index if the item is unknown)
	//   - an error that wraps [ErrNotCommitted]: certainly rolled back, run again
	//   - any other error: the outcome is unknown, repeat the claims
	Commit(ctx context.Context, w ...Work) error
	// Rollback rolls everything back, including the claims. It may be called after Commit.
	Rollback(ctx context.Context) error
}

// TxClassifier is an optional interface of [Tx]. [As] finds it.
//
// Transient classifies an error that a handler got from the transaction's handle. It returns nil if the error is the handler's
// own failure, and otherwise [ErrNotCommitted] (a serialization failure, a deadlock), [ErrBlocked] (a lock that another
// session holds) or [ErrOutage]. The engine then rolls back and runs the handlers again, and no attempt is spent. A message
// that alone gets ErrNotCommitted repeatedly, while others are committed, has failed.
type TxClassifier interface {
	Transient(err error) error
}

// RecordFilter selects records.
type RecordFilter struct {
	Consumer string // "" = all
	State    State  // Absent = all
	Limit    int    // 0 = all
	// Newest lists the most recently changed records first. No store has an index for that, because each write of a record
	// would have to change it: all records are read, and Limit of them are kept.
	Newest bool
}

// Compare orders records as a list of f has them: oldest first, or with Newest the most recently changed first.
func (f RecordFilter) Compare(a, b Record) int {
	if f.Newest {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(b.Token, a.Token))
	}
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Token, b.Token))
}

// RecordInspector is an optional interface of stores: it reads records.
type RecordInspector interface {
	// Record returns the record of a key. ok is false if there is none.
	Record(ctx context.Context, k Key) (r Record, ok bool, err error)
	// Records lists records, oldest first unless f says otherwise. If it leaves out some that cannot be read, it returns the
	// others and an error that wraps [ErrUnreadable].
	Records(ctx context.Context, f RecordFilter) ([]Record, error)
}

// RecordScanner is an optional interface of stores that may have too many records for one list.
type RecordScanner interface {
	// ScanRecords calls each with every record that f selects, in no particular order. It reads them in pages, so that neither
	// memory nor a transaction grows with their number. A record that exists during the whole scan is passed exactly once, a
	// record that is made or purged during the scan at most once. An error of each ends the scan and is returned unchanged.
	// f.Limit limits the calls. If it leaves out records that cannot be read, it passes the others, and returns an error that
	// wraps [ErrUnreadable].
	ScanRecords(ctx context.Context, f RecordFilter, each func(Record) error) error
}

// Operator is an optional interface of stores: it applies the operations that a person may do to a record. See
// [DecideOperate].
type Operator interface {
	Operate(ctx context.Context, op Operation) (Record, Outcome, error)
}

// Meter is an optional interface of stores that are paid by use.
type Meter interface {
	// Consumed returns what all calls of this store value have consumed so far. It does not block and may be called
	// concurrently.
	Consumed() Units
}

// Units is what a store that is paid by use consumed: calls of the service, and its units of reading and writing (Amazon
// DynamoDB: read and write request units).
type Units struct {
	Calls         int64
	Reads, Writes float64
}

// Since returns what was consumed after earlier.
func (u Units) Since(earlier Units) Units {
	return Units{Calls: u.Calls - earlier.Calls, Reads: u.Reads - earlier.Reads, Writes: u.Writes - earlier.Writes}
}

// Historian is an optional interface of stores whose server can lose confirmed writes: by a failover, or when it is restored
// from a backup.
type Historian interface {
	// History returns a number that changes whenever that may have happened. A process must forget what it remembers of the
	// store when the number changes. It does not block and may be called concurrently.
	History() uint64
}

// Cached is an optional interface of stores that decide some claims from memory (package cache).
type Cached interface {
	// CacheStats returns what the cache holds, and what it did since the store value was made. It blocks only on the cache's
	// own lock and may be called concurrently.
	CacheStats() CacheStats
}

// CacheStats describes a cache.
type CacheStats struct {
	// Entries and Bytes are what it holds now. Size is the maximum of Entries.
	Entries, Size int
	Bytes         int64
	// Hits counts claims that were decided without the store, Misses all others.
	Hits, Misses int64
}
