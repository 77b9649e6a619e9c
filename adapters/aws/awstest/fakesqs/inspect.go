package fakesqs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// State is where a message is.
type State string

// The states of a message.
const (
	Visible  State = "visible"
	InFlight State = "in flight"
	Delayed  State = "delayed"
)

// Message is a message in a queue.
type Message struct {
	ID    string
	Body  string
	State State
	// VisibleAt is the end of delay or visibility timeout; it may be past.
	VisibleAt time.Time
	SentAt    time.Time
	// Receives is ApproximateReceiveCount.
	Receives int
	// Attributes are the text or the bytes of the message attributes, by name.
	Attributes                       map[string]string
	Group, DedupID, Sequence, Source string
}

// CreateQueue makes a queue without a client and returns its ARN. A FIFO queue needs the suffix .fifo only, not the
// attribute.
func (s *Server) CreateQueue(name string, attributes map[string]string) (arn string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := createIn{QueueName: name, Attributes: maps.Clone(settings(attributes))}
	if in.Attributes == nil {
		in.Attributes = settings{}
	}
	if len(name) > 5 && name[len(name)-5:] == ".fifo" {
		in.Attributes["FifoQueue"] = "true"
	}
	q, err := s.create(in)
	if err != nil {
		return "", fmt.Errorf("create queue %q: %w", name, err)
	}
	return q.arn, nil
}

// URL is a queue's URL as the options' BaseURL makes it; "http://fake.test" stands for an empty one, as in awstest.Config.
func (s *Server) URL(name string) string {
	base := s.o.BaseURL
	if base == "" {
		base = "http://fake.test"
	}
	return s.url(context.WithValue(context.Background(), baseKey{}, base), &queue{name: name})
}

// Queues are the names of the queues, sorted.
func (s *Server) Queues() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.queues))
}

// Messages are the messages of a queue in the order of their arrival; nil when there is no such queue.
func (s *Server) Messages(name string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, now := s.queues[name], s.o.Clock.Now()
	if q == nil {
		return nil
	}
	s.runTasks(now)
	q.expire(now)
	out := []Message{}
	q.each(func(m *message) bool {
		out = append(out, m.view(now))
		return true
	})
	return out
}

func (m *message) view(now time.Time) Message {
	v := Message{
		ID: m.id, Body: m.body, State: Visible, VisibleAt: m.visibleAt, SentAt: m.sentAt, Receives: m.receives,
		Attributes: map[string]string{}, Group: m.group, DedupID: m.dedupID, Sequence: m.sequence, Source: m.source,
	}
	switch {
	case m.inFlight(now):
		v.State = InFlight
	case m.hidden(now):
		v.State = Delayed
	}
	for name, a := range m.attributes {
		v.Attributes[name] = a.value()
	}
	return v
}

// Count returns how many messages of a queue are visible, in flight and delayed.
func (s *Server) Count(name string) (visible, inFlight, delayed int) {
	for _, m := range s.Messages(name) {
		switch m.State {
		case Visible:
			visible++
		case InFlight:
			inFlight++
		case Delayed:
			delayed++
		}
	}
	return visible, inFlight, delayed
}

// Duplicate lets a message of a standard queue be delivered again although it is in flight, as standard queues sometimes do.
// It returns false if the queue has no such message or is a FIFO queue.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/standard-queues-at-least-once-delivery.html
func (s *Server) Duplicate(name, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil || q.fifo || q.get(id) == nil {
		return false
	}
	m := q.get(id)
	m.again = true
	q.moved(m)
	q.wake()
	return true
}

// Return lets a deleted message of a standard queue be delivered again, as when a server with a copy was down during the
// delete. It returns false if the queue does not remember the message. It remembers the last thousand, of eight mebibytes
// together.
func (s *Server) Return(name, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil || q.fifo {
		return false
	}
	i := slices.IndexFunc(q.removed, func(m *message) bool { return m.id == id })
	if i < 0 {
		return false
	}
	m := q.removed[i]
	q.removed = slices.Delete(q.removed, i, i+1)
	q.removedBytes -= len(m.body)
	m.visibleAt = s.o.Clock.Now()
	s.add(q, m)
	return true
}

// Bounds for Return: a server that runs for days must not keep all messages.
const (
	maxRemoved      = 1000
	maxRemovedBytes = 8 << 20
)

// keep remembers a deleted message.
func (q *queue) keep(m *message) {
	q.removed = append(q.removed, m)
	q.removedBytes += len(m.body)
	for len(q.removed) > maxRemoved || q.removedBytes > maxRemovedBytes {
		q.removedBytes -= len(q.removed[0].body)
		q.removed[0] = nil
		q.removed = q.removed[1:]
	}
}

// HideFromShortPolls lets the next n short polls of a queue find nothing, whatever is in it: a short poll asks only some of
// the service's servers.
func (s *Server) HideFromShortPolls(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		q.blind = n
	}
}

// Shift moves the end of a message's delay or visibility timeout, to earlier if by is negative. It returns false if the
// queue has no such message, or it is already visible.
func (s *Server) Shift(name, id string, by time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		return false
	}
	m := q.get(id)
	if m == nil || !m.hidden(s.o.Clock.Now()) {
		return false
	}
	m.visibleAt = m.visibleAt.Add(by)
	q.moved(m)
	q.wake()
	return true
}

// Stop ends all long polls, and lets later ones not wait. All else goes on.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, q := range s.queues {
		q.wake()
	}
}
