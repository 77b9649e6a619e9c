package fakesqs

import (
	"container/list"
	"net/url"
	"strings"
	"time"
)

// queue is one queue. Everything in it is guarded by the server's lock.
type queue struct {
	name     string
	arn      string
	fifo     bool
	set      settings
	tags     map[string]string
	created  time.Time
	modified time.Time
	purged   time.Time
	gone     bool

	// messages hold *message in the order of arrival; byID finds them.
	messages *list.List
	byID     map[string]*list.Element
	// removed are messages that were deleted, the newest last: tests let them return.
	removed      []*message
	removedBytes int
	// expiry is before the first message's end of retention; zero when there is no message.
	expiry time.Time
	// changed is closed when a message may have become available.
	changed chan struct{}
	// blind is how many short polls find nothing.
	blind int
	dirt  *dirt

	// The rest is for FIFO queues.
	sequence uint64
	dedup    map[string]sent
	attempts map[string]*attempt
	// swept is when expired entries of dedup were last removed.
	swept time.Time
}

// message is one message in one queue.
type message struct {
	id         string
	body       string
	attributes map[string]attribute
	trace      *attribute
	group      string
	dedupID    string
	sequence   string
	sender     string
	order      int64
	// sentAt is SentTimestamp; retained is where retention counts from.
	sentAt, retained time.Time
	// visibleAt is the end of delay or of the visibility timeout.
	visibleAt time.Time
	// handed: the message was received, so it is in flight until visibleAt.
	handed          bool
	receivedAt      time.Time
	firstReceivedAt time.Time
	// receives counts over all queues, here over this one.
	receives, here int
	// delivery numbers the receives: a handle with a lower number is stale.
	delivery int
	source   string   // ARN of the queue whose dead letter it is
	again    bool     // deliver again although in flight
	attempt  *attempt // the receive of a FIFO queue that it was last handed out by
}

func (m *message) hidden(now time.Time) bool   { return now.Before(m.visibleAt) }
func (m *message) inFlight(now time.Time) bool { return m.handed && m.hidden(now) }

// find is the queue of a URL. The lock is held.
func (s *Server) find(queueURL string) (*queue, error) {
	if queueURL == "" {
		return nil, missing("QueueUrl")
	}
	u, err := url.Parse(queueURL)
	if err != nil {
		return nil, noAddress(queueURL)
	}
	account, name, ok := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if !ok { // a name alone is none
		return nil, noAddress(queueURL)
	}
	if account != s.o.Account || s.queues[name] == nil {
		return nil, noQueue()
	}
	q, now := s.queues[name], s.o.Clock.Now()
	s.runTasks(now)
	q.expire(now)
	return q, nil
}

// byARN is the queue of an ARN, nil when there is none.
func (s *Server) byARN(arn string) *queue {
	for _, q := range s.queues {
		if q.arn == arn {
			return q
		}
	}
	return nil
}

// add puts a message at the end.
func (s *Server) add(q *queue, m *message) {
	s.order++
	m.order = s.order
	q.byID[m.id] = q.messages.PushBack(m)
	q.whole(m)
	if end := m.retained.Add(q.set.retention()); q.expiry.IsZero() || end.Before(q.expiry) {
		q.expiry = end
	}
	q.wake()
}

// remove takes a message out.
func (q *queue) remove(m *message) {
	if e := q.byID[m.id]; e != nil {
		q.messages.Remove(e)
		delete(q.byID, m.id)
		q.whole(m)
		q.wake() // its group may be free
	}
}

func (q *queue) get(id string) *message {
	if e := q.byID[id]; e != nil {
		return e.Value.(*message)
	}
	return nil
}

// each calls do for every message in order; do may remove the message it is given.
func (q *queue) each(do func(*message) bool) {
	for e := q.messages.Front(); e != nil; {
		next := e.Next()
		if !do(e.Value.(*message)) {
			return
		}
		e = next
	}
}

// wake lets waiting receives look again.
func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// expire removes messages whose retention has ended, in flight or not.
func (q *queue) expire(now time.Time) {
	if q.expiry.IsZero() || now.Before(q.expiry) {
		return
	}
	q.expiry = time.Time{}
	q.each(func(m *message) bool {
		end := m.retained.Add(q.set.retention())
		if !now.Before(end) {
			q.remove(m)
		} else if q.expiry.IsZero() || end.Before(q.expiry) {
			q.expiry = end
		}
		return true
	})
}

// next is when a message that is hidden now is visible, zero when there is none.
func (q *queue) next(now time.Time) time.Time {
	var at time.Time
	q.each(func(m *message) bool {
		if m.hidden(now) && (at.IsZero() || m.visibleAt.Before(at)) {
			at = m.visibleAt
		}
		return true
	})
	return at
}

// count is how many messages are visible, in flight and delayed.
func (q *queue) count(now time.Time) (visible, inFlight, delayed int) {
	q.each(func(m *message) bool {
		switch {
		case !m.hidden(now):
			visible++
		case m.handed:
			inFlight++
		default:
			delayed++
		}
		return true
	})
	return visible, inFlight, delayed
}
