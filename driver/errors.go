package driver

import (
	"errors"
	"fmt"
)

// ErrNotCommitted reports that a write certainly did not happen and may be repeated: a serialization failure, a
// deadlock, a busy database.
var ErrNotCommitted = errors.New("not committed")

// ErrOutage reports a write that did not happen because the store cannot write at all: its disk is full, it is read-only,
// or it is shutting down. No item caused it, so the engine waits for the store and spends no attempt. An error that wraps it
// may also wrap [ErrNotCommitted].
var ErrOutage = errors.New("the store cannot write")

// ErrBlocked reports a write that did not happen because another session holds a lock. No item caused it. An *[ItemError]
// that wraps it names the item that waited. Its text should name the holder of the lock.
var ErrBlocked = errors.New("blocked by a lock")

// ErrUnreadable reports a record that this program cannot read: a newer program wrote it, or it is damaged. It is the
// error of one key ([Grant.Err]), not of the store. Stores write nothing to such a record.
var ErrUnreadable = errors.New("the record cannot be read")

// LeftOut collects the records that a list leaves out because they cannot be read, so that they do not hide the others.
type LeftOut struct {
	n     int
	first error
}

// Add returns err, unless that wraps [ErrUnreadable]: then it counts the record and returns nil.
func (l *LeftOut) Add(err error) error {
	if !errors.Is(err, ErrUnreadable) {
		return err
	}
	if l.n++; l.n == 1 {
		l.first = err
	}
	return nil
}

// Err returns an error that wraps [ErrUnreadable] if records were left out.
func (l *LeftOut) Err() error {
	if l.n < 2 {
		return l.first
	}
	return fmt.Errorf("%d records are left out; the first: %w", l.n, l.first)
}

// ErrUnsupported reports an operation that the adapter's features do not declare.
var ErrUnsupported = errors.New("not supported by this adapter")

// ItemError names the item of a batch whose effects were refused. Nothing of the batch was committed. A negative Index means
// that the effects of one unknown item were refused (COMMIT found a deferred constraint violated). Only Tx.Commit may return
// that. The engine then halves the transaction until the item is alone.
type ItemError struct {
	Index int
	Err   error
	// Transient: the refusal may not be the item's fault (a deadlock, a timeout, too little memory). The engine writes the
	// other items, and then this item alone. If it is refused several times while others are written, the item has failed.
	Transient bool
}

func (e *ItemError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("one of the items refused: %v", e.Err)
	}
	return fmt.Sprintf("item %d refused: %v", e.Index, e.Err)
}

func (e *ItemError) Unwrap() error { return e.Err }
