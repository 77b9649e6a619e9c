package dynamodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// work is a change of a record with effects that are written in the same transaction.
type work struct {
	change
	index   int // in the caller's list, for errors
	effects []types.TransactWriteItem
	targets []target
	bytes   int // approximate size of the record
	// passed: the gate already has a row of the key, so the record is completed without this run's effects.
	passed bool
	done   bool

	after row // as it is to be written in this round
	first int // the index of its record's write in the transaction
}

// changeWith carries out a change with effects, in one transaction. Effects that are refused are a *[driver.ItemError].
func (s *Store) changeWith(ctx context.Context, c *change, effects []types.TransactWriteItem) (row, error) {
	targets, err := s.checkWrites(effects)
	if err != nil {
		return c.row, &driver.ItemError{Err: err}
	}
	w := &work{change: *c, effects: effects, targets: targets}
	err = s.together(ctx, []*work{w})
	*c = w.change
	return w.row, err
}

// maxConflicts is how often a transaction of several works may conflict before each work gets its own.
const maxConflicts = 3

// errApart asks the caller to write each work in its own transaction.
var errApart = errors.New("each work needs a transaction of its own")

// together carries out works in one transaction, all of them or none: decide on the rows as last seen, write them if the
// items have not changed, and otherwise decide again on the new rows. If the effects of a work are refused, nothing is
// written and the error is a *[driver.ItemError].
func (s *Store) together(ctx context.Context, ws []*work) error {
	r := s.repeater()
	for round := range maxRounds {
		todo, err := s.decideWorks(ctx, &r, ws)
		if err != nil || len(todo) == 0 {
			return err
		}
		if len(todo) == 1 && !s.transacts(todo[0]) {
			err = s.writeAlone(ctx, &r, todo[0])
		} else {
			err = s.transact(ctx, &r, todo)
		}
		if err != nil {
			return err
		}
		if round > 2 {
			if err := r.wait(ctx); err != nil {
				return r.failed(err, "TransactWriteItems")
			}
		}
	}
	return r.failed(errors.New("other writers kept changing the records"), "TransactWriteItems")
}

// decideWorks decides the works that are not done, and returns those that have something to write.
func (s *Store) decideWorks(ctx context.Context, r *repeater, ws []*work) (todo []*work, err error) {
	now := s.now()
	for _, w := range ws {
		for !w.done {
			after, write, err := w.decide(w.row, now)
			if err != nil {
				return nil, err
			}
			if write {
				after.rev, after.foreign = w.row.rev+1, false
				if w.passed && after.State == driver.Completed {
					after.Reason = "completed by another consumer before: the effects of this run were not written"
				}
				w.after = after
				todo = append(todo, w)
				break
			}
			if w.read {
				w.done = true
				break
			}
			if err := s.reload(ctx, &w.change); err != nil {
				return nil, r.failed(err, "GetItem")
			}
		}
	}
	return todo, nil
}

// gated reports that a change completes a record, so that it must pass the gate.
func (s *Store) gated(before, after *row) bool {
	return s.o.Gate != "" && after.State == driver.Completed && before.State != driver.Completed
}

// transacts reports that a work is more than one write.
func (s *Store) transacts(w *work) bool {
	return !w.passed && (len(w.effects) > 0 || s.gated(&w.row, &w.after))
}

func (s *Store) writeAlone(ctx context.Context, r *repeater, w *work) error {
	now, won, err := s.write(ctx, r, w.row, w.after)
	switch {
	case err != nil && tooLargeItem(err):
		return &driver.ItemError{Index: w.index, Err: err}
	case err != nil:
		return err
	case won:
		s.won(w)
	default:
		w.row, w.read = now, true
	}
	return nil
}

// won marks a work as written.
func (s *Store) won(w *work) {
	w.row, w.read, w.done = w.after, true, true
	s.rows.put(w.after)
	s.seen.saw(s, &w.after)
}

// transact sends one transaction, and repeats it until its outcome is known. The request token makes repetitions of the same
// bytes one transaction. Another round has other bytes and another token.
func (s *Store) transact(ctx context.Context, r *repeater, ws []*work) error {
	in := &awsdynamodb.TransactWriteItemsInput{
		ClientRequestToken: aws.String(rand.Text()), ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}
	for _, w := range ws {
		u, err := s.update(&w.row, &w.after)
		if err != nil {
			return &driver.ItemError{Index: w.index, Err: err}
		}
		w.first = len(in.TransactItems)
		in.TransactItems = append(in.TransactItems, types.TransactWriteItem{Update: u})
		if w.passed {
			continue
		}
		if s.gated(&w.row, &w.after) {
			in.TransactItems = append(in.TransactItems, s.gate(&w.after))
		}
		in.TransactItems = append(in.TransactItems, w.effects...)
	}
	for conflicts := 0; ; {
		is, err := r.try(ctx, func(ctx context.Context) error {
			out, err := s.client.TransactWriteItems(ctx, in, once)
			if err == nil {
				s.meter.wrote(out.ConsumedCapacity...)
			}
			return err
		})
		s.countCancelled(ws, in.TransactItems, err)
		switch is {
		case done:
			for _, w := range ws {
				s.won(w)
			}
			return nil
		case condition, refused:
			return s.cancelled(ctx, r, ws, err)
		case again:
			if conflicts++; conflicts == maxConflicts && len(ws) > 1 && !r.maybe {
				return errApart
			}
		}
		if werr := r.wait(ctx); werr != nil {
			for _, w := range ws {
				s.rows.forget(w.key)
			}
			return r.failed(errors.Join(err, werr), "TransactWriteItems")
		}
	}
}

