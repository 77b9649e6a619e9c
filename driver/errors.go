package driver

import (
	"errors"
	"fmt"
)

// ErrNotCommitted reports that a write certainly did not happen and may be repeated: a serialization failure, a
// deadlock, a busy database.
var ErrNotCommitted = errors.New("not committed")

// ErrUnsupported reports an operation that the adapter's features do not declare.
var ErrUnsupported = errors.New("not supported by this adapter")

// ItemError names the item of a batch whose effects were refused. Nothing of the batch was committed. A negative Index
// says that it was the effects of one of them, and nobody knows whose (a deferred constraint that COMMIT found violated):
// only Tx.Commit may answer that, and the engine halves the transaction until the culprit is alone.
type ItemError struct {
	Index int
	Err   error
}

func (e *ItemError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("one of the items refused: %v", e.Err)
	}
	return fmt.Sprintf("item %d refused: %v", e.Index, e.Err)
}

func (e *ItemError) Unwrap() error { return e.Err }
