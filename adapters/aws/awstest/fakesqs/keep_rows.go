package fakesqs

import (
	"container/list"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// This file is what rows look like, both ways.

// stamp is a time in a row: nanoseconds since 1970, 0 for none.
type stamp int64

func stampOf(t time.Time) stamp {
	if t.IsZero() {
		return 0
	}
	return stamp(t.UnixNano())
}

func (s stamp) time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(s))
}

type queueRow struct {
	Set                       settings
	Tags                      map[string]string `json:",omitempty"`
	Created, Modified, Purged stamp
	Sequence                  uint64 `json:",omitempty"`
}

type messageRow struct {
	Body           string
	Attributes     map[string]attribute `json:",omitempty"`
	Trace          *attribute           `json:",omitempty"`
	Group          string               `json:",omitempty"`
	DedupID        string               `json:",omitempty"`
	Sequence       string               `json:",omitempty"`
	Sender         string
	Order          int64
	Sent, Retained stamp
	Source         string `json:",omitempty"`
}

type stateRow struct {
	Visible, Received, First stamp
	Handed, Again            bool `json:",omitempty"`
	Receives, Here, Delivery int
}

type dedupRow struct {
	At           stamp
	ID, Sequence string
}

type attemptRow struct {
	At         stamp
	Messages   []string
	Deliveries []int
	Spoilt     bool `json:",omitempty"`
}

type taskRow struct {
	// Number puts tasks in the order in which they were started.
	Number          int
	Source, Dest    string
	PerSecond       int
	Started         stamp
	Status, Reason  string
	ToMove, MovedBy int
}

// value is what a row holds now, nil when there is no such thing. The lock is held.
func (s *Server) value(p place) any {
	switch p.kind {
	case kindDeleted:
		if at, ok := s.deleted[p.id]; ok {
			return stampOf(at)
		}
		return nil
	case kindTask:
		if i := slices.IndexFunc(s.tasks, func(t *moveTask) bool { return t.id == p.id }); i >= 0 {
			t := s.tasks[i]
			return taskRow{i, t.source, t.dest, t.perSecond, stampOf(t.started), t.status, t.reason, t.toMove, t.moved}
		}
		return nil
	}
	q := s.queues[p.queue]
	if q == nil {
		return nil
	}
	return q.value(p)
}

func (q *queue) value(p place) any {
	switch p.kind {
	case kindQueue:
		return queueRow{q.set, q.tags, stampOf(q.created), stampOf(q.modified), stampOf(q.purged), q.sequence}
	case kindDedup:
		if d, ok := q.dedup[p.id]; ok {
			return dedupRow{stampOf(d.at), d.id, d.sequence}
		}
	case kindAttempt:
		if a := q.attempts[p.id]; a != nil {
			r := attemptRow{At: stampOf(a.at), Deliveries: a.deliveries, Spoilt: a.spoilt}
			for _, m := range a.messages {
				r.Messages = append(r.Messages, m.id)
			}
			return r
		}
	case kindMessage:
		if m := q.get(p.id); m != nil {
			return messageRow{
				m.body, m.attributes, m.trace, m.group, m.dedupID, m.sequence, m.sender, m.order, stampOf(m.sentAt),
				stampOf(m.retained), m.source,
			}
		}
	case kindState:
		if m := q.get(p.id); m != nil {
			return stateRow{
				stampOf(m.visibleAt), stampOf(m.receivedAt), stampOf(m.firstReceivedAt), m.handed, m.again, m.receives, m.here,
				m.delivery,
			}
		}
	}
	return nil
}

// loader gathers rows, which come in any order.
type loader struct {
	s        *Server
	states   map[place]stateRow
	dedup    map[place]dedupRow
	attempts map[place]attemptRow
	messages []loaded
	tasks    []numbered
}

type loaded struct {
	place
	messageRow
}

type numbered struct {
	at int
	*moveTask
}

// load makes what a keeper has.
func (s *Server) load(k Keeper) error {
	l := &loader{s: s, states: map[place]stateRow{}, dedup: map[place]dedupRow{}, attempts: map[place]attemptRow{}}
	if err := k.Load(l.row); err != nil {
		return fmt.Errorf("load what was kept: %w", err)
	}
	slices.SortFunc(l.messages, func(a, b loaded) int { return int(a.Order - b.Order) })
	for _, m := range l.messages {
		if err := l.message(m); err != nil {
			return err
		}
	}
	for p, d := range l.dedup {
		if q := s.queues[p.queue]; q != nil {
			q.dedup[p.id] = sent{d.At.time(), d.ID, d.Sequence}
		}
	}
	for p, a := range l.attempts {
		l.attempt(p, a)
	}
	slices.SortFunc(l.tasks, func(a, b numbered) int { return a.at - b.at })
	for _, t := range l.tasks {
		s.tasks = append(s.tasks, t.moveTask)
	}
	return nil
}

