package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Receive delivers up to max messages. It waits for the first. A delivery is this process's until it is settled, or its
// partition moves to another member of the group, which receives the message again. Messages with the same Kafka key are
// delivered in their order, one at a time.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("kafka: receive from %s: max is %d, must be at least 1", q.name, limit)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := q.join()
	if err != nil {
		return nil, err
	}
	for {
		ds, wake, due, err := q.take(limit)
		poke(m.hungry) // also if nothing was there: partitions may have moved
		if len(ds) > 0 || err != nil {
			return ds, err
		}
		if err := await(ctx, wake, due); err != nil {
			return nil, err
		}
	}
}

// await waits until wake is closed or the time due has come; a zero due never comes.
func await(ctx context.Context, wake <-chan struct{}, due time.Time) error {
	var timer <-chan time.Time
	if !due.IsZero() {
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-wake:
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// take returns deliveries of what is ready. If nothing is, it returns what to wait for.
func (q *Queue) take(limit int) (ds []driver.Delivery, wake <-chan struct{}, due time.Time, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, nil, due, errors.New("kafka: the queue is closed")
	}
	if again := q.delayed.Due(time.Now()); len(again) > 0 {
		for _, r := range again {
			r.delayed = false
		}
		q.ready = append(again, q.ready...)
	}
	n := min(limit, len(q.ready))
	for i, r := range q.ready[:n] {
		r.holder = &receipt{q: q, r: r}
		ds = append(ds, driver.Delivery{Message: r.msg, Receipt: r.holder})
		q.ready[i] = nil
	}
	if q.ready = q.ready[n:]; n > 0 {
		return ds, nil, due, nil
	}
	err, q.failed = q.failed, nil
	due, _ = q.delayed.Next()
	return nil, q.wake, due, err
}

// signal wakes every Receive that waits. Queue.mu is held.
func (q *Queue) signal() {
	close(q.wake)
	q.wake = make(chan struct{})
}
