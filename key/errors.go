package key

import (
	"errors"
	"fmt"
)

// ErrMissing reports a message without a key.
var ErrMissing = errors.New("semel: message has no key")

// Error reports a message whose key cannot be used. It matches [ErrMissing] if the message has none.
type Error struct {
	MessageID, Reason string
	Missing           bool
}

func (e *Error) Error() string {
	if e.MessageID == "" {
		return "semel: key: " + e.Reason
	}
	return fmt.Sprintf("semel: key of message %q: %s", e.MessageID, e.Reason)
}

// Is matches ErrMissing.
func (e *Error) Is(target error) bool { return target == ErrMissing && e.Missing }

// SpecError reports a text form that [Parse], [ParseFingerprint] or [ParseVersions] cannot read. Field is its setting: Key,
// Fingerprint or Versions.
type SpecError struct{ Field, Problem, Hint string }

func (e *SpecError) Error() string {
	return fmt.Sprintf("semel: config %s: %s (%s)", e.Field, e.Problem, e.Hint)
}
