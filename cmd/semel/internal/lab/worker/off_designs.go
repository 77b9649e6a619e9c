package worker

import (
	"context"
	"slices"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// plainOne does the work and acks last, so that nothing is lost. It doubles whatever comes twice:
//
//  1. the producer sends an order again, because the first response was lost;
//  2. the process dies after the effect, before the ack: the queue delivers the message again;
//  3. the work takes longer than the visibility: another worker has the message by then. What waits in the buffer
//     behind the slow one overruns too.
func plainOne(ctx context.Context, j *job) error {
	if err := j.work(ctx); err != nil {
		return err
	}
	return j.charge(ctx, j.key)
}

// The states of the marks.
const (
	processing = "processing"
	completed  = "completed"
	failed     = "failed"
)

// recorded looks the id up, and notes that the delivery is skipped when it is there.
func (j *job) recorded(ctx context.Context) (bool, error) {
	status, err := j.place.Marks.Get(ctx, j.key)
	if err != nil || status != completed {
		return false, err
	}
	j.skipped("it is recorded")
	return true, nil
}

// checkLast looks the id up first and records it last. Between the two anybody else may do the same work:
//
//  1. A looks up: nothing. A works.
//  2. The visibility ends; B looks up: nothing. B works.
//  3. A records. B's record is refused by the condition: the record is there once, the work was done twice.
type checkLast struct{ condition bool }

func (c checkLast) one(ctx context.Context, j *job) error {
	marks := j.place.Marks
	if done, err := j.recorded(ctx); done || err != nil {
		return err
	}
	if err := j.work(ctx); err != nil {
		return err
	}
	if err := j.charge(ctx, j.key); err != nil {
		return err
	}
	var err error
	first := true
	if c.condition {
		first, err = marks.Add(ctx, j.key, completed)
	} else {
		err = marks.Put(ctx, j.key, completed)
	}
	switch {
	case err != nil:
		return err
	case first:
		j.note(eventlog.Recorded, nil)
	default:
		j.note(eventlog.Refused, nil)
	}
	return nil
}

// skipBusyOne marks the id before the work, and acks what is marked already. A mark has no owner:
//
//  1. A marks, works, and dies.
//  2. The message comes again. B finds the mark "processing", says "another instance is at it", and acks: it is lost.
//  3. The same happens to what failed once: the mark is there, so its retry is acked.
func skipBusyOne(ctx context.Context, j *job) error {
	marks := j.place.Marks
	first, err := marks.Add(ctx, j.key, processing)
	if err != nil {
		return err
	}
	if !first {
		j.skipped("already_processing")
		return nil
	}
	j.gate.pass(plan.AfterClaim, j.key, j.d.ID)
	if err := j.work(ctx); err != nil {
		_ = marks.Put(ctx, j.key, failed)
		return err
	}
	if err := j.charge(ctx, j.key); err != nil {
		return err
	}
	return marks.Put(ctx, j.key, completed)
}

// markFirstOne writes the id down and then starts the work. Dying between the two loses it: its mark never moves on.
func markFirstOne(ctx context.Context, j *job) error {
	first, err := j.place.Marks.Add(ctx, j.key, processing)
	if err != nil {
		return err
	}
	if !first {
		j.skipped("Duplicate execution skipped")
		return nil
	}
	j.gate.pass(plan.AfterClaim, j.key, j.d.ID)
	return plainOne(ctx, j)
}

// ttlLockOne takes a lock for half a visibility, and never extends it. Its owner has no name:
//
//  1. A takes the lock and works longer than it lasts.
//  2. B takes the lock too, finds nothing recorded, and works.
//  3. A ends and deletes the lock: it is B's.
func ttlLockOne(ctx context.Context, j *job) error {
	marks := j.place.Marks
	lock := "lock:" + j.key
	held, err := marks.Take(ctx, lock, processing, j.spec.Workers.Visibility/2)
	if err != nil {
		return err
	}
	if !held {
		return errLeft
	}
	defer func() { _ = marks.Delete(ctx, lock) }()
	if done, err := j.recorded(ctx); done || err != nil {
		return err
	}
	if err := plainOne(ctx, j); err != nil {
		return err
	}
	return marks.Put(ctx, j.key, completed)
}

// failFastOne stops at the first bad item. The message comes again as a whole, the good items with it.
func failFastOne(ctx context.Context, j *job) error {
	if err := j.work(ctx); err != nil {
		return err
	}
	for _, item := range j.order.Items {
		if j.order.fails(item, j.d.Count > 1) {
			j.note("ended", errBadItem)
			return errBadItem
		}
		if err := j.charge(ctx, item); err != nil {
			return err
		}
	}
	return nil
}

// sagaByHandOne remembers in its own memory what it has to undo:
//
//  1. A books the flight, and dies. No record of the flight is left.
//  2. B books the flight again, finds the last step impossible, and undoes what it remembers: its own.
func sagaByHandOne(ctx context.Context, j *job) error {
	if err := j.work(ctx); err != nil {
		return err
	}
	for i, item := range j.order.Items {
		if j.order.refused(item) {
			j.note("ended", errPoison)
			for _, done := range slices.Backward(j.order.Items[:i]) {
				if err := j.undo(ctx, done); err != nil {
					return err
				}
			}
			return nil
		}
		if err := j.charge(ctx, item); err != nil {
			return err
		}
	}
	return nil
}

// dualWriteOne writes to two systems, one after the other:
//
//  1. A records the id, commits the order, and dies.
//  2. B finds the id recorded, and acks. The mail is never sent.
//
// Sending the mail first, or recording last, doubles it instead.
func dualWriteOne(ctx context.Context, j *job) error {
	if done, err := j.recorded(ctx); done || err != nil {
		return err
	}
	if err := j.work(ctx); err != nil {
		return err
	}
	if err := j.place.Marks.Put(ctx, j.key, completed); err != nil {
		return err
	}
	for _, item := range j.order.Items {
		if err := j.charge(ctx, item); err != nil {
			return err
		}
	}
	return nil
}
