package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
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
	for {
		m, err := q.join() // also after a Purge
		if err != nil {
			return nil, err
		}
		wake := q.wake.C()
		ds, wait, err := q.take(limit)
		poke(m.hungry) // also if nothing was there: partitions may have moved
		if len(ds) > 0 || err != nil {
			return ds, err
		}
		if err := redeliver.Wait(ctx, wait, wake); err != nil {
			return nil, err
		}
	}
}

// take returns deliveries of what is ready. If nothing is, it returns how long to wait.
func (q *Queue) take(limit int) (ds []driver.Delivery, wait time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
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
		return ds, 0, nil
	}
	err, q.failed = q.failed, nil
	wait = time.Hour
	if due, ok := q.delayed.Next(); ok {
		wait = time.Until(due)
	}
	return nil, wait, err
}