// row takes one row.
func (l *loader) row(r Row) error {
	p := place{r.Kind, r.Queue, r.ID}
	var err error
	switch r.Kind {
	case kindQueue:
		var v queueRow
		if err = json.Unmarshal(r.Value, &v); err == nil {
			l.s.queues[r.Queue] = l.s.queue(r.Queue, v)
		}
	case kindMessage:
		v := loaded{place: p}
		err = json.Unmarshal(r.Value, &v.messageRow)
		l.messages = append(l.messages, v)
	case kindState:
		err = read(l.states, p, r.Value)
	case kindDedup:
		err = read(l.dedup, p, r.Value)
	case kindAttempt:
		err = read(l.attempts, p, r.Value)
	case kindDeleted:
		var at stamp
		err = json.Unmarshal(r.Value, &at)
		l.s.deleted[r.ID] = at.time()
	case kindTask:
		var v taskRow
		err = json.Unmarshal(r.Value, &v)
		l.tasks = append(l.tasks, numbered{v.Number, &moveTask{
			id: r.ID, source: v.Source, dest: v.Dest, perSecond: v.PerSecond, started: v.Started.time(), status: v.Status,
			reason: v.Reason, toMove: v.ToMove, moved: v.MovedBy,
		}})
	default:
		return fmt.Errorf("a row of the unknown kind %q: a newer version wrote it", r.Kind)
	}
	if err != nil {
		return fmt.Errorf("%s %q of queue %q is damaged: %w", r.Kind, r.ID, r.Queue, err)
	}
	return nil
}

func read[T any](into map[place]T, p place, value []byte) error {
	var v T
	err := json.Unmarshal(value, &v)
	into[p] = v
	return err
}

func (s *Server) queue(name string, r queueRow) *queue {
	q := newQueue(name, s.arn(name), r.Set["FifoQueue"] == "true", r.Created.time())
	q.modified, q.purged, q.sequence = r.Modified.time(), r.Purged.time(), r.Sequence
	if r.Set != nil {
		q.set = r.Set
	}
	if r.Tags != nil {
		q.tags = r.Tags
	}
	return q
}

func (l *loader) message(r loaded) error {
	q := l.s.queues[r.queue]
	st, ok := l.states[place{kindState, r.queue, r.id}]
	if q == nil || !ok {
		return fmt.Errorf("message %q of queue %q is there in part: the file is damaged", r.id, r.queue)
	}
	l.s.order = r.Order - 1 // add counts on
	l.s.add(q, &message{
		id: r.id, body: r.Body, attributes: r.Attributes, trace: r.Trace, group: r.Group, dedupID: r.DedupID, sequence: r.Sequence,
		sender: r.Sender, sentAt: r.Sent.time(), retained: r.Retained.time(), visibleAt: st.Visible.time(), handed: st.Handed,
		receivedAt: st.Received.time(), firstReceivedAt: st.First.time(), receives: st.Receives, here: st.Here, delivery: st.Delivery,
		source: r.Source, again: st.Again,
	})
	return nil
}

// attempt binds a receive that may be repeated to its messages. One that is gone ends it.
func (l *loader) attempt(p place, r attemptRow) {
	q := l.s.queues[p.queue]
	if q == nil {
		return
	}
	a := &attempt{key: p.id, at: r.At.time(), deliveries: r.Deliveries, spoilt: r.Spoilt}
	for i, id := range r.Messages {
		m := q.get(id)
		switch {
		case m == nil:
			m = &message{id: id}
		case i < len(r.Deliveries) && m.delivery == r.Deliveries[i]:
			m.attempt = a
		}
		a.messages = append(a.messages, m)
	}
	q.attempts[p.id] = a
}

// newQueue makes a queue without messages.
func newQueue(name, arn string, fifo bool, now time.Time) *queue {
	return &queue{
		name: name, arn: arn, fifo: fifo, set: settings{}, tags: map[string]string{}, created: now, modified: now,
		messages: list.New(), byID: map[string]*list.Element{}, changed: make(chan struct{}), dedup: map[string]sent{},
		attempts: map[string]*attempt{},
	}
}
