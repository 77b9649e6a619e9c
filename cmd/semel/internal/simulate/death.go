package simulate

import (
	"context"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// mortalQueue dies before the delete of a message that this process ran. It hides that queue and store may be one, so
// that the delete is a step of its own.
type mortalQueue struct {
	driver.Queue
	ran *sync.Map // the ids of messages whose run here has ended well and is not settled yet
	die func(where, key string)
}

// named is a receipt with the message that it is for.
type named struct {
	id    string
	inner any
}

// Receive hands out what the queue does.
func (q *mortalQueue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	ds, err := q.Queue.Receive(ctx, limit)
	for i := range ds {
		ds[i].Receipt = &named{ds[i].ID, ds[i].Receipt}
	}
	return ds, err
}

// Settle dies when a message that was run here is to be deleted.
func (q *mortalQueue) Settle(ctx context.Context, s ...driver.Settlement) ([]driver.Outcome, error) {
	inner := make([]driver.Settlement, len(s))
	for i := range s {
		inner[i] = s[i]
		r, ok := s[i].Receipt.(*named)
		if !ok {
			continue
		}
		inner[i].Receipt = r.inner
		if _, ran := q.ran.Load(r.id); ran && s[i].Action == driver.Ack {
			q.die("after the record, before the delete", r.id)
		}
	}
	return q.Queue.Settle(ctx, inner...)
}

// Extend passes on.
func (q *mortalQueue) Extend(ctx context.Context, visible time.Duration, receipts ...any) ([]driver.Outcome, error) {
	inner := make([]any, len(receipts))
	for i := range receipts {
		inner[i] = receipts[i]
		if r, ok := receipts[i].(*named); ok {
			inner[i] = r.inner
		}
	}
	return q.Queue.Extend(ctx, visible, inner...)
}

// turn lets one message at a time go from its run to its settlement.
type turn struct {
	mu     sync.Mutex
	holder string
	freed  chan struct{}
}

// take waits for the turn.
func (t *turn) take(ctx context.Context, id string) error {
	for {
		t.mu.Lock()
		if t.holder == "" || t.holder == id {
			t.holder, t.freed = id, make(chan struct{})
			t.mu.Unlock()
			return nil
		}
		freed := t.freed
		t.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return semel.NotApplied(context.Cause(ctx))
		}
	}
}

// pass ends the turn of a message, if it has it.
func (t *turn) pass(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == id && id != "" {
		t.holder = ""
		close(t.freed)
	}
}
