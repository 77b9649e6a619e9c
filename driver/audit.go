package driver

import (
	"context"
	"time"
)

// AuditEntry is one line of the audit log: who did what to which record, and its state before.
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

// AuditLog is an optional interface of stores that are an [Operator]: an applied operation adds its entry in the same write.
// Entries do not change. A write that purges, expires or erases a record also removes the entries of its key. The entry of an
// [Erase] has no key and remains.
type AuditLog interface {
	// Audit lists entries, oldest first.
	Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error)
}

// RefusalLog is an optional interface of an [AuditLog]: it keeps requests of operators that were refused.
type RefusalLog interface {
	// LogRefusal stores an entry of kind [Refuse], which has a consumer and no key, in place of the entry with the same ID. Its
	// caller counts repeated requests in one entry.
	LogRefusal(ctx context.Context, id string, e AuditEntry) error
}

// Entry returns the audit entry of an operation that changed a record from before to after. The entry of an [Erase] has
// consumer and tenant only, because the key was erased.
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
