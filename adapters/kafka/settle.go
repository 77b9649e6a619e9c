package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Settle ends deliveries. Nothing is sent to Kafka here: Applied means that this process remembers it. The position of a
// partition is committed in the background, behind the first message that is not settled. The settlement of a delivery whose
// partition moved is Lost. Dead needs a wrapper: see package driver/deadletter.
func (q *Queue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	for i := range s {
		if err := q.check(&s[i]); err != nil {
			return nil, fmt.Errorf("kafka: settle in %s: item %d: %w", q.name, i, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]driver.Outcome, len(s))
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range s {
		out[i] = q.settle(s[i].Receipt.(*receipt), s[i].Action, s[i].After)
	}
	q.wake.Signal()
	if q.member != nil {
		poke(q.member.dirty)
	}
	return out, nil
}

// check refuses settlements that cannot be carried out.
func (q *Queue) check(s *driver.Settlement) error {
	if rc, ok := s.Receipt.(*receipt); !ok || rc.q != q {
		return fmt.Errorf("receipt %T is not of this queue", s.Receipt)
	}
	if s.Action == driver.Dead {
		return fmt.Errorf("action dead: Kafka has no dead letters: wrap the queue with deadletter.With: %w", driver.ErrUnsupported)
	}
	return s.Check()
}

func (q *Queue) settle(rc *receipt, a driver.Action, after time.Duration) driver.Outcome {
	r := rc.r
	switch {
	case rc.settled == a+1:
		return driver.Applied
	case rc.settled != 0, r.part.revoked, r.holder != rc:
		return driver.Lost
	}
	rc.settled = a + 1
	r.holder = nil
	switch {
	case a == driver.Ack:
		if next := r.part.settle(r); next != nil {
			q.ready = append(q.ready, next)
		}
	case after > 0:
		r.delayed = true
		q.delayed.Put(time.Now().Add(after), r)
	default:
		q.ready = append(q.ready, r)
	}
	return driver.Applied
}

// Extend is not supported: a delivery has no deadline.
func (q *Queue) Extend(_ context.Context, _ time.Duration, _ ...any) ([]driver.Outcome, error) {
	return nil, fmt.Errorf("kafka: extend in %s: a delivery has no deadline: %w", q.name, driver.ErrUnsupported)
}
