package memory

import "time"

// status is where an entry is.
type status uint8

const (
	gone    status = iota
	ready          // in Queue.ready, oldest first
	flying         // in flight: in Queue.flights or Queue.timers, until due
	delayed        // in Queue.timers until due
	waiting        // behind the head of its group
)

// list is an intrusive list of entries: no allocation, removal from the middle in constant time.
type list struct{ first, last *entry }

func (l *list) push(e *entry) {
	e.prev, e.next = l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
}

func (l *list) remove(e *entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// timers is a binary heap of entries by due time. Entries know their place (entry.heap, 0 = not in it), so that a settled one
// is removed at once.
type timers []*entry

func (t *timers) push(e *entry) {
	*t = append(*t, e)
	e.heap = len(*t)
	t.up(e.heap - 1)
}

func (t *timers) remove(e *entry) {
	i, last := e.heap-1, len(*t)-1
	t.swap(i, last)
	(*t)[last] = nil
	*t = (*t)[:last]
	e.heap = 0
	if i < last {
		t.down(i)
		t.up(i)
	}
}

func (t timers) swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].heap, t[j].heap = i+1, j+1
}

func (t timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t[i].due.Before(t[parent].due) {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t timers) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(t) {
			return
		}
		if child+1 < len(t) && t[child+1].due.Before(t[child].due) {
			child++
		}
		if !t[child].due.Before(t[i].due) {
			return
		}
		t.swap(i, child)
		i = child
	}
}

// advance makes entries deliverable whose visibility or delay has ended.
func (q *Queue) advance(now time.Time) {
	for e := q.flights.first; e != nil && !e.due.After(now); e = q.flights.first {
		q.toReady(e)
	}
	for len(q.timers) > 0 && !q.timers[0].due.After(now) {
		q.toReady(q.timers[0])
	}
}

// nextDue returns when advance has something to do next. ok is false if there is nothing.
func (q *Queue) nextDue() (due time.Time, ok bool) {
	if e := q.flights.first; e != nil {
		due, ok = e.due, true
	}
	if len(q.timers) > 0 && (!ok || q.timers[0].due.Before(due)) {
		due, ok = q.timers[0].due, true
	}
	return due, ok
}

// toReady makes an entry deliverable, after all others.
func (q *Queue) toReady(e *entry) {
	q.unplace(e)
	q.place(e, ready)
	q.ready.push(e)
}

// schedule makes an entry deliverable at due.
func (q *Queue) schedule(e *entry, due, now time.Time) {
	q.unplace(e)
	e.due = due
	if due.After(now) {
		q.place(e, delayed)
		q.timers.push(e)
		q.dueChanged(e)
		return
	}
	q.place(e, ready)
	q.ready.push(e)
}

// fly keeps an entry from others until due. Visibilities mostly end in the order in which they began: the list takes
// them in constant time, and the heap the others.
func (q *Queue) fly(e *entry, due time.Time) {
	q.unplace(e)
	e.due = due
	q.place(e, flying)
	if back := q.flights.last; back == nil || !due.Before(back.due) {
		e.listed = true
		q.flights.push(e)
	} else {
		q.timers.push(e)
	}
	q.dueChanged(e)
}

func (q *Queue) place(e *entry, s status) {
	e.status = s
	q.counts[s]++
}

// unplace removes an entry from its list or heap. The caller puts it elsewhere, or forgets it.
func (q *Queue) unplace(e *entry) {
	switch {
	case e.heap > 0:
		q.timers.remove(e)
	case e.listed:
		q.flights.remove(e)
		e.listed = false
	case e.status == ready:
		q.ready.remove(e)
	}
	if e.status != gone {
		q.counts[e.status]--
		e.status = gone
	}
}
