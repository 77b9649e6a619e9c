package semel

import (
	"sync"

	"github.com/semel-dev/semel/driver"
)

// DuplicateRoute is one message of an event.
type DuplicateRoute struct{ MessageID, Route string }

// watched is how many keys DetectDuplicateRoutes remembers, the latest ones.
const watched = 10_000

// DetectDuplicateRoutes observes a consumer and calls found, once for each key, when one source event came as two messages: by two
// rules that overlap, two subscriptions, two notifications of a bucket, or because its source sent it twice. The guard
// makes it take effect once; what it costs, and what unguarded consumers make of it, is worth a look at the rules. found
// must not block. A message that is handed out again is the same message; one that was sent again from a dead letter is none.
func DetectDuplicateRoutes(found func(k Key, first, second DuplicateRoute)) Events {
	w := &routeWatch{found: found, seen: map[Key]*DuplicateRoute{}}
	return Events{Delivery: w.see}
}

type routeWatch struct {
	found func(k Key, first, second DuplicateRoute)

	mu    sync.Mutex
	seen  map[Key]*DuplicateRoute // nil: it was told
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
