package dynamodb

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Operate does an operator's act and adds it to the record's trail, in one write. It erases no record (driver.ErrUnsupported). See [driver.Operator] and [driver.AuditLog].
func (s *Store) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	var o driver.Outcome
	if op.Kind == driver.Erase {
		// Tokens come from clocks: one of a key whose record is gone could be handed out again by a worker whose clock is behind.
		return driver.Record{}, driver.Unknown, fmt.Errorf("erase key %q: %w on DynamoDB; Try: delete the item of table %s yourself when "+
			"it was not changed for more than %s (aws dynamodb delete-item)", op.Key.Raw, driver.ErrUnsupported, s.table,
			driver.DurationText(s.o.skew()))
	}
	c := &change{key: op.Key}
	op.Reason = clipped(op.Reason)
	if err := s.reload(ctx, c); err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, explain(err, "GetItem", s.table))
	}
	c.decide = func(r row, now time.Time) (after row, write bool, err error) {
		after = r
		after.Record, o, write = driver.DecideOperate(r.Record, op, now, s.drawn())
		if write {
			e := op.Entry(r.Record, after.Record, now)
			after = after.withEntry(&e, s.trail.next(now))
		}
		return after, write, nil
	}
	r, err := s.change(ctx, c)
	if err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, err)
	}
	return r.Record, o, nil
}
