package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// back reports that an action returns the message to the queue.
func back(a driver.Action) bool { return a == driver.Retry || a == driver.Defer }

// Settle ends deliveries in one transaction. A receipt stays valid until its message is delivered again, even after its
// visibility has expired. Repeating the action that spent a receipt returns Applied, another action Lost. Settlement.Close
// and the dead letter of Dead are written even when the receipt is lost: both follow from the record, and a dead letter is
// written once per id.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	list := make([]*driver.Settlement, len(s))
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("settle in queue %q: item %d: %w", q.name, i, err)
		}
		list[i] = &s[i]
	}
	if len(list) == 0 {
		return nil, nil
	}
	var out []driver.Outcome
	err := q.db.atomic(ctx, func(x *rowTx) error {
		n, plain, err := x.ack(list)
		if out = make([]driver.Outcome, len(list)); plain && err == nil && n < int64(len(list)) {
			return errNotPlain // some are lost
		}
		for i := range out {
			out[i] = driver.Applied
		}
		if plain || err != nil {
			return err
		}
		if err = x.lockGroups(list, nil); err == nil {
			out, err = x.settle(q, list)
		}
		return err
	})
	if errors.Is(err, errNotPlain) {
		err = q.db.atomic(ctx, func(x *rowTx) (err error) { out, err = x.settle(q, list); return err })
	}
	if err != nil {
		return nil, rowqueue.Wrap(err, "settle in", q.name)
	}
	for i := range s {
		if out[i] == driver.Applied {
			s[i].Receipt.(*receipt).settled.Store(uint32(s[i].Action) + 1)
		}
	}
	return out, nil
}

// settled marks the receipt of a committed ack.
func (db *DB) settled(w *driver.Work) {
	if a := w.Ack; a != nil {
		a.Receipt.(*receipt).settled.CompareAndSwap(0, uint32(a.Action)+1)
	}
}

// ack removes messages of one delivery that have no group, and returns how many the delivery still had. plain is false if the
// settlements are others.
func (x *rowTx) ack(s []*driver.Settlement) (n int64, plain bool, err error) {
	args := []any{s[0].Receipt.(*receipt).nonce[:]}
	for _, a := range s {
		rc := a.Receipt.(*receipt)
		if a.Action != driver.Ack || a.Close != "" || rc.group != "" || rc.settled.Load() != 0 || rc.nonce != s[0].Receipt.(*receipt).nonce {
			return 0, false, nil
		}
		args = append(args, rc.pos)
	}
	n, err = x.exec("DELETE FROM semel_message WHERE nonce = ? AND pos IN "+values(len(s)), args...)
	return n, true, err
}

// settle ends deliveries of one queue, whose groups are locked.
func (x *rowTx) settle(q *Queue, s []*driver.Settlement) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(s))
	var open []*receipt
	for i, a := range s {
		if err := x.deadLetters(q, a); err != nil {
			return nil, err
		}
		rc := a.Receipt.(*receipt)
		switch before := rc.settled.Load(); before {
		case 0:
			open = append(open, rc)
		case uint32(a.Action) + 1:
			out[i] = driver.Applied
		default:
			out[i] = driver.Lost
		}
	}
	ours, err := x.ours(open)
	if err != nil {
		return nil, err
	}
	var gone, returned []any
	var after []time.Duration
	var groups []string
	action := map[int64]driver.Action{} // of messages that this call settles
	for i, a := range s {
		rc := a.Receipt.(*receipt)
		if out[i] != driver.Unknown {
			continue
		}
		out[i] = driver.Lost
		before, again := action[rc.pos]
		switch {
		case !ours[rc]:
		case again:
			if before == a.Action {
				out[i] = driver.Applied
			}
		case back(a.Action):
			out[i], returned, after = driver.Applied, append(returned, rc.pos), append(after, max(a.After, 0))
		default:
			out[i], gone = driver.Applied, append(gone, rc.pos)
			if rc.group != "" {
				groups = append(groups, rc.group)
			}
		}
		if out[i] == driver.Applied && !again {
			action[rc.pos] = a.Action
		}
	}
	if err := x.redeliver(q, returned, after); err != nil {
		return nil, err
	}
	return out, x.remove(q, gone, groups)
}

// ours locks messages in the order of their positions and reports which receipts still have theirs.
func (x *rowTx) ours(list []*receipt) (map[*receipt]bool, error) {
	found := map[*receipt]bool{}
	if len(list) == 0 {
		return found, nil
	}
	at := make([]any, len(list))
	for i := range list {
		at[i] = list[i].pos
	}
	nonces := make(map[int64]string, len(list))
	err := x.query(func(r rowstore.Row) error { nonces[r.Int(0)] = r.Text(1); return nil },
		"SELECT pos, nonce FROM semel_message FORCE INDEX (PRIMARY) WHERE pos IN "+values(len(at))+" ORDER BY pos FOR UPDATE", at...)
	for _, rc := range list {
		found[rc] = nonces[rc.pos] == string(rc.nonce[:])
	}
	return found, err
}

