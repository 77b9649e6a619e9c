package verify

import (
	"context"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// shellQueue is a queue as one process sees it: only the process whose turn it is receives, one message at a time. The
// settlements of a dead process change nothing, and delays are skipped.
type shellQueue struct {
	p     *Process
	inner driver.Queue

	mu    sync.Mutex
	inFly map[any]string // message ids by receipt
}

func newShellQueue(p *Process, q driver.Queue) *shellQueue {
	return &shellQueue{p: p, inner: q, inFly: map[any]string{}}
}

// Features are the inner queue's. Its own redrive policy would only make deferrals longer.
func (q *shellQueue) Features() driver.QueueFeatures {
	f := q.inner.Features()
	f.Redrives = false
	return f
}

// Receive waits for the process's turn, and for a message.
func (q *shellQueue) Receive(ctx context.Context, _ int) ([]driver.Delivery, error) {
	for {
		turn, end, err := q.turn(ctx)
		if err != nil {
			return nil, err
		}
		ds, err := q.inner.Receive(turn, 1)
		over := turn.Err() != nil
		end()
		if over && len(ds) > 0 {
			q.putBack(ds)
			ds = nil
		}
		switch {
		case over && ctx.Err() != nil:
			return nil, ctx.Err()
		case over:
			continue
		}
		q.mu.Lock()
		for i := range ds {
			q.inFly[ds[i].Receipt] = ds[i].ID
		}
		q.mu.Unlock()
		return ds, err
	}
}

// turn waits until it is the process's turn. The context that it returns ends with the turn.
func (q *shellQueue) turn(ctx context.Context) (turn context.Context, end context.CancelFunc, err error) {
	if !q.until(ctx, true) {
		return nil, nil, ctx.Err()
	}
	turn, end = context.WithCancel(ctx)
	go func() {
		defer end()
		q.until(turn, false)
	}()
	return turn, end, nil
}

// until waits until it is, or is not, the process's turn; false when ctx ended before.
func (q *shellQueue) until(ctx context.Context, mine bool) bool {
	w := q.p.w
	for {
		w.mu.Lock()
		now, changed := w.turn == q.p && !q.p.dead && !w.over, w.changed
		w.mu.Unlock()
		if now == mine {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (q *shellQueue) putBack(ds []driver.Delivery) {
	for i := range ds {
		_, _ = q.inner.Settle(context.Background(), driver.Settlement{Receipt: ds[i].Receipt, Action: driver.Defer})
	}
}

// Settle ends deliveries in the inner queue.
func (q *shellQueue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	w := q.p.w
	w.mu.Lock()
	dead := q.p.dead || w.over
	w.mu.Unlock()
	if dead {
		return allLost(len(s)), nil
	}
	s = append([]driver.Settlement(nil), s...)
	for i := range s {
		s[i].After = min(s[i].After, 5*time.Millisecond) // delays are skipped, but a busy message does not spin
	}
	out, err := q.inner.Settle(ctx, s...)
	for i := range out {
		if out[i] == driver.Applied {
			q.settled(&s[i])
		}
	}
	return out, err
}

func (q *shellQueue) settled(s *driver.Settlement) {
	q.mu.Lock()
	id := q.inFly[s.Receipt]
	delete(q.inFly, s.Receipt)
	q.mu.Unlock()
	q.p.w.update(func() {
		switch s.Action {
		case driver.Ack:
			q.p.w.ended[id] = "acked"
		case driver.Dead:
			q.p.w.ended[id] = "a dead letter: " + s.DeadLetter.Reason
			q.p.w.deadLettered = true
			q.p.w.parked = q.p.w.parked || s.DeadLetter.Kind == driver.DeadLetterUncertain
			q.p.w.failed = q.p.w.failed || s.DeadLetter.Kind == driver.DeadLetterFailed
		default:
			q.p.w.returned[id]++
		}
	})
}

// Extend keeps deliveries invisible.
func (q *shellQueue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	return q.inner.Extend(ctx, visible, receipts...)
}

func (q *shellQueue) expire(ctx context.Context) {
	q.mu.Lock()
	var rs []any
	for r := range q.inFly {
		rs = append(rs, r)
	}
	q.mu.Unlock()
	if len(rs) == 0 {
		return
	}
	if q.inner.Features().Extends {
		_, _ = q.inner.Extend(ctx, soon, rs...) // at worst it becomes visible by itself
		return
	}
	for _, r := range rs {
		_, _ = q.inner.Settle(ctx, driver.Settlement{Receipt: r, Action: driver.Defer})
	}
}