// countCancelled counts the units of a cancelled transaction. DynamoDB prepares every write of it, but the error does not
// say what that cost. So each is counted as if it had been written, by the known size of its item.
func (s *Store) countCancelled(ws []*work, writes []types.TransactWriteItem, err error) {
	var c *types.TransactionCanceledException
	if !errors.As(err, &c) {
		return
	}
	sizes := make([]int, len(writes))
	for i := range writes {
		if t, err := targetOf(&writes[i]); err == nil {
			sizes[i] = t.bytes
		}
		if i < len(c.CancellationReasons) {
			sizes[i] = max(sizes[i], itemSize(c.CancellationReasons[i].Item))
		}
	}
	for _, w := range ws {
		sizes[w.first] = max(sizes[w.first], itemSize(s.shape.encode(&w.after, s.o.TTLSlack)))
	}
	for _, n := range sizes {
		s.meter.add(0, 2*unitsOf(n))
	}
}

// cancelled decides how to continue after a cancelled transaction, from the cancellation reasons, which say for every write
// whether its condition failed, and from the records in them.
func (s *Store) cancelled(ctx context.Context, r *repeater, ws []*work, err error) error {
	var c *types.TransactionCanceledException
	if !errors.As(err, &c) {
		return s.refusedWorks(ws, r, err)
	}
	changed := false
	var culprit *work
	var why error
	for _, w := range ws {
		n := 1
		if s.transacts(w) {
			n += len(w.effects)
			if s.gated(&w.row, &w.after) {
				n++
			}
		}
		if w.first+n > len(c.CancellationReasons) {
			return r.failed(err, "TransactWriteItems")
		}
		reasons := c.CancellationReasons[w.first : w.first+n]
		is, e := s.readReasons(w, reasons)
		if is == condition {
			changed = true
			if e != nil {
				return e
			}
		} else if is == refused && culprit == nil {
			culprit, why = w, e
		}
	}
	switch {
	case changed:
		return nil // decide again
	case culprit == nil:
		return r.failed(err, "TransactWriteItems")
	case culprit.read:
		return &driver.ItemError{Index: culprit.index, Err: why}
	}
	// Before the attempt is blamed: its record may show that it was already committed.
	return s.reload(ctx, &culprit.change)
}

// readReasons reads the reasons of one work. condition: its record, or the gate, was not as expected, and the work is
// updated. refused: its effects were refused, and the error says which.
func (s *Store) readReasons(w *work, reasons []types.CancellationReason) (fate, error) {
	switch code := aws.ToString(reasons[0].Code); code {
	case reasonCondition:
		now, ours, err := s.instead(&w.after, reasons[0].Item)
		if ours {
			s.won(w) // and with it its whole transaction
		} else {
			w.row, w.read = now, true
		}
		return condition, err
	case reasonNone, "":
	default:
		s.rows.forget(w.key)
		return refused, tooLarge(fmt.Errorf("its record: %s (%s)", aws.ToString(reasons[0].Message), code), &w.after)
	}
	reasons = reasons[1:]
	if len(reasons) == len(w.effects)+1 {
		if aws.ToString(reasons[0].Code) == reasonCondition {
			if err := s.shape.gateIsOf(w.key, s.o.Gate, reasons[0].Item); err != nil {
				return condition, err
			}
			w.passed = true
			return condition, nil
		}
		reasons = reasons[1:]
	}
	for i := range reasons {
		switch code := aws.ToString(reasons[i].Code); code {
		case reasonNone, "":
		case reasonCondition:
			t := w.targets[i]
			return refused, &RefusedError{Write: i, Table: t.table, Code: code, Item: reasons[i].Item}
		default:
			return refused, &RefusedError{Write: i, Table: w.targets[i].table, Code: code, Message: aws.ToString(reasons[i].Message)}
		}
	}
	return done, nil
}

// refusedWorks returns the error for a transaction that was refused as a whole.
func (s *Store) refusedWorks(ws []*work, r *repeater, err error) error {
	for _, w := range ws {
		s.rows.forget(w.key)
	}
	if !theirs(err) {
		return r.failed(err, "TransactWriteItems")
	}
	if len(ws) > 1 {
		return errApart
	}
	switch w := ws[0]; {
	case len(w.effects) > 0: // the effects are to blame: the record's size was checked before
		return &driver.ItemError{Index: w.index, Err: err}
	case tooLargeItem(err):
		return &driver.ItemError{Index: w.index, Err: tooLarge(err, &w.after)}
	}
	return r.failed(err, "TransactWriteItems")
}

// RefusedError names the one of the [Writes] of an attempt that was refused. The attempt's failure wraps it.
type RefusedError struct {
	// Write is its index in the order in which the writes were queued, from 0; Table its table.
	Write int
	Table string
	// Code is DynamoDB's reason ("ConditionalCheckFailed", "ValidationError"), Message its text.
	Code, Message string
	// Item is the current item, if its condition failed and the write asked for it (ReturnValuesOnConditionCheckFailure).
	Item map[string]types.AttributeValue
}

func (e *RefusedError) Error() string {
	if e.Code == reasonCondition {
		return fmt.Sprintf("write %d, table %q: its condition failed", e.Write+1, e.Table)
	}
	return fmt.Sprintf("write %d, table %q: %s (%s)", e.Write+1, e.Table, e.Message, e.Code)
}
