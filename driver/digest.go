package driver

import (
	"context"
	"time"
)

// This file is the contract of the long-term tier: what stays of a record when its retention is over. A digest is a few
// bytes per key, kept for months, and says that the key was at its end once. A late copy that finds one is put before a
// person; it is neither run nor dropped (docs/adr/0013).

// DigestOverlap is how long a digest is readable through [DigestScanner] before its record goes. Whoever keeps a copy of
// the digests (a filter) reads the recent ones more often than that, and believes its copy for a shorter time than that,
// counted from before its read.
const DigestOverlap = 10 * time.Minute

// DigestStale is how old an announcement is when it can only be one of a record that was reopened, and goes. The record
// is announced anew when its time has come again.
const DigestStale = 24 * time.Hour

// DigestHash names a key in a digest: the first 16 bytes of [Key.Hash]. Two keys with one hash cost a person a look at a
// letter, and never a message: a digest only ever parks (invariant I12).
type DigestHash [16]byte

// Digest returns the key's name in a digest.
func (k Key) Digest() DigestHash {
	h := k.Hash()
	return DigestHash(h[:16])
}

// Digest is what is remembered of a key whose record is gone.
type Digest struct {
	// Found: there is one, and it is not past Until. The rest is zero without it.
	Found bool
	// State is how the key ended: COMPLETED, FAILED, or RELEASED with a doubt about its effect.
	State State
	// At is when that was, to the hour. Until is when the digest goes, to the day.
	At, Until time.Time
}

// LongTerm is an optional interface of stores: the tier behind the records.
type LongTerm interface {
	// Remember says, durably, that every sweep of these records, by whichever process and however that is configured,
	// leaves a digest of the consumer's records that need one ([Record.Digested]), for keep after the record. The longest
	// keep that anybody asked for counts. A keep of 0 ends it: digests that are there stay until they are over, and no
	// further ones are made. An error means that it may or may not be so: ask again. [ErrUnsupported] says that this
	// database cannot do it, and why.
	Remember(ctx context.Context, consumer string, keep time.Duration) error
	// Remembered looks keys up on the primary. Digests are durable with the very write that removes their record: a key
	// whose claim made a new record has its digest, if there is one, in every Remembered that begins after that claim was
	// answered. What still has its old record is not found. Answers are positional.
	Remembered(ctx context.Context, keys ...Key) ([]Digest, error)
	// DigestStats counts the digests, by an estimate where counting is dear.
	DigestStats(ctx context.Context) (DigestStats, error)
}

// DigestStats tell how many digests there are.
type DigestStats struct {
	Count int64
	// Bytes is what they take on disk, indexes included; 0 = not known.
	Bytes int64
	// Keep is for how long each consumer's are kept, as Remember was told.
	Keep map[string]time.Duration
}

// DigestScanner is an optional interface of [LongTerm] stores: without it every claimed key is looked up.
type DigestScanner interface {
	LongTerm
	// ScanDigests calls each with digests, in pages and no particular order; one may come twice, or although it is over.
	// With recent those of all records that are on their way out: every digest is among them from [DigestOverlap] before
	// its record goes. Without it all, the recent ones included, that are there from the beginning to the end of the scan.
	// An error of each ends the scan and is returned as it is.
	ScanDigests(ctx context.Context, recent bool, each func(h DigestHash, until time.Time) error) error
}

// Digested reports that a record leaves a digest: its key took effect, or may have. A released record without a doubt
// certainly has not: its message may come again, and run.
func (r *Record) Digested() bool {
	return r.State == Completed || r.State == FailedState || r.State == Released && r.Unknown
}

// RollOver says what a sweep does with a record that is past its retention ([SweepPurge]) and leaves a digest.
type RollOver uint8

// The steps of a record's way out.
const (
	// Announce: write the digest where ScanDigests finds it among the recent ones, with the time; the record stays.
	Announce RollOver = iota + 1
	// Linger: it was announced less than [DigestOverlap] ago; the record stays.
	Linger
	// Depart: remove the record and make its digest one that Remembered finds, both in one atomic write, or the digest
	// first.
	Depart
)

// DecideRollOver decides the next step. announced is when the digest was written, by the store's clock; zero: it was
// not. A clock that stepped back makes it begin anew, and so does an announcement that may be an older one's.
func DecideRollOver(announced, now time.Time) RollOver {
	switch {
	case announced.IsZero() || announced.After(now) || now.Sub(announced) > DigestStale:
		return Announce
	case now.Sub(announced) <= DigestOverlap:
		return Linger
	}
	return Depart
}

// DigestOf is the digest that a record leaves now.
func DigestOf(r *Record, now time.Time, keep time.Duration) Digest {
	at := r.UpdatedAt
	if r.State == Completed && !r.CompletedAt.IsZero() {
		at = r.CompletedAt
	}
	return UnpackDigest(Digest{Found: true, State: r.State, At: at, Until: now.Add(keep)}.Pack())
}

// The epoch and the widths of a packed digest.
const (
	digestEpoch   = 1577836800 // 2020-01-01
	digestDayBits = 16
	digestMax     = 1<<20 - 1 // hours: 119 years
)

// Pack makes a number of a digest: state, hour and day, in 38 bits. UnpackDigest reads it.
func (d Digest) Pack() int64 {
	hour := min(max((d.At.Unix()-digestEpoch)/3600, 0), digestMax)
	day := DigestDay(d.Until)
	s := int64(0)
	switch d.State {
	case FailedState:
		s = 1
	case Released:
		s = 2
	}
	return (s<<20|hour)<<digestDayBits | day
}

// DigestDay numbers the day before whose beginning a moment is: days since 2020.
func DigestDay(until time.Time) int64 {
	return min(max((until.Unix()-digestEpoch+86399)/86400, 0), 1<<digestDayBits-1)
}

// UnpackDigest reads what Pack made.
func UnpackDigest(n int64) Digest {
	day, hour := n&(1<<digestDayBits-1), n>>digestDayBits&digestMax
	return Digest{
		Found: true, State: [...]State{Completed, FailedState, Released, Released}[n>>(digestDayBits+20)&3],
		At: time.Unix(digestEpoch+hour*3600, 0).UTC(), Until: time.Unix(digestEpoch+day*86400, 0).UTC(),
	}
}
