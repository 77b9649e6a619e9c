package redis

import (
	"context"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
)

// Stats counts what the queue holds, in one step. A delivery that has expired is in flight until it is delivered again.
func (q *Queue) Stats(ctx context.Context) (s driver.QueueStats, err error) {
	var length, delayed, dead *goredis.IntCmd
	var pending *goredis.XPendingCmd
	var first *goredis.XMessageSliceCmd
	_, err = q.s.client.TxPipelined(ctx, func(p goredis.Pipeliner) error {
		length, pending, first = p.XLen(ctx, q.keys[0]), p.XPending(ctx, q.keys[0], Group), p.XRangeN(ctx, q.keys[0], "-", "+", 1)
		delayed, dead = p.ZCard(ctx, q.keys[1]), p.ZCard(ctx, q.keys[3])
		return nil
	})
	if err != nil && !isNoGroup(err) {
		return s, fmt.Errorf("count messages of queue %q: %w", q.name, explain(err))
	}
	if p := pending.Val(); p != nil {
		s.InFlight = p.Count
	}
	s.Visible, s.Delayed, s.DeadLetters = max(length.Val()-s.InFlight, 0), delayed.Val(), dead.Val()
	for _, m := range q.peeked(first.Val()) {
		s.Oldest = max(time.Since(m.SentAt), time.Nanosecond)
	}
	return s, nil
}

// Peek shows up to limit messages without receiving them, oldest first, those in flight too. It does not show delayed ones.
func (q *Queue) Peek(ctx context.Context, limit int) ([]driver.Delivery, error) {
	found, err := q.s.client.XRangeN(ctx, q.keys[0], "-", "+", int64(limit)).Result()
	if err != nil {
		return nil, fmt.Errorf("peek into queue %q: %w", q.name, explain(err))
	}
	return q.peeked(found), nil
}

func (q *Queue) peeked(entries []goredis.XMessage) (out []driver.Delivery) {
	for _, e := range entries {
		m, _ := q.unpack(e.ID, e.Values)
		out = append(out, driver.Delivery{Message: m})
	}
	return out
}

// Purge removes every message, those in flight too, and returns how many.
func (q *Queue) Purge(ctx context.Context) (int64, error) {
	values, err := q.call(ctx, []any{"purge"})
	if err != nil {
		return 0, fmt.Errorf("purge queue %q: %w", q.name, err)
	}
	n, _ := values[0].(int64)
	return n, nil
}

func isNoGroup(err error) bool { return strings.HasPrefix(err.Error(), "NOGROUP") }