// remove removes messages, and releases the next of their groups.
func (x *rowTx) remove(q *Queue, at []any, groups []string) error {
	if len(at) == 0 {
		return nil
	}
	if _, err := x.exec("DELETE FROM semel_message WHERE pos IN "+values(len(at)), at...); err != nil || len(groups) == 0 {
		return err
	}
	x.wake(q.name, false)
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		name := []any{[]byte(q.name), []byte(g)}
		next := int64(0)
		err := x.query(func(r rowstore.Row) error { next = r.Int(0); return nil },
			"SELECT pos FROM semel_message WHERE queue = "+queueID+" AND grp = ? ORDER BY pos LIMIT 1", name...)
		switch {
		case err != nil:
		case next == 0:
			_, err = x.exec("DELETE FROM semel_group WHERE queue = "+queueID+" AND grp = ?", name...)
		default:
			_, err = x.exec("UPDATE semel_message SET waits = 0 WHERE pos = ? AND waits = 1", next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// redeliver makes messages deliverable after a while.
func (x *rowTx) redeliver(q *Queue, at []any, after []time.Duration) error {
	if len(at) == 0 {
		return nil
	}
	cases := "CASE pos" + strings.Repeat(" WHEN ? THEN ?", len(at)) + " END"
	args := make([]any, 0, 5*len(at))
	for range 2 {
		for i := range at {
			args = append(args, at[i], after[i].Microseconds())
		}
	}
	x.wake(q.name, false)
	_, err := x.exec("UPDATE semel_message SET due_at = "+x.db.clock+" + "+cases+", hold = "+cases+", held = 0, nonce = NULL WHERE pos IN "+
		values(len(at)), append(args, at...)...)
	return err
}

// Extend hides deliveries from others for visible from now, even after their visibility has expired, unless they were
// delivered again.
func (q *Queue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	list := make([]*receipt, len(receipts))
	for i, r := range receipts {
		rc, err := q.mine(r)
		if err != nil {
			return nil, fmt.Errorf("extend in queue %q: item %d: %w", q.name, i, err)
		}
		list[i] = rc
	}
	open := slices.DeleteFunc(slices.Clone(list), func(rc *receipt) bool { return rc.settled.Load() != 0 })
	out := make([]driver.Outcome, len(list))
	var ours map[*receipt]bool
	if len(open) > 0 {
		err := q.db.atomic(ctx, func(x *rowTx) (err error) {
			if ours, err = x.ours(open); err != nil {
				return err
			}
			args := []any{visible.Microseconds(), visible.Microseconds()}
			for _, rc := range open {
				if ours[rc] {
					args = append(args, rc.pos)
				}
			}
			if len(args) > 2 {
				_, err = x.exec("UPDATE semel_message SET due_at = "+x.db.clock+" + ?, hold = ?, held = 1 WHERE pos IN "+values(len(args)-2), args...)
			}
			return err
		})
		if err != nil {
			return nil, rowqueue.Wrap(err, "extend in", q.name)
		}
	}
	for i, rc := range list {
		if out[i] = driver.Lost; ours[rc] {
			out[i] = driver.Applied
		}
	}
	return out, nil
}

// deadLetters writes and deletes the dead letters of a settlement.
func (x *rowTx) deadLetters(q *Queue, s *driver.Settlement) error {
	if s.Close != "" {
		if err := x.Exec(rowqueue.DeleteDeadLetter, rowstore.Name(q.name), rowstore.Name(s.Close)); err != nil {
			return err
		}
	}
	if s.Action == driver.Dead {
		return x.deadLetter(q, s.DeadLetter)
	}
	return nil
}

// sqlDeadLetter writes a dead letter once.
const sqlDeadLetter = "INSERT INTO semel_dead_letter (queue, dead_at, " + rowqueue.DeadLetterColumns + ") VALUES (" + queueID

func (x *rowTx) deadLetter(q *Queue, l *driver.DeadLetter) error {
	args := append([]any{rowstore.Name(q.name)}, rowqueue.DeadLetterValues(l)...)
	return x.lostQueue(x.Exec(sqlDeadLetter+", "+x.db.clock+strings.Repeat(", ?", len(args))+") ON DUPLICATE KEY UPDATE semel_dead_letter.id = semel_dead_letter.id",
		append(args, l.Message.Body)...))
}

// PutDeadLetter writes a dead letter without a delivery. Each id is written once.
func (q *Queue) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	if l.ID == "" {
		return errors.New("put dead letter: it has no ID")
	}
	err := q.db.atomic(ctx, func(x *rowTx) error {
		if err := x.queues(q.name); err != nil {
			return err
		}
		return x.deadLetter(q, &l)
	})
	return rowstore.Wrap(err, "put dead letter %s", l.ID)
}
