package rowqueue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
)

// MaxBatch bounds one Receive or Settle.
const MaxBatch = 1000

// Waiters are the blocked receivers of a process. The zero value is ready.
type Waiters struct {
	mu  sync.Mutex
	all map[*Waiter]bool // whether it waits
}

// Waiter is one Receive that looks or waits.
type Waiter struct {
	// Signal has room for one signal.
	Signal chan struct{}
	queue  string
}

// Receive is the loop of a queue's Receive. take returns what is deliverable now; if that is nothing, next is how long until
// there may be something by itself (negative: unknown). sleep then waits for x.Signal (woken), for next, or until it is time
// to look anyhow; idle counts the looks that found nothing since it was woken.
func (w *Waiters) Receive(ctx context.Context, queue string, limit int,
	take func(ctx context.Context, limit int) (out []driver.Delivery, next time.Duration, err error),
	sleep func(ctx context.Context, x *Waiter, idle int, next time.Duration) (woken bool, err error),
) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("receive from queue %q: max is %d, must be at least 1", queue, limit)
	}
	for idle := 0; ; idle++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		x := w.add(queue) // before the look, so that a later message wakes it
		out, next, err := take(ctx, min(limit, MaxBatch))
		woken := false
		if err == nil && len(out) == 0 {
			w.wait(x)
			woken, err = sleep(ctx, x, idle, next)
		}
		w.remove(x)
		switch {
		case len(out) > 0:
			return out, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, Wrap(err, "receive from", queue)
		case woken:
			idle = 0
		}
	}
}

func (w *Waiters) add(queue string) *Waiter {
	x := &Waiter{Signal: make(chan struct{}, 1), queue: queue}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*Waiter]bool{}
	}
	w.all[x] = false
	return x
}

// wait marks a waiter that has found nothing.
func (w *Waiters) wait(x *Waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[x] = true
}

func (w *Waiters) remove(x *Waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, x)
}

// Wake signals the waiters of some queues. Those that find nothing wait again.
func (w *Waiters) Wake(is func(queue string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.all {
		if is(x.queue) {
			select {
			case x.Signal <- struct{}{}:
			default: // signalled before
			}
		}
	}
}

// WakeQueue signals the waiters of one queue.
func (w *Waiters) WakeQueue(queue string) { w.Wake(func(name string) bool { return name == queue }) }

// Queues are the names of the queues with a receiver that waits.
func (w *Waiters) Queues() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x, waits := range w.all {
		if waits && !slices.Contains(out, x.queue) {
			out = append(out, x.queue)
		}
	}
	return out
}

// Sleep waits for a signal (woken) or for d. It returns an error if ctx is done, or if the database is closed.
func (x *Waiter) Sleep(ctx context.Context, d time.Duration, closing <-chan struct{}, closed error) (woken bool, err error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-x.Signal:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-closing:
		return false, closed
	}
}

// LookWait bounds one look at a queue, and lingerWait what is left of it when its context is done.
const LookWait, lingerWait = time.Minute, 2 * time.Second

// Linger returns a context that ends some time after ctx: messages of a look that is cut off are hidden for their visibility.
func Linger(ctx context.Context) (context.Context, context.CancelFunc) {
	linger, cancel := context.WithTimeout(context.WithoutCancel(ctx), LookWait)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lingerWait, cancel) })
	return linger, func() { stop(); cancel() }
}
