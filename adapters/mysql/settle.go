package mysql

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

func (q table) Settle(ctx context.Context, s []*driver.Settlement) (out []driver.Outcome, err error) {
	slow := func(x *rowTx) (err error) {
		if err = x.lockGroups(s, nil); err == nil {
			out, err = x.settle(s)
		}
		return err
	}
	err = q.db.atomic(ctx, func(x *rowTx) error {
		n, plain, err := x.ack(s)
		switch {
		case err == nil && !plain:
			return slow(x)
		case err == nil && n < int64(len(s)): // some are lost
			return errNotPlain
		}
		out = slices.Repeat([]driver.Outcome{driver.Applied}, len(s))
		return err
	})
	if errors.Is(err, errNotPlain) {
		err = q.db.atomic(ctx, slow)
	}
	return out, err
}

// sqlDelete begins a statement that removes messages. Without the hint the server reads a small table from end to end, and waits
// for messages that other sessions have locked.
const sqlDelete = "DELETE semel_message FROM semel_message FORCE INDEX (PRIMARY) WHERE "

// ack removes messages of one delivery that have no group, and returns how many the delivery still had. plain is false if the
// settlements are others.
func (x *rowTx) ack(s []*driver.Settlement) (n int64, plain bool, err error) {
	nonce := s[0].Receipt.(*receipt).nonce
	args := []any{nonce[:]}
	for _, a := range s {
		rc := a.Receipt.(*receipt)
		if a.Action != driver.Ack || a.Close != "" || rc.Group != "" || rc.Settled() || rc.nonce != nonce {
			return 0, false, nil
		}
		args = append(args, rc.Pos)
	}
	n, err = x.exec(sqlDelete+"nonce = ? AND pos IN "+values(len(s)), args...)
	return n, true, err
}

// settle ends deliveries whose groups are locked. Deliveries with a spent receipt are Lost.
func (x *rowTx) settle(s []*driver.Settlement) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(s))
	var open []*receipt
	for _, a := range s {
		rc := a.Receipt.(*receipt)
		if err := x.deadLetters(rc.Queue(), a); err != nil {
			return nil, err
		}
		if !rc.Settled() {
			open = append(open, rc)
		}
	}
	ours, err := x.ours(open)
	if err != nil {
		return nil, err
	}
	var gone, returned []any
	var after []time.Duration
	var groups []group
	for i, a := range s {
		rc := a.Receipt.(*receipt)
		if out[i] = driver.Lost; !ours[rc] {
			continue
		}
		out[i] = driver.Applied
		delete(ours, rc) // each is settled once
		switch {
		case rowqueue.Returns(a.Action):
			returned, after = append(returned, rc.Pos), append(after, max(a.After, 0))
			x.wake(rc.Queue(), false)
		case rc.Group != "":
			groups = append(groups, group{rc.Queue(), rc.Group})
			fallthrough
		default:
			gone = append(gone, rc.Pos)
		}
	}
	if err := x.redeliver(returned, after); err != nil {
		return nil, err
	}
	return out, x.remove(gone, groups)
}

// ours locks messages in the order of their positions and reports which receipts still have theirs.
func (x *rowTx) ours(list []*receipt) (map[*receipt]bool, error) {
	found := map[*receipt]bool{}
	if len(list) == 0 {
		return found, nil
	}
	at := make([]any, len(list))
	for i := range list {
		at[i] = list[i].Pos
	}
	nonces := make(map[int64]string, len(list))
	err := x.query(func(r rowstore.Row) error { nonces[r.Int(0)] = r.Text(1); return nil },
		"SELECT pos, nonce FROM semel_message FORCE INDEX (PRIMARY) WHERE pos IN "+values(len(at))+" ORDER BY pos FOR UPDATE", at...)
	for _, rc := range list {
		found[rc] = nonces[rc.Pos] == string(rc.nonce[:])
	}
	return found, err
}

