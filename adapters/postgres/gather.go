package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// gather makes batches of calls with one item each, from independent callers (semel.Do, HTTP handlers). While a flush is
// under way, further items wait and go together with the next. A lone caller flushes at once in its own goroutine, so that
// idle calls pay nothing.
type gather[T, R any] struct {
	// flush returns results by position. It must end when ctx does.
	flush func(ctx context.Context, items []T) ([]R, error)

	mu      sync.Mutex
	waiting []*call[T, R]
	began   time.Time // of the flush under way; zero: there is none
	number  uint64    // of the latest flush: one that was given up as stuck must not go on
	last    int       // items of the latest flush
	full    chan struct{}
}

const (
	// gatherMax bounds the items of a flush.
	gatherMax = 500
	// gatherPause bounds how long a flush waits for as many items as the one before had: callers that returned together
	// call again together, and without the pause the first would go alone.
	gatherPause = 300 * time.Microsecond
	// gatherStuck is after how long a flush does not hold up others any more. Its connection may be dead.
	gatherStuck = 2 * time.Second
)

// call is one call. The goroutine that takes it out of waiting sends its result.
type call[T, R any] struct {
	item   T
	result chan result[R] // of room for one
	// leave reports to the flush that has the item that its caller has gone. It needs the lock.
	leave func()
}

type result[R any] struct {
	value R
	err   error
}

func newGather[T, R any](flush func(context.Context, []T) ([]R, error)) *gather[T, R] {
	return &gather[T, R]{flush: flush, full: make(chan struct{}, 1)}
}

// one returns the result of one item. If ctx is done before its turn, nothing was sent and the error wraps
// driver.ErrNotCommitted. After that the outcome is unknown.
func (g *gather[T, R]) one(ctx context.Context, item T) (r R, err error) {
	if err := ctx.Err(); err != nil {
		return r, fmt.Errorf("%w: %w", driver.ErrNotCommitted, err)
	}
	g.mu.Lock()
	idle := g.began.IsZero() || time.Since(g.began) > gatherStuck
	if idle {
		g.number++
		g.began = time.Now()
	}
	number := g.number
	if idle && g.last < 2 && len(g.waiting) == 0 {
		g.last = 1
		g.mu.Unlock()
		return g.alone(ctx, number, item)
	}
	c := &call[T, R]{item: item, result: make(chan result[R], 1)}
	g.waiting = append(g.waiting, c)
	if len(g.waiting) == min(g.last, gatherMax) {
		select {
		case g.full <- struct{}{}:
		default:
		}
	}
	g.mu.Unlock()
	if idle {
		go g.run(number)
	}
	stuck := time.NewTimer(gatherStuck)
	defer stuck.Stop()
	for {
		select {
		case got := <-c.result:
			return got.value, got.err
		case <-ctx.Done():
			return g.leave(ctx, c)
		case <-stuck.C:
			g.relieve()
			stuck.Reset(gatherStuck)
		}
	}
}

// relieve flushes the items behind a stuck flush.
func (g *gather[T, R]) relieve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 && time.Since(g.began) >= gatherStuck {
		g.number++
		g.began = time.Now()
		go g.run(g.number)
	}
}

// alone flushes one item for its own caller, and starts a goroutine for items that came meanwhile.
func (g *gather[T, R]) alone(ctx context.Context, number uint64, item T) (r R, err error) {
	values, err := g.flush(ctx, []T{item})
	if !g.over(number, 1) {
		go g.run(number)
	}
	if err != nil {
		return r, err
	}
	return values[0], nil
}

// leave removes a call whose ctx is done.
func (g *gather[T, R]) leave(ctx context.Context, c *call[T, R]) (r R, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, c); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		return r, fmt.Errorf("%w: %w", driver.ErrNotCommitted, ctx.Err())
	}
	c.leave()
	select {
	case got := <-c.result: // it came meanwhile
		return got.value, got.err
	default:
		return r, ctx.Err()
	}
}

// run flushes until nothing waits, or another goroutine took over because this one took too long. It ends with the last
// caller's result or context, so that nobody has to await it.
func (g *gather[T, R]) run(number uint64) {
	for done := false; !done; {
		g.company()
		ctx, cancel, batch := g.take()
		items := make([]T, len(batch))
		for i, c := range batch {
			items[i] = c.item
		}
		var values []R
		var err error
		if len(batch) > 0 {
			values, err = g.flush(ctx, items)
		}
		cancel()
		for i, c := range batch {
			got := result[R]{err: err}
			if err == nil {
				got.value = values[i]
			}
			c.result <- got
		}
		done = g.over(number, len(batch))
	}
}

// over ends a flush of n items. It reports whether this goroutine has nothing left to flush.
func (g *gather[T, R]) over(number uint64, n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.number != number:
		return true
	case len(g.waiting) == 0:
		g.began = time.Time{}
		if n < 2 { // else the next caller waits for the others
			g.last = n
		}
		return true
	}
	g.began = time.Now()
	return false
}

// company waits briefly until as many callers are there as before.
func (g *gather[T, R]) company() {
	g.mu.Lock()
	select {
	case <-g.full: // of a flush before
	default:
	}
	there := len(g.waiting) >= min(g.last, gatherMax)
	g.mu.Unlock()
	if there {
		return
	}
	t := time.NewTimer(gatherPause)
	defer t.Stop()
	select {
	case <-g.full:
	case <-t.C:
	}
}

// take takes what waits. ctx ends when all its callers have gone.
func (g *gather[T, R]) take() (ctx context.Context, cancel context.CancelFunc, batch []*call[T, R]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := min(len(g.waiting), gatherMax)
	batch, g.waiting = slices.Clone(g.waiting[:left]), slices.Delete(g.waiting, 0, left)
	g.last = left
	ctx, cancel = context.WithCancel(context.Background())
	for _, c := range batch {
		c.leave = func() {
			if left--; left == 0 {
				cancel()
			}
		}
	}
	return ctx, cancel, batch
}
