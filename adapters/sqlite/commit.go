package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/driver/sqltext"
)

// Joins reports that q is a queue of the same [DB], so that its acknowledgements commit with the record.
func (s *Store) Joins(q driver.Queue) bool {
	mine, ok := driver.Settles[*Queue](q)
	return ok && mine.db == s.db
}

// Commit writes works in one transaction: effects, record, emitted messages, acknowledgement. See [driver.Committer].
func (s *Store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	if err := rowstore.CheckWorks(w, s.db.checkWork); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return s.write(ctx, "commit", w)
}

func (s *Store) write(ctx context.Context, what string, w []driver.Work) ([]driver.Outcome, error) {
	places, out := workPlaces(w), make([]driver.Outcome, len(w))
	err := s.db.write(ctx, 2*len(w), func(t *txn) error { return t.commit(w, places, out) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	rowqueue.Settled(w, out)
	return out, nil
}

func workPlaces(w []driver.Work) []rowstore.Place {
	return places(w, func(w *driver.Work) *driver.Key { return &w.Finish.Hold.Key })
}

func (db *DB) checkWork(w *driver.Work) error {
	return rowstore.CheckWork(w, func(a *driver.Settlement) error { return rowqueue.CheckAck(rows{db}, a) })
}

// commit decides and writes works inside the transaction. Records come first: only an item whose completion is written now
// writes anything else.
func (t *txn) commit(w []driver.Work, places []rowstore.Place, out []driver.Outcome) error {
	fresh, err := t.finish(w, places, out)
	if err != nil {
		return err
	}
	return t.works(w, fresh)
}

// works writes what comes with the records of some works.
func (t *txn) works(w []driver.Work, which []int) error {
	var acks map[string][]*driver.Settlement
	spent := &allowance{left: t.db.o.MaxTx}
	for _, i := range which {
		if e, _ := w[i].Effects.(*driver.Statements); e != nil {
			if err := t.effects(e.List, spent, i); err != nil {
				return err
			}
		}
		if err := t.send(w[i].Emit); err != nil {
			return refusedBy(i, fmt.Errorf("emit: %w", err))
		}
		if w[i].Ack != nil {
			if acks == nil {
				acks = map[string][]*driver.Settlement{}
			}
			q := w[i].Ack.Receipt.(*receipt).Queue()
			acks[q] = append(acks[q], w[i].Ack)
		}
	}
	for q, s := range acks {
		// A message that was delivered again is no error: the record decided.
		if _, err := t.settle(q, s); err != nil {
			return err
		}
	}
	return nil
}

// userStatement is a prepared statement of a handler.
type userStatement struct {
	*parsed
	*stmt
	values []any
	used   uint64
}

func (u *userStatement) close() error { return u.stmt.s.Close() }

// allowance is the time that the statements of one call may take together, because they hold the only write lock.
type allowance struct {
	left, most time.Duration
	longest    int // the item that took most
}

// effects runs the statements of one item. The error is a *driver.ItemError when the item is to blame.
func (t *txn) effects(list []driver.Statement, a *allowance, item int) (err error) {
	began := time.Now()
	t.s.guard.lend(modeEffects)
	t.s.guard.interruptAfter(a.left)
	at := 0
	for ; at < len(list) && err == nil; at++ {
		err = t.s.guard.explain(t.s.effect(&list[at]))
	}
	over := t.s.guard.take()
	took := time.Since(began)
	a.left -= took
	if took > a.most {
		a.most, a.longest = took, item
	}
	switch {
	case err == nil:
		return nil
	case over && a.longest != item:
		return &driver.ItemError{Index: a.longest, Err: errTooLong}
	}
	where := fmt.Sprintf("statement %d (%s)", at, sqltext.Head(list[at-1].SQL))
	if over { // SQLite's own error is that of an interrupt
		return &driver.ItemError{Index: item, Err: fmt.Errorf("%s: %w", where, errTooLong)}
	}
	return refusedBy(item, fmt.Errorf("%s: %w", where, err))
}

func (s *session) effect(st *driver.Statement) error {
	u, err := s.userStatement(st.SQL)
	if err != nil {
		return err
	}
	if u.values, err = u.Values(u.values[:0], st.Args, bindValue); err != nil {
		return err
	}
	var before, after int64
	if st.Rows >= 0 && !u.counts {
		if _, err := s.one([]*int64{&before}, "SELECT total_changes()"); err != nil {
			return err
		}
	}
	n, err := u.exec(u.values)
	if err != nil || st.Rows < 0 {
		return err
	}
	if !u.counts {
		if _, err := s.one([]*int64{&after}, "SELECT total_changes()"); err != nil {
			return err
		}
		if after == before {
			n = 0
		}
	}
	if n != int64(st.Rows) {
		return fmt.Errorf("changed %d rows, must change %d", n, st.Rows)
	}
	return nil
}

// userStatement returns the prepared form of a handler's SQL. When there are too many, because a handler writes values into
// its SQL, it closes the least recently used half.
func (s *session) userStatement(sql string) (*userStatement, error) {
	s.clock++
	if u := s.user[sql]; u != nil {
		u.used = s.clock
		return u, nil
	}
	p, err := parse(sql)
	if err != nil {
		return nil, err
	}
	if len(s.user) >= maxUserStatements {
		for key, u := range s.user {
			if u.used+maxUserStatements/2 <= s.clock {
				delete(s.user, key)
				if err := u.close(); err != nil {
					return nil, err
				}
			}
		}
	}
	st, err := prepare(s.conn, p.SQL)
	if err != nil {
		return nil, err
	}
	u := &userStatement{parsed: p, stmt: st, used: s.clock}
	s.user[sql] = u
	return u, nil
}
