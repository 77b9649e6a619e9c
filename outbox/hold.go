package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// hold keeps the messages of a round from other relays while they are published, and knows when it does not any more.
type hold struct {
	from    driver.Queue
	visible time.Duration // 0 = the queue has no visibility timeout
	// ctx ends when the hold is lost: publishing on would publish out of order.
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	until map[*item]time.Time // missing = lost
}

// holdAll begins to hold what was just received.
func holdAll(ctx context.Context, from driver.Queue, items []*item) *hold {
	h := &hold{from: from, until: map[*item]time.Time{}}
	h.ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	now := time.Now()
	for _, it := range items {
		h.until[it] = now.Add(it.Visible)
		if h.visible == 0 || it.Visible < h.visible {
			h.visible = it.Visible
		}
	}
	if h.visible > 0 {
		h.done.Add(1)
		go h.beat()
	}
	return h
}

// end stops the heartbeat and waits for it.
func (h *hold) end() {
	h.cancel()
	h.done.Wait()
}

// has reports that a message is still ours by our own clock.
func (h *hold) has(it *item) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.until[it]
	return ok && (h.visible == 0 || time.Now().Before(until))
}

// beat extends what is held every third of the visibility, and ends the context when nothing is.
func (h *hold) beat() {
	defer h.done.Done()
	every := max(h.visible/3, time.Millisecond)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-t.C:
		}
		if !h.extend(every) {
			h.cancel()
			return
		}
	}
}

// extend prolongs what is held; false when something is not any more.
func (h *hold) extend(within time.Duration) bool {
	h.mu.Lock()
	items := make([]*item, 0, len(h.until))
	receipts := make([]any, 0, len(h.until))
	for it := range h.until {
		items, receipts = append(items, it), append(receipts, it.Receipt)
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, within)
	defer cancel()
	began := time.Now()
	out, err := h.from.Extend(ctx, h.visible, receipts...)
	h.mu.Lock()
	defer h.mu.Unlock()
	all := true
	for i, it := range items {
		if err == nil && out[i] == driver.Applied {
			h.until[it] = began.Add(h.visible)
		} else if err == nil && out[i] == driver.Lost || time.Now().After(h.until[it]) {
			delete(h.until, it)
			all = false
		}
	}
	return all
}
