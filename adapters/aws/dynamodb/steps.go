package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// An item has 400 KB. A journal that would not fit is refused while nothing depends on it: a step is refused before it runs,
// so that there is room for its result. The writes of compensations are still accepted when no step can begin any more.
const (
	roomToBegin = 256 << 10 // the item, when another step may begin
	roomToEnd   = 320 << 10 // with its result
	roomToUndo  = 384 << 10 // with what compensations write
)

// errJournalFull reports that the item has no room for the journal.
var errJournalFull = errors.New("the journal of steps is full")

// runLocks serialises the writes of a run in this process. At the same time they would fail each other's conditions, and
// every failure is billed.
type runLocks struct {
	once  sync.Once
	slots [64]chan struct{}
}

func (l *runLocks) lock(ctx context.Context, k driver.Key) (unlock func(), err error) {
	l.once.Do(func() {
		for i := range l.slots {
			l.slots[i] = make(chan struct{}, 1)
		}
	})
	h := k.Hash()
	slot := l.slots[int(h[0])%len(l.slots)]
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", driver.ErrNotCommitted, ctx.Err())
	}
}

// Steps reads the journal of a run. See [driver.StepStore].
func (s *Store) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	r, err := s.find(ctx, h.Key)
	var steps []driver.Step
	if err == nil {
		steps, err = r.journal(runOf(&h))
	}
	if err != nil {
		return nil, fmt.Errorf("steps of key %q: %w", h.Key.Raw, err)
	}
	return steps, nil
}

// WriteSteps writes rows of a journal, and their effects in the same transaction. If the item has no room, the error is an
// ItemError before the step runs. If a step has run and its result does not fit, the error wraps [driver.ErrUnsupported].
// See [driver.StepStore].
func (s *Store) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	o, err := s.writeSteps(ctx, &h, w)
	if err != nil {
		return driver.Unknown, fmt.Errorf("write steps of key %q: %w", h.Key.Raw, err)
	}
	return o, nil
}

func (s *Store) writeSteps(ctx context.Context, h *driver.Hold, w []driver.StepWrite) (driver.Outcome, error) {
	if err := s.checkEffects(w); err != nil {
		return driver.Unknown, err
	}
	unlock, err := s.runs.lock(ctx, h.Key)
	if err != nil {
		return driver.Unknown, err
	}
	defer unlock()
	c := &change{key: h.Key}
	if r, ok := s.rows.of(*h); ok {
		c.row = r
	} else if err := s.reload(ctx, c); err != nil {
		return driver.Unknown, fmt.Errorf("%w: %w", driver.ErrNotCommitted, explain(err, "GetItem", s.table))
	}
	for {
		o, err := s.stepsRound(ctx, c, h, w)
		if !errors.Is(err, errOthers) {
			return o, err
		}
		if err := s.reload(ctx, c); err != nil {
			return driver.Unknown, explain(err, "GetItem", s.table)
		}
	}
}

// errOthers ends a round whose effects are not those that were to be sent, because a part of the call was applied before.
var errOthers = errors.New("other effects")

// stepsRound writes rows with their effects, based on the record as it was last seen.
func (s *Store) stepsRound(ctx context.Context, c *change, h *driver.Hold, w []driver.StepWrite) (o driver.Outcome, err error) {
	_, put, named, o, err := s.decideSteps(c.row, h, w, s.now())
	if err != nil || len(put) == 0 && c.read {
		return o, err
	}
	var effects carried
	for _, i := range named {
		effects.add(i, &w[i])
	}
	c.decide = func(r row, now time.Time) (after row, write bool, err error) {
		var again []int
		after, put, again, o, err = s.decideSteps(r, h, w, now)
		if err == nil && len(put) > 0 && !slices.Equal(again, named) {
			err = errOthers
		}
		return after, len(put) > 0, err
	}
	if len(effects.list) == 0 {
		_, err = s.change(ctx, c)
	} else {
		_, err = s.changeWith(ctx, c, effects.list)
	}
	var item *driver.ItemError
	if errors.As(err, &item) && !errors.Is(err, errJournalFull) && len(effects.of) > 0 {
		at := effects.of[0]
		if refused := (*RefusedError)(nil); errors.As(item.Err, &refused) && refused.Write < len(effects.of) {
			at = effects.of[refused.Write]
		}
		err = &driver.ItemError{Index: at, Err: item.Err, Transient: item.Transient}
	}
	return o, err
}

// decideSteps asks the decision table, and refuses rows that have no room.
func (s *Store) decideSteps(
	r row, h *driver.Hold, w []driver.StepWrite, now time.Time,
) (after row, put []driver.Step, effects []int, o driver.Outcome, err error) {
	id := runOf(h)
	steps, err := r.journal(id)
	if err != nil {
		return r, nil, nil, driver.Unknown, err
	}
	put, effects, o = driver.DecideSteps(r.Record, steps, *h, w, now)
	if len(put) == 0 {
		return r, nil, nil, o, nil
	}
	after = r.withSteps(id, put)
	if err := s.checkRoom(&after, w); err != nil {
		return r, nil, nil, driver.Unknown, err
	}
	return after, put, effects, o, nil
}

// checkRoom refuses writes whose item would be too large.
func (s *Store) checkRoom(after *row, w []driver.StepWrite) error {
	size := itemSize(s.shape.encode(after, s.o.TTLSlack)) + itemSize(s.shape.keyOf(after.Key))
	for i := range w {
		room := roomToUndo
		switch w[i].Kind {
		case driver.RegisterStep, driver.StartStep:
			room = roomToBegin
		case driver.FinishStep:
			room = roomToEnd
		}
		if size <= room {
			continue
		}
		full := fmt.Errorf("%w: with step %q the record would have %d KB, and %d are left to it of the %d KB of an item: keep results "+
			"elsewhere and return references to them, or make the run shorter", errJournalFull, w[i].Name, size>>10, room>>10, itemLimit>>10)
		if w[i].Effects != nil || room == roomToBegin {
			return &driver.ItemError{Index: i, Err: full}
		}
		// The step had its effect, so it must not be repeated, and a repetition would not fit either.
		return fmt.Errorf("%w: %w", driver.ErrUnsupported, full)
	}
	return nil
}

// The optional interfaces of a store.
var (
	_ driver.StepStore       = (*Store)(nil)
	_ driver.Operator        = (*Store)(nil)
	_ driver.AuditLog        = (*Store)(nil)
	_ driver.RecordInspector = (*Store)(nil)
	_ driver.RecordScanner   = (*Store)(nil)
	_ driver.Sweeper         = (*Store)(nil)
	_ driver.WorkerLog       = (*Store)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
)
