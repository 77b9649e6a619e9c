package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
)

// hold keeps the messages of a round from other relays while they are published, and knows when it no longer does.
type hold struct {
	time    virtual.Time
	from    driver.Queue
	visible time.Duration // 0 = the queue has no visibility timeout
	// ctx ends when the hold is lost: publishing on would publish out of order.
	ctx    context.Context
	cancel context.CancelFunc
	stop   func() // the heartbeat

	mu    sync.Mutex
	items []*item             // in the order of their hand-out
	until map[*item]time.Time // missing = lost
}

// holdAll begins to hold what was just received.
func holdAll(ctx context.Context, t virtual.Time, from driver.Queue, items []*item) *hold {
	h := &hold{time: t, from: from, items: items, until: map[*item]time.Time{}, stop: func() { /* no heartbeat */ }}
	h.ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	now := t.Now()
	for _, it := range items {
		h.until[it] = now.Add(it.Visible)
		if h.visible == 0 || it.Visible < h.visible {
			h.visible = it.Visible
		}
	}
	if h.visible > 0 {
		every := max(h.visible/3, time.Millisecond)
		h.stop = t.Beat(every, func() bool {
			if h.ctx.Err() == nil && !h.extend(every) {
				h.cancel()
			}
			return h.ctx.Err() == nil
		})
	}
	return h
}

// end stops the heartbeat and waits for it.
func (h *hold) end() {
	h.cancel()
	h.stop()
}

// has reports that a message is still ours by our own clock.
func (h *hold) has(it *item) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.until[it]
	return ok && (h.visible == 0 || h.time.Now().Before(until))
}

// extend prolongs the messages that are held. It returns false when one is lost.
func (h *hold) extend(within time.Duration) bool {
	h.mu.Lock()
	items := make([]*item, 0, len(h.until))
	receipts := make([]any, 0, len(h.until))
	for _, it := range h.items {
		if _, ok := h.until[it]; ok {
			items, receipts = append(items, it), append(receipts, it.Receipt)
		}
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, within)
	defer cancel()
	began := h.time.Now()
	out, err := h.from.Extend(ctx, h.visible, receipts...)
	h.mu.Lock()
	defer h.mu.Unlock()
	all := true
	for i, it := range items {
		if err == nil && out[i] == driver.Applied {
			h.until[it] = began.Add(h.visible)
		} else if err == nil && out[i] == driver.Lost || h.time.Now().After(h.until[it]) {
			delete(h.until, it)
			all = false
		}
	}
	return all
}
