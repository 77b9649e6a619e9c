package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// runID names one journal of a key.
type runID struct {
	epoch   uint32
	version driver.Version
}

// Steps reads the journal of a run.
func (s *Store) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("steps of key %q: %w", h.Key.Raw, err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return slices.Clone(s.journals[h.Key][runID{h.Epoch, h.Version}]), nil
}

// WriteSteps writes a journal and its effects in one step. See [driver.StepStore].
func (s *Store) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return driver.Unknown, fmt.Errorf("write steps of key %q: %w: %w", h.Key.Raw, driver.ErrNotCommitted, err)
	}
	for i := range w {
		if !s.takes(w[i].Effects) {
			err := fmt.Errorf("effects of type %T: %w", w[i].Effects, driver.ErrUnsupported)
			return driver.Unknown, &driver.ItemError{Index: i, Err: err}
		}
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	id := runID{h.Epoch, h.Version}
	rec := s.records[h.Key]
	put, effects, o := driver.DecideSteps(rec.value(), s.journals[h.Key][id], h, w, s.db.clock())
	if o != driver.Applied || len(put) == 0 {
		return o, nil
	}
	defer s.end()
	for _, i := range effects {
		e, ok := w[i].Effects.(*Effects)
		if !ok {
			continue
		}
		var err error
		if s.undo, err = s.db.tables.apply(e.list, s.undo); err != nil {
			s.takeBack(s.undo)
			return driver.Unknown, &driver.ItemError{Index: i, Err: err, Transient: errors.Is(err, driver.ErrNotCommitted)}
		}
	}
	for _, i := range effects {
		s.db.execute(w[i].Effects)
	}
	s.putSteps(h, id, put)
	return o, nil
}

// putSteps stores rows. It removes the journals of older versions, which are superseded.
func (s *Store) putSteps(h driver.Hold, id runID, put []driver.Step) {
	all := s.journals[h.Key]
	if all == nil {
		all = map[runID][]driver.Step{}
		s.journals[h.Key] = all
	}
	for other := range all {
		if other.version < id.version {
			delete(all, other)
		}
	}
	rows := all[id]
	for _, p := range put {
		p.Result = slices.Clone(p.Result)
		i, there := slices.BinarySearchFunc(rows, p.Seq, func(r driver.Step, seq int) int { return r.Seq - seq })
		if there {
			rows[i] = p
		} else {
			rows = append(rows, p)
		}
	}
	all[id] = rows
}
