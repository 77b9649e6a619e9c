package ops

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// ChangedError reports a record that is not what it was when it was read: the operation wrote nothing.
type ChangedError struct {
	Key   string
	State driver.State // now
}

func (e *ChangedError) Error() string { return fmt.Sprintf("key %q is %s by now", e.Key, e.State) }

// Change does one operation on a record as it was read, and returns the record afterwards: [driver.Reopen] lets an ended key run
// again at its next delivery, [driver.ForceRelease] ends the claim of a worker, [driver.Erase] removes the record. It sends no
// message. The error is a [ChangedError] if the record has changed, and wraps [driver.ErrUnsupported] if the store takes no operations.
func Change(ctx context.Context, s driver.Store, r driver.Record, kind driver.OperationKind, o Options) (driver.Record, error) {
	operator, ok := driver.As[driver.Operator](s)
	if !ok {
		return r, fmt.Errorf("store %s takes no operations: %w", s.Features().Name, driver.ErrUnsupported)
	}
	op := driver.Operation{Kind: kind, Key: r.Key, Token: r.Token, Generation: r.Generation, Keep: Queue{}.keep(o), Reason: o.Reason, By: o.By}
	if kind == driver.ForceRelease {
		op.Reason = o.reason("released")
	}
	if o.DryRun {
		return r, nil
	}
	after, out, err := operator.Operate(ctx, op)
	switch {
	case err != nil:
		return r, fmt.Errorf("%s key %q: %w", kind, r.Key.Raw, err)
	case out != driver.Applied:
		return r, &ChangedError{Key: r.Key.Raw, State: after.State}
	}
	return after, nil
}
