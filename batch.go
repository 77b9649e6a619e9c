package semel

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// This file runs batch handlers (InTxBatch): one call for all members of an open transaction.

// runBatch calls the handler. Its answer is one result for each member, or one for all when nobody knows whose failure
// it was.
func (r *runner) runBatch(o *order, run *execution) (machine.Result, []machine.Result) {
	attempts := make([]Attempt, len(o.items))
	batch := make([]*Attempt, len(o.items))
	for i, it := range o.items {
		h := it.Hold()
		attempts[i] = Attempt{
			Message: handedOut(&it.Message), Key: it.Key, Number: it.Attempt(), MaxAttempts: r.cfg.MaxAttempts, Token: h.Token,
			Deadline: r.began.Add(o.job.Deadline), Unknown: it.Unknown(), Redelivered: it.Count > 1, hold: h,
			failed: it.Failures(),
		}
		batch[i] = &attempts[i]
	}
	handle, effects := r.batchEffects(o)
	if handle == nil {
		return machine.Result{Class: machine.Failed, NotApplied: true, Err: ErrNoTx}, nil
	}
	err := r.guardedBatch(&run.ctx, handle, batch)
	whole := machine.Result{Effects: effects}
	if err != nil {
		whole = r.failure(o, &run.ctx, err)
	}
	each := make([]machine.Result, len(batch))
	named, failed := false, false
	var transient error
	if whole.Class == machine.Transient {
		transient = whole.Err
	}
	namedItems(err, func(e *itemError) {
		if e.index < 0 || e.index >= len(each) {
			return
		}
		named = true
		each[e.index] = r.failure(o, &run.ctx, e.err)
		failed = failed || each[e.index].Class != machine.Dropped
		if each[e.index].Class == machine.Transient {
			transient = each[e.index].Err
		}
	})
	switch {
	case transient != nil:
		return machine.Result{Class: machine.Transient, Err: transient}, nil
	case err != nil && !named:
		return whole, nil
	}
	for i := range each {
		if each[i].Class == machine.OK && !failed {
			each[i] = r.success(o, batch[i])
		}
	}
	return machine.Result{Effects: effects}, each
}

// batchEffects is what a batch handler works on: a handle of the open transaction, or a buffer that is sent with its
// commit.
func (r *runner) batchEffects(o *order) (handle, effects any) {
	if handle = r.tx.bind(r.open[o.job.Lane].tx); handle != nil {
		return handle, nil
	}
	effects = r.tx.buffer(r.committer)
	return effects, effects
}

// guardedBatch calls the user's function; its panic is an error.
func (r *runner) guardedBatch(ctx context.Context, tx any, batch []*Attempt) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.panicked(v, "the handler", batch[0])
		}
	}()
	return r.batch.handleBatch(ctx, tx, batch)
}

// transient asks whether a handler's failure is that of its open transaction, and nobody's: it returns the error with what
// the store says of it, nil when the failure is the handler's.
func (r *runner) transient(o *order, err error) error {
	if !o.job.InTx {
		return nil
	}
	if errors.Is(err, driver.ErrNotCommitted) {
		return err
	}
	c, ok := driver.As[driver.TxClassifier](r.open[o.job.Lane].tx)
	if !ok {
		return nil
	}
	if cause := c.Transient(err); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return nil
}
