package driver

import (
	"context"
	"time"
)

// MaxDuplicates is how many duplicates of one key a [DuplicateLog] keeps: the newest.
const MaxDuplicates = 16

// Duplicate is one delivery that was settled without a run, because its key had been decided already.
type Duplicate struct {
	Key       Key
	MessageID string
	At        time.Time
	// Worker and Queue are where it was delivered. Count is the broker's delivery count (0 = unknown).
	Worker, Queue string
	Count         int
	// Decision and Cause are those of the consumer's event: how the delivery ended ("replayed", "replayed_other_payload"), and
	// the cause of the duplicate ("redelivery", "producer_duplicate", "raced_local").
	Decision, Cause string
}

// DuplicateLog is an optional interface of stores: a bounded log of duplicates next to the records. Consumers write to it in
// the background, outside of every transaction. It is best effort: duplicates can be missing, and no decision depends on it.
type DuplicateLog interface {
	// AddDuplicates appends duplicates, oldest first. It keeps the newest MaxDuplicates of each key and counts the others. It
	// ignores those of keys without a record. After an error, any of them may have been added.
	AddDuplicates(ctx context.Context, d ...Duplicate) error
	// Duplicates returns how many duplicates of a key were added, and the newest of them, oldest first. A sweep removes them
	// with the record.
	Duplicates(ctx context.Context, k Key) (total int64, newest []Duplicate, err error)
}
