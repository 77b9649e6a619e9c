package virtual

import "time"

// Events are events to come, in order of their times; those of one time in the order in which they were added. Its zero
// value is empty.
type Events[E any] struct {
	heap []timed[E]
	seq  uint32
}

type timed[E any] struct {
	at  time.Duration
	seq uint32
	e   E
}

func (e *timed[E]) before(f *timed[E]) bool { return e.at < f.at || (e.at == f.at && e.seq < f.seq) }

// Len returns how many there are.
func (q *Events[E]) Len() int { return len(q.heap) }

// Reset drops all events, and keeps their memory.
func (q *Events[E]) Reset() {
	clear(q.heap)
	q.heap, q.seq = q.heap[:0], 0
}

// Add adds an event.
func (q *Events[E]) Add(at time.Duration, e E) {
	x := timed[E]{at, q.seq, e}
	q.seq++
	h := append(q.heap, x)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !x.before(&h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = x
	q.heap = h
}

// Next removes the first event and returns it with its time. There must be one.
func (q *Events[E]) Next() (time.Duration, E) {
	h := q.heap
	top, last := h[0], h[len(h)-1]
	h[len(h)-1] = timed[E]{}
	h = h[:len(h)-1]
	q.heap = h
	if len(h) == 0 {
		return top.at, top.e
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&last) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = last
	return top.at, top.e
}
