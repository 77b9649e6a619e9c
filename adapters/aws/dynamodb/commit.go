package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/driver"
)

// Offers reports whether effects points to a *[Writes], and sets that to an empty buffer.
func (s *Store) Offers(effects any) bool {
	w, ok := effects.(**Writes)
	if ok {
		*w = &Writes{}
	}
	return ok
}

// Joins returns false: no queue is in a table.
func (s *Store) Joins(driver.Queue) bool { return false }

// Commit writes works: the effects of each work and its record in one transaction, and as many works in a transaction as
// fit. A work without effects is a plain conditional write. If effects are refused, nothing of their transaction is written;
// other transactions may be. See [driver.Committer].
func (s *Store) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	if len(w) == 0 {
		return nil, nil
	}
	out, errs := make([]driver.Outcome, len(w)), make([]error, len(w))
	works, err := s.works(w, out)
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	rows := s.rowsOf(ctx, len(w), func(i int) *driver.Hold { return &w[i].Finish.Hold }, errs)
	for i := range works {
		works[i].row, works[i].read = rows[i].row, rows[i].read
		works[i].bytes = 4096 + len(w[i].Finish.Result) + itemSize(rows[i].row.extra)
	}
	for _, layer := range layers(slices.DeleteFunc(works, func(w *work) bool { return errs[w.index] != nil })) {
		s.each(ctx, len(layer), func(i int, err error) {
			if err == nil {
				err = s.commit(ctx, layer[i])
			}
			for _, w := range layer[i] {
				if !w.done {
					errs[w.index] = err
				}
			}
		})
	}
	return combine(w, out, errs)
}

// combine makes one result of those of all transactions. An ItemError takes precedence: the caller commits the others again,
// and those that were already written are recognised then.
func combine(w []driver.Work, out []driver.Outcome, errs []error) ([]driver.Outcome, error) {
	var item *driver.ItemError
	some := false
	for i, err := range errs {
		if errors.As(err, &item) {
			return nil, fmt.Errorf("commit key %q: %w", w[item.Index].Finish.Hold.Key.Raw, err)
		}
		if some = some || err == nil; err != nil {
			out[i] = driver.Unknown
		}
	}
	if some {
		return out, nil
	}
	i := worst(errs)
	return nil, fmt.Errorf("commit key %q: %w", w[i].Finish.Hold.Key.Raw, errs[i])
}

// worst returns the index of the error to report for a call in which everything failed: the call may return ErrNotCommitted
// only if all errors wrap it.
func worst(errs []error) int {
	return max(0, slices.IndexFunc(errs, func(err error) bool { return !errors.Is(err, driver.ErrNotCommitted) }))
}

// works returns the changes for the works. They put their outcomes into out.
func (s *Store) works(w []driver.Work, out []driver.Outcome) ([]*work, error) {
	works := make([]*work, len(w))
	for i := range w {
		x := &work{index: i}
		f := &w[i].Finish
		err := s.checkWork(&w[i], x)
		if err != nil {
			return nil, &driver.ItemError{Index: i, Err: err}
		}
		x.key = f.Hold.Key
		x.decide = func(r row, now time.Time) (after row, write bool, err error) {
			after = r
			end := *f
			end.Reason = clipped(end.Reason)
			after.Record, out[i], write = driver.DecideFinish(r.Record, end, now)
			return after, write, nil
		}
		works[i] = x
	}
	return works, nil
}

// checkWork refuses a work that this store cannot write.
func (s *Store) checkWork(w *driver.Work, x *work) (err error) {
	if w.Effects != nil {
		e, ok := w.Effects.(*Writes)
		if !ok {
			return fmt.Errorf("effects of type %T: %w", w.Effects, driver.ErrUnsupported)
		}
		if e != nil {
			x.effects = e.list
		}
	}
	if w.Ack != nil {
		return fmt.Errorf("ack with the record: no queue is in a table: %w", driver.ErrUnsupported)
	}
	if len(w.Emit) > 0 {
		return fmt.Errorf("emit with the record: no queue is in a table; write the message into an outbox table of your "+
			"own, or send it when the record is completed: %w", driver.ErrUnsupported)
	}
	x.targets, err = s.checkWrites(x.effects)
	return err
}

// layers sorts works into transactions. The transactions of a layer touch no item twice and are sent at once, one layer
// after the other. A work without effects stays alone: it needs no transaction, which would cost twice as much.
func layers(works []*work) [][][]*work {
	type layer struct {
		groups [][]*work
		all    []*work
		items  int // of the last group of works with effects
		bytes  int
		open   int // its index, -1 = none
	}
	var ls []*layer
	for _, w := range works {
		at := slices.IndexFunc(ls, func(l *layer) bool { return !slices.ContainsFunc(l.all, w.touches) })
		if at < 0 {
			ls = append(ls, &layer{open: -1})
			at = len(ls) - 1
		}
		l := ls[at]
		l.all = append(l.all, w)
		if len(w.effects) == 0 {
			l.groups = append(l.groups, []*work{w})
			continue
		}
		n, size := w.size()
		if l.open < 0 || l.items+n > maxItems || l.bytes+size > maxBytes {
			l.open, l.items, l.bytes = len(l.groups), 0, 0
			l.groups = append(l.groups, nil)
		}
		l.items, l.bytes = l.items+n, l.bytes+size
		l.groups[l.open] = append(l.groups[l.open], w)
	}
	var out [][][]*work
	for _, l := range ls {
		out = append(out, l.groups)
	}
	return out
}

// size returns how much of a transaction a work takes. Two items are for the record and the gate.
func (w *work) size() (items, bytes int) {
	bytes = w.bytes
	for i := range w.targets {
		bytes += w.targets[i].bytes
	}
	return len(w.effects) + 2, bytes
}

// touches reports that two works write the same item.
func (w *work) touches(o *work) bool {
	if w.key == o.key {
		return true
	}
	for i := range w.targets {
		if slices.ContainsFunc(o.targets, func(t target) bool { return w.targets[i].same(&t) }) {
			return true
		}
	}
	return false
}

// commit writes the works of one transaction.
func (s *Store) commit(ctx context.Context, ws []*work) error {
	err := s.together(ctx, ws)
	if !errors.Is(err, errApart) {
		return err
	}
	for _, w := range ws {
		if w.done {
			continue
		}
		if err := s.together(ctx, []*work{w}); err != nil {
			return err
		}
	}
	return nil
}

// theirs reports that a request was refused for its contents, not for its sender.
func theirs(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return notSent(err)
	}
	switch api.ErrorCode() {
	case "ValidationException", "ResourceNotFoundException", "ItemCollectionSizeLimitExceededException", "SerializationException":
		return true
	}
	return false
}
