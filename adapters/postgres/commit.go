package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Joins reports that q is a queue of the same [DB], so that its acknowledgements commit with the record.
func (s *Store) Joins(q driver.Queue) bool {
	mine, ok := driver.Settles[*Queue](q)
	return ok && mine.db == s.db
}

// Commit writes works in one transaction: record, effects, emitted messages, acknowledgement. See [driver.Committer].
//
// It takes one round trip when every work completes what it holds. If one does not, the completion fails on the server.
// Then, and when a work ends otherwise, the records are locked and the table decides each: two round trips, and one more
// when a statement must change a certain number of rows, because they have to be counted before COMMIT is sent.
func (s *Store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	if len(w) == 0 {
		return nil, nil
	}
	if err := s.db.checkWorks(ctx, w, false); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	out := make([]driver.Outcome, len(w))
	for nr, part := range transactions(w) {
		if part == nil {
			return s.commit(ctx, w)
		}
		done, err := s.commit(ctx, rowstore.Some(w, part))
		if err != nil {
			return nil, ofPart(err, part, nr > 0)
		}
		for at, i := range part {
			out[i] = done[at]
		}
	}
	return out, nil
}

// commit writes works in one transaction.
func (s *Store) commit(ctx context.Context, w []driver.Work) ([]driver.Outcome, error) {
	keys := sortKeys(len(w), func(i int) *driver.Key { return &w[i].Finish.Hold.Key })
	plain, mode := isPlain(w, keys), rowstore.CommitMode(w)
	var out []driver.Outcome
	var err error
	if plain {
		out, err = s.commitPlain(ctx, w, keys)
	}
	locked := code(err) == codeLocked && !isItem(err) && !isSeveral(err)
	if !plain || locked || code(err) == codeGuard || isTaken(err) || blameless(err) {
		if locked {
			mode = rowstore.Skip
		}
		slow := s.slowPath
		if isSeveral(err) {
			slow = rowstore.New(apart{rows{s.db}})
		}
		out, err = rowstore.Decide(ctx, slow, len(w), mode, func(tx rowstore.Tx, mode rowstore.Mode) ([]driver.Outcome, error) {
			return rowstore.CommitTx(tx, mode, w...)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	s.db.written(w, out)
	return out, nil
}

// transactions parts works into those that share a transaction; nil: all do. A work that changes settings has its own:
// settings last until the end of the transaction, and the effects of the next message would be those of another role,
// tenant or search_path. These come first. When a later part is refused and repeated, they return Applied. Works that bring
// their claims are apart from those that hold their records, so that each transaction locks in the order of places.
func transactions(w []driver.Work) (parts [][]int) {
	var held, brought []int
	for i := range w {
		switch {
		case sets(&w[i]):
			parts = append(parts, []int{i})
		case w[i].Claim != nil:
			brought = append(brought, i)
		default:
			held = append(held, i)
		}
	}
	for _, part := range [...][]int{held, brought} {
		if len(part) > 0 {
			parts = append(parts, part)
		}
	}
	if len(parts) < 2 {
		return [][]int{nil}
	}
	return parts
}

// ofPart is the error of a part for the call. some: an earlier part was committed.
func ofPart(err error, part []int, some bool) error {
	var item *driver.ItemError
	switch {
	case errors.As(err, &item):
		return &driver.ItemError{Index: part[item.Index], Err: item.Err, Transient: item.Transient}
	case some:
		return errors.New(err.Error()) // not certain for all: repeat
	}
	return err
}

// isPlain reports that every work completes a record of its own, or brings it, without versions.
func isPlain(w []driver.Work, keys keyed) bool {
	for i := range w {
		if f := &w[i].Finish; f.Final != driver.Complete || f.Hold.Version != "" {
			return false
		}
	}
	return len(keys.layers()) == 1
}

// commitPlain is commit for works that hold what they complete, and for those whose keys have no record yet. Otherwise it
// fails on the server.
func (s *Store) commitPlain(ctx context.Context, w []driver.Work, keys keyed) ([]driver.Outcome, error) {
	all, out := indexes(w), slices.Repeat([]driver.Outcome{driver.Applied}, len(w))
	return out, rows{s.db}.try(ctx, false, func(x *rowTx) error {
		if counts(w, all) {
			x.p.beginLong(s.db)
		} else {
			x.p.exec("begin", sqlBegin)
		}
		brought, held := keys.split(func(i int) bool { return w[i].Claim != nil })
		finish := func(i int) *driver.Finish { return &w[i].Finish }
		x.p.complete(held, finish, driver.InProgress, s.db.o.LockWait)
		x.p.insert(brought, w, s.db.o.LockWait)
		return x.Works(w, all)
	})
}

// addWorks adds effects, emitted messages and acknowledgements of some works, in their order. Effects that change settings
// come last: semel's tables and rights are those of the connection.
func (db *DB) addWorks(ctx context.Context, p *pipeline, j join, w []driver.Work, which []int) error {
	last := slices.ContainsFunc(which, func(i int) bool { return sets(&w[i]) })
	if last {
		if err := db.addRest(ctx, p, w, which); err != nil {
			return err
		}
	}
	e := newEffects(db, p, j)
	for _, i := range which {
		e.add(i, statements(&w[i]))
	}
	e.close()
	if last {
		return nil
	}
	return db.addRest(ctx, p, w, which)
}

// addRest adds what follows the effects.
func (db *DB) addRest(ctx context.Context, p *pipeline, w []driver.Work, which []int) error {
	var (
		emits  []driver.Message
		of     []int
		queues []string
		acks   = map[string][]*driver.Settlement{}
		all    []*driver.Settlement
	)
	for _, i := range which {
		for j := range w[i].Emit {
			emits, of = append(emits, w[i].Emit[j]), append(of, i)
		}
		if w[i].Ack == nil {
			continue
		}
		q := w[i].Ack.Receipt.(*receipt).Queue()
		if acks[q] == nil {
			queues = append(queues, q)
		}
		acks[q] = append(acks[q], w[i].Ack)
		all = append(all, w[i].Ack)
	}
	db.addLocks(p, all, emits)
	if len(emits) > 0 {
		if err := db.addSends(ctx, p, func(i int) int { return of[i] }, emits); err != nil {
			return err
		}
	}
	for _, q := range queues {
		addSettle(p, q, acks[q], nil)
	}
	return nil
}

// checkWorks refuses what this store cannot write, before anything is sent, and creates the queues of emitted messages and
// dead letters in a transaction of its own. held: the caller has a connection of the pool already.
func (db *DB) checkWorks(ctx context.Context, w []driver.Work, held bool) error {
	if err := rowstore.CheckWorks(w, db.checkWork); err != nil {
		return err
	}
	made := db.queueMade
	if held {
		made = db.queueApart
	}
	ensure := func(name string) error {
		if err := made(ctx, name); err != nil {
			return notSent(fmt.Errorf("queue %q: %w", name, err))
		}
		return nil
	}
	for i := range w {
		if a := w[i].Ack; a != nil && a.Action == driver.Dead {
			if err := ensure(a.Receipt.(*receipt).Queue()); err != nil {
				return err
			}
		}
		for j := range w[i].Emit {
			if err := ensure(w[i].Emit[j].Queue); err != nil {
				return err
			}
		}
	}
	return nil
}

func (db *DB) checkWork(w *driver.Work) error {
	err := rowstore.CheckWork(w, func(a *driver.Settlement) error {
		if err := rowqueue.CheckAck(rows{db}, a); err != nil {
			return err
		}
		return checkDead(a)
	})
	if err != nil {
		return err
	}
	for i, st := range statements(w) {
		if err := checkStatement(st.SQL); err != nil {
			return fmt.Errorf("statement %d: %w", i+1, err)
		}
	}
	for i := range w.Emit {
		if err := checkMessage(&w.Emit[i]); err != nil { // its queue too
			return fmt.Errorf("emitted message %d: %w", i, err)
		}
	}
	return nil
}