// remove removes messages, and releases the next of their groups.
func (x *rowTx) remove(at []any, groups []group) error {
	if len(at) == 0 {
		return nil
	}
	if _, err := x.exec(sqlDelete+"pos IN "+values(len(at)), at...); err != nil {
		return err
	}
	slices.SortFunc(groups, compareGroups)
	for _, g := range slices.Compact(groups) {
		x.wake(g.queue, false)
		name := []any{[]byte(g.queue), []byte(g.name)}
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
func (x *rowTx) redeliver(at []any, after []time.Duration) error {
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
	_, err := x.exec("UPDATE semel_message SET due_at = "+x.db.clock+" + "+cases+", hold = "+cases+", held = 0, nonce = NULL WHERE pos IN "+
		values(len(at)), append(args, at...)...)
	return err
}

func (q table) Extend(ctx context.Context, visible time.Duration, receipts []any) ([]driver.Outcome, error) {
	list, out := make([]*receipt, len(receipts)), make([]driver.Outcome, len(receipts))
	for i, r := range receipts {
		list[i] = r.(*receipt)
	}
	return out, q.db.atomic(ctx, func(x *rowTx) error {
		ours, err := x.ours(list)
		if err != nil {
			return err
		}
		args := []any{visible.Microseconds(), visible.Microseconds()}
		for i, rc := range list {
			if out[i] = driver.Lost; ours[rc] {
				out[i], args = driver.Applied, append(args, rc.Pos)
			}
		}
		if len(args) > 2 {
			_, err = x.exec("UPDATE semel_message SET due_at = "+x.db.clock+" + ?, hold = ?, held = 1 WHERE pos IN "+values(len(args)-2), args...)
		}
		return err
	})
}

// deadLetters writes and deletes the dead letters of a settlement.
func (x *rowTx) deadLetters(queue string, s *driver.Settlement) error {
	if s.Close != "" {
		if err := x.Exec(rowqueue.DeleteDeadLetter, rowstore.Name(queue), rowstore.Name(s.Close)); err != nil {
			return err
		}
	}
	if s.Action == driver.Dead {
		return x.deadLetter(queue, s.DeadLetter)
	}
	return nil
}

// sqlDeadLetter writes a dead letter once.
const sqlDeadLetter = "INSERT INTO semel_dead_letter (queue, dead_at, " + rowqueue.DeadLetterColumns + ") VALUES (" + queueID

func (x *rowTx) deadLetter(queue string, l *driver.DeadLetter) error {
	args := append([]any{rowstore.Name(queue)}, rowqueue.DeadLetterValues(l)...)
	return x.lostQueue(x.Exec(sqlDeadLetter+", "+x.db.clock+strings.Repeat(", ?", len(args))+") ON DUPLICATE KEY UPDATE semel_dead_letter.id = semel_dead_letter.id",
		append(args, l.Message.Body)...))
}

// purgeStep bounds what one transaction of Purge removes.
const purgeStep = 1000

// Purge removes every message that was sent before the call, but no dead letters. Receipts of messages in flight become
// invalid. It works in short transactions.
func (q *Queue) Purge(ctx context.Context) (removed int64, err error) {
	last := int64(0)
	err = rows{q.db}.Read(ctx, func(r rowstore.Row) error { last = r.Int(0); return nil }, "SELECT MAX(pos) FROM semel_message")
	for n := 1; n > 0 && err == nil; {
		err = q.db.atomic(ctx, func(x *rowTx) (err error) { n, err = x.purge(q.name, last); return err })
		if err == nil {
			removed += int64(n)
		}
	}
	return removed, rowqueue.Wrap(err, "purge", q.name)
}

func (x *rowTx) purge(queue string, last int64) (n int, err error) {
	var at []any
	var groups []group
	err = x.query(func(r rowstore.Row) error {
		if at = append(at, r.Int(0)); r.Text(1) != "" {
			groups = append(groups, group{queue, r.Text(1)})
		}
		return nil
	}, "SELECT pos, grp FROM semel_message WHERE queue = "+queueID+" AND pos <= ? ORDER BY pos LIMIT ?", []byte(queue), last, purgeStep)
	if err == nil {
		err = x.lockAll(groups)
	}
	if err == nil {
		err = x.remove(at, groups)
	}
	return len(at), err
}
