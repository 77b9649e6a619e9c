package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Settle ends deliveries. A message that is to be delivered again becomes a new entry, now or when it is due. The server checks
// that the delivery is still this consumer's: otherwise it is Lost for certain, and the message stays as it is. Settlement.Close
// and the dead letter of Dead are written even then, because both follow from the record.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	verbs := make([][]any, len(s))
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("settle in queue %q: item %d: %w", q.name, i, err)
		}
		verbs[i] = append([]any{"settle"}, settleArgs(&s[i])...)
	}
	defer wake(s...)
	return q.outcomes(ctx, "settle in", verbs)
}

// wake lets receivers look at what settlements have delayed.
func wake(s ...driver.Settlement) {
	for i := range s {
		if s[i].After > 0 {
			s[i].Receipt.(*receipt).q.delayed(s[i].After)
		}
	}
}

// delayed lets receivers look again: this process has delayed a message.
func (q *Queue) delayed(after time.Duration) {
	q.search.delayed(after)
	q.wake.Signal()
}

// Extend keeps deliveries from others for the visibility of the queue from now. It ignores visible, because a pending entry
// has no other time.
func (q *Queue) Extend(ctx context.Context, _ time.Duration, receipts ...any) ([]driver.Outcome, error) {
	verbs := make([][]any, len(receipts))
	for i, r := range receipts {
		if err := q.check(&driver.Settlement{Receipt: r}); err != nil {
			return nil, fmt.Errorf("extend in queue %q: item %d: %w", q.name, i, err)
		}
		rc := r.(*receipt)
		verbs[i] = []any{"extend", rc.entry, q.consumer, rc.times}
	}
	return q.outcomes(ctx, "extend in", verbs)
}

// check refuses settlements that no queue could carry out.
func (q *Queue) check(s *driver.Settlement) error {
	if rc, ok := s.Receipt.(*receipt); !ok || rc.q != q {
		return fmt.Errorf("receipt %T is not of this queue: %w", s.Receipt, driver.ErrUnsupported)
	}
	return s.Check()
}

// settleArgs are the arguments of settle in settle.lua.
func settleArgs(s *driver.Settlement) []any {
	rc := s.Receipt.(*receipt)
	verb, more := "ack", []any(nil)
	switch s.Action {
	case driver.Retry, driver.Defer:
		verb, more = "again", []any{max(s.After, 0).Microseconds(), rc.message, rc.count}
	case driver.Dead:
		head, message := encodeDeadLetter(s.DeadLetter, rc.q.name)
		verb, more = "dead", []any{s.DeadLetter.ID, head, message}
	case driver.Ack:
	}
	return append([]any{verb, rc.entry, rc.q.consumer, rc.times, s.Close}, more...)
}

// outcomes runs verbs that return 1, or 0 for a delivery that is lost.
func (q *Queue) outcomes(ctx context.Context, doing string, verbs [][]any) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(verbs))
	err := ctx.Err()
	var values []any
	if err == nil {
		values, err = q.call(ctx, verbs...)
	}
	for i, v := range values {
		switch v := v.(type) {
		case int64:
			if out[i] = driver.Lost; v == 1 {
				out[i] = driver.Applied
			}
		case error:
			err = errors.Join(err, explain(v))
		}
	}
	if err != nil {
		return out, fmt.Errorf("%s queue %q: %w", doing, q.name, err)
	}
	return out, nil
}
