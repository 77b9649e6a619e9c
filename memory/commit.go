package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Offers reports whether effects points to a *[Effects], or with [WithStatements] to a *[driver.Statements], and sets it to an
// empty buffer.
func (s *Store) Offers(effects any) bool {
	switch e := effects.(type) {
	case **Effects:
		*e = &Effects{}
		return true
	case **driver.Statements:
		if s.db.sql {
			*e = &driver.Statements{}
		}
		return s.db.sql
	}
	return false
}

// takes reports whether effects are of a kind that Offers has made.
func (s *Store) takes(effects any) bool {
	switch effects.(type) {
	case nil, *Effects:
		return true
	case *driver.Statements:
		return s.db.sql
	}
	return false
}

// execute records committed statements.
func (db *DB) execute(effects any) {
	if e, ok := effects.(*driver.Statements); ok && e != nil {
		db.ran = append(db.ran, e.List...)
	}
}

// Joins reports whether q is a queue of the same [DB], so that its acks commit with the record.
func (s *Store) Joins(q driver.Queue) bool {
	mine, ok := driver.Settles[*Queue](q)
	return ok && mine.db == s.db
}

// Commit writes works in one step: record, effects, ack, emitted messages. An emitted message goes to its Queue, which is made
// if it does not exist. See [driver.Committer].
func (s *Store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("commit: %w: %w", driver.ErrNotCommitted, err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	refusable, err := s.checkWorks(w)
	if err != nil {
		return nil, err
	}
	out := make([]driver.Outcome, len(w))
	now := s.db.clock()
	defer s.end()
	for i := range w {
		if !refusable && w[i].Claim == nil {
			out[i], s.fresh[i] = s.finish(&w[i].Finish, now)
			continue
		}
		rec := s.records[w[i].Finish.Hold.Key]
		if w[i].Claim != nil && s.held[w[i].Claim.Key] != nil {
			continue // an open transaction holds the key: Unknown
		}
		after, o, changed := s.decideWork(rec, &w[i], now)
		out[i], s.fresh[i] = o, changed
		if !changed {
			continue
		}
		if err := s.writeWork(rec, &after, &w[i]); err != nil {
			s.takeBack(s.undo)
			return nil, &driver.ItemError{Index: i, Err: err, Transient: errors.Is(err, driver.ErrNotCommitted)}
		}
	}
	s.publish(w, now)
	return out, nil
}

func (s *Store) decideWork(rec *record, w *driver.Work, now time.Time) (driver.Record, driver.Outcome, bool) {
	if w.Claim != nil {
		return driver.DecideInsert(rec.value(), *w.Claim, w.Finish, now, s.token+1)
	}
	return driver.DecideFinish(rec.value(), w.Finish, now)
}

// checkWorks refuses works that this store cannot write, and reports whether effects may be refused later.
func (s *Store) checkWorks(w []driver.Work) (refusable bool, err error) {
	s.fresh = s.fresh[:0]
	for i := range w {
		if err := s.checkWork(&w[i]); err != nil {
			return false, &driver.ItemError{Index: i, Err: err}
		}
		refusable = refusable || w[i].Effects != nil
		s.fresh = append(s.fresh, false)
	}
	return refusable, nil
}

func (s *Store) checkWork(w *driver.Work) error {
	if !s.takes(w.Effects) {
		return fmt.Errorf("effects of type %T: %w", w.Effects, driver.ErrUnsupported)
	}
	if e, ok := w.Effects.(*driver.Statements); ok {
		if err := e.Check(); err != nil {
			return err
		}
	}
	if w.Ack != nil {
		rc, ok := w.Ack.Receipt.(*receipt)
		if !ok || rc.q.db != s.db {
			return fmt.Errorf("ack with a receipt of another queue: %w", driver.ErrUnsupported)
		}
		if err := rc.q.check(w.Ack); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
	}
	if len(w.Emit) > 0 && s.db.standalone {
		return fmt.Errorf("emit from a store that stands alone: %w", driver.ErrUnsupported)
	}
	for i := range w.Emit {
		if w.Emit[i].Queue == "" {
			return fmt.Errorf("emitted message %d names no queue", i)
		}
	}
	return nil
}

// end clears the pointers of the scratch buffers.
func (s *Store) end() {
	clear(s.undo)
	s.undo = s.undo[:0]
}

// writeWork writes a record and its effects, and adds both to the undo log.
func (s *Store) writeWork(rec *record, after *driver.Record, w *driver.Work) error {
	u := undo{record: rec, absent: rec == nil}
	if rec != nil {
		u.written, u.version = rec.Record, rec.version
	}
	s.write(rec, after)
	u.record = s.records[after.Key]
	s.undo = append(s.undo, u)
	e, _ := w.Effects.(*Effects)
	if e == nil {
		return nil
	}
	var err error
	s.undo, err = s.db.tables.apply(e.list, s.undo)
	return err
}

// publish settles and emits for the works that were just written. An ack with an old receipt is no error, because the record
// has decided.
func (s *Store) publish(w []driver.Work, now time.Time) {
	for i := range w {
		if !s.fresh[i] {
			continue
		}
		s.db.execute(w[i].Effects)
		if ack := w[i].Ack; ack != nil {
			q := ack.Receipt.(*receipt).q
			q.settle(ack, now)
			q.wake()
		}
		for j := range w[i].Emit {
			q := s.db.queue(w[i].Emit[j].Queue)
			q.accept(&w[i].Emit[j], now)
			q.wake()
		}
	}
}

// errEnded reports the use of a transaction after its end.
var errEnded = errors.New("transaction has ended")
