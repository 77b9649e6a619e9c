package ops

import (
	"context"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Gather reads what a store knows of the key of a record: operations, the journal of its steps, duplicates. What the store
// does not keep stays empty.
func Gather(ctx context.Context, s driver.Store, r driver.Record) (in Facts, err error) {
	in = Facts{Record: r, Now: time.Now()}
	if log, ok := driver.As[driver.AuditLog](s); ok {
		if in.Operations, err = log.Audit(ctx, driver.AuditFilter{Key: r.Key}); err != nil {
			return in, err
		}
	}
	if in.Steps, err = Steps(ctx, s, r); err != nil {
		return in, err
	}
	if in.Duplicates, err = DuplicatesOf(ctx, s, r.Key); err != nil {
		return in, err
	}
	in.Holder, err = holder(ctx, s, r)
	return in, err
}

// Steps reads the journal of a record's run. The run that a compensation ended is that of the epoch before: its journal is shown
// until the key runs again.
func Steps(ctx context.Context, s driver.Store, r driver.Record) ([]driver.Step, error) {
	st, ok := driver.As[driver.StepStore](s)
	if !ok {
		return nil, nil
	}
	h := r.Hold()
	rows, err := st.Steps(ctx, h)
	if err != nil || len(rows) > 0 || h.Epoch == 0 || r.State != driver.FailedState {
		return rows, err
	}
	h.Epoch--
	return st.Steps(ctx, h)
}

// DuplicatesOf reads the stored duplicates of a key.
func DuplicatesOf(ctx context.Context, s driver.Store, k driver.Key) (d Duplicates, err error) {
	log, ok := driver.As[driver.DuplicateLog](s)
	if !ok {
		return d, nil
	}
	d.Kept = true
	d.Total, d.Newest, err = log.Duplicates(ctx, k)
	return d, err
}

// Reason is the reason of a record, a dead letter or a step for a person: without the trace of the run that ended it.
func Reason(stored string) string {
	reason, _ := driver.CutTrace(stored)
	return reason
}
