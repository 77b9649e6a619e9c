package driver

import (
	"context"
	"time"
)

// AuditEntry is one line of the trail that operators leave: who did what to which record, and what it was before.
type AuditEntry struct {
	At                time.Time
	By                string
	Kind              OperationKind
	Key               Key
	Generation        uint32 // before
	Token             uint64 // before
	From, To          State
	Reason            string
	Verified, Renewed bool // Operation.Verified, Operation.NewGeneration
}

// AuditFilter selects entries.
type AuditFilter struct {
	Consumer string // "" = all
	Key      Key    // zero = all
	Since    time.Time
	Limit    int // of the latest; 0 = all
}

// AuditLog is an optional interface of stores that are an [Operator]: an applied operation leaves its entry in the same
// write. Entries are only ever added; what purges, expires or erases a record removes those of its key in the same write.
// The entry of an [Erase] names no key; it stays.
type AuditLog interface {
	// Audit lists entries, oldest first.
	Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error)
}

// Entry is the audit entry of an operation that changed a record from before to after. That of an [Erase] names consumer and
// tenant alone, because the key is what was erased.
func (op *Operation) Entry(before, after Record, now time.Time) AuditEntry {
	key := op.Key
	if op.Kind == Erase {
		key.Raw = ""
	}
	return AuditEntry{
		At: now, By: op.By, Kind: op.Kind, Key: key, Generation: before.Generation, Token: before.Token,
		From: before.State, To: after.State, Reason: op.Reason, Verified: op.Verified, Renewed: op.NewGeneration,
	}
}
