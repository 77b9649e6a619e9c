package semel

import (
	"context"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// Limits of the store's duplicate log: a consumer writes one batch per interval, so that a flood of duplicates costs the
// store no more than that. A burst of duplicatesHeld is written in full, a longer flood in part.
const (
	duplicatesEvery   = time.Second
	duplicatesBatch   = 512
	duplicatesHeld    = 8 * duplicatesBatch // more than this are dropped and counted
	duplicatesTimeout = 2 * time.Second     // of one write, and at the end of all that remain
	duplicatesPause   = 30 * time.Second    // after a write that failed
)

// duplicateLog writes duplicates to the store in the background (driver.DuplicateLog). Nothing waits for it: while the store
// is slow or fails, duplicates are dropped and counted.
type duplicateLog struct {
	to            driver.DuplicateLog
	worker, queue string

	mu      sync.Mutex
	pending []driver.Duplicate
	missing int64
	started bool
	closed  bool
	end     context.CancelFunc
	done    chan struct{}
}

// newDuplicateLog returns nil if the store keeps no duplicates.
func newDuplicateLog(s driver.Store, queue string) *duplicateLog {
	to, ok := driver.As[driver.DuplicateLog](s)
	if !ok {
		return nil
	}
	return &duplicateLog{to: to, worker: workerName(), queue: queue, done: make(chan struct{})}
}

// isDuplicate reports whether a trace event is about a duplicate that was settled. A deferred one is redelivered.
func isDuplicate(n *machine.TraceEvent) bool {
	return n.Kind == machine.TraceDecided && n.Duplicate != machine.NoDuplicate && n.Decision != machine.BusyDeferred
}

// record queues the duplicate of a trace event. It does not block.
func (l *duplicateLog) record(n *machine.TraceEvent, at time.Time) {
	if !isDuplicate(n) {
		return
	}
	it := n.Item
	queue := it.Queue
	if queue == "" {
		queue = l.queue
	}
	l.add(driver.Duplicate{
		Key: it.Key, MessageID: it.ID, At: at.Truncate(time.Microsecond), Worker: l.worker, Queue: queue, Count: it.Count,
		Decision: string(decisions[n.Decision]), Cause: string(duplicateCauses[n.Duplicate]),
	})
}

func (l *duplicateLog) add(d driver.Duplicate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) >= duplicatesHeld {
		l.missing++
		return
	}
	l.pending = append(l.pending, d)
	if !l.started {
		l.started = true
		var ctx context.Context
		ctx, l.end = context.WithCancel(context.Background())
		go l.run(ctx)
	}
}

// run writes one batch of pending duplicates per interval until ctx is done, then the rest.
func (l *duplicateLog) run(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(duplicatesEvery)
	defer tick.Stop()
	var notBefore time.Time
	write := func(ctx context.Context) (more bool) {
		if !time.Now().After(notBefore) {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, duplicatesTimeout)
		defer cancel()
		more, err := l.write(ctx)
		if err != nil {
			notBefore = time.Now().Add(duplicatesPause)
		}
		return more
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			write(context.WithoutCancel(ctx)) // a write that began is not cut off
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), duplicatesTimeout)
	defer cancel()
	for write(last) {
		continue
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing += int64(len(l.pending))
	l.pending = nil
}

// write writes one batch. more reports whether there was one. A batch that failed may be in the log: it is not written again.
func (l *duplicateLog) write(ctx context.Context) (more bool, err error) {
	l.mu.Lock()
	batch := l.pending[:min(len(l.pending), duplicatesBatch)]
	l.pending = append([]driver.Duplicate(nil), l.pending[len(batch):]...)
	l.mu.Unlock()
	if len(batch) == 0 {
		return false, nil
	}
	if err = l.to.AddDuplicates(ctx, batch...); err != nil {
		l.mu.Lock()
		l.missing += int64(len(batch))
		l.mu.Unlock()
	}
	return true, err
}

// close writes the pending duplicates and ends the log's goroutine.
func (l *duplicateLog) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	started := l.started
	l.mu.Unlock()
	if started {
		l.end()
		<-l.done
	}
}

// lost returns how many duplicates were not written.
func (l *duplicateLog) lost() int64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.missing
}

// DuplicateRoute is a message of a source event, with the route on which the event came.
type DuplicateRoute struct{ MessageID, Route string }

// watched is how many keys DetectDuplicateRoutes remembers: the latest ones.
const watched = 10_000

// DetectDuplicateRoutes returns Events that call found, once per key, when one source event arrives as two messages. Causes
// are two rules that overlap, two subscriptions, two notifications of a bucket, or a source that sent the event twice. The
// consumer still makes the event take effect once, but unguarded consumers do not, so such rules are worth a look.
//
// Redeliveries and messages redriven from a dead letter do not count. The latest 10,000 keys are remembered. found must not
// block.
func DetectDuplicateRoutes(found func(k Key, first, second DuplicateRoute)) Events {
	w := &routeWatch{found: found, seen: map[Key]*DuplicateRoute{}}
	return Events{Delivery: w.see}
}

type routeWatch struct {
	found func(k Key, first, second DuplicateRoute)

	mu    sync.Mutex
	seen  map[Key]*DuplicateRoute // nil: reported
	order []Key
}

func (w *routeWatch) see(e Event) {
	if e.Kind != EventReceived || e.Route == "" || e.Key.Raw == "" || driver.IsRedrive(e.MessageID) {
		return
	}
	now := DuplicateRoute{MessageID: e.MessageID, Route: e.Route}
	w.mu.Lock()
	first, known := w.seen[e.Key]
	switch {
	case !known:
		if len(w.order) >= watched {
			delete(w.seen, w.order[0])
			w.order = w.order[1:]
		}
		w.order = append(w.order, e.Key)
		w.seen[e.Key] = &now
	case first != nil && first.MessageID != now.MessageID:
		w.seen[e.Key] = nil
	default:
		first = nil
	}
	w.mu.Unlock()
	if first != nil {
		w.found(e.Key, *first, now)
	}
}
