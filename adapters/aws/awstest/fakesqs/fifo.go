package fakesqs

import "time"

// attempt is a receive that can be repeated with its ReceiveRequestAttemptId.
type attempt struct {
	key      string // its ReceiveRequestAttemptId, "" without
	at       time.Time
	messages []*message
	// deliveries are the numbers of the handles that were handed out.
	deliveries []int
	// spoilt: a message was deleted or had its visibility changed since.
	spoilt bool
}

// takeFIFO delivers messages in the order of their groups, several of one group together. A hidden message blocks only those
// behind it in its group: an earlier message that was returned, while a later one of the same receive is still in flight, is
// delivered again. So two receivers can have messages of one group in flight, unless the receiver that returns one also
// returns all that it holds behind it. The guide guarantees otherwise, and mode Strict does so: it delivers nothing of a
// group while any message of it is in flight.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html
func (s *Server) takeFIFO(q *queue, w wish, room int, now time.Time) []*message {
	if again := q.repeat(w, now); again != nil {
		return again
	}
	blocked := map[string]bool{}
	if s.o.Mode == Strict {
		q.each(func(m *message) bool {
			if m.inFlight(now) {
				blocked[m.group] = true
			}
			return true
		})
	}
	var groups []string
	free := map[string][]*message{}
	q.each(func(m *message) bool {
		switch {
		case blocked[m.group], len(free[m.group]) == room:
		case m.hidden(now):
			blocked[m.group] = true // nothing overtakes one that is delayed either
		case s.redriven(q, m, now):
		default:
			if free[m.group] == nil {
				groups = append(groups, m.group)
			}
			free[m.group] = append(free[m.group], m)
		}
		return len(groups) == 0 || len(free[groups[0]]) < room
	})
	var taken []*message
	for _, g := range groups {
		taken = append(taken, free[g][:min(len(free[g]), room-len(taken))]...)
	}
	a := &attempt{key: w.attempt, at: now, messages: taken}
	for _, m := range taken {
		q.hand(m, now, w.visibility)
		m.attempt = a
		a.deliveries = append(a.deliveries, m.delivery)
	}
	if w.attempt != "" && len(taken) > 0 {
		q.attempts[w.attempt] = a
		q.dirt.mark(kindAttempt, q.name, w.attempt)
	}
	return taken
}

// repeat returns the result of an earlier receive whose response may not have arrived: the same messages with the same
// handles, for five minutes, while all of them are still in flight and none was touched. The visibility timeout starts
// again.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-receiverequestattemptid-request-parameter.html
func (q *queue) repeat(w wish, now time.Time) []*message {
	for id, a := range q.attempts {
		if now.Sub(a.at) >= dedupWindow {
			delete(q.attempts, id)
			q.dirt.mark(kindAttempt, q.name, id)
		}
	}
	a := q.attempts[w.attempt]
	if w.attempt == "" || a == nil || a.spoilt {
		return nil
	}
	for i, m := range a.messages {
		if q.get(m.id) != m || !m.inFlight(now) || m.delivery != a.deliveries[i] {
			return nil
		}
	}
	for _, m := range a.messages {
		m.receivedAt, m.visibleAt = now, now.Add(w.visibility)
		q.moved(m)
	}
	return a.messages
}

// touched marks a message whose visibility was changed, which ends the repetition of its receive. A deleted message needs no
// mark: it is not found.
func (q *queue) touched(m *message) {
	q.moved(m)
	if m.attempt != nil {
		m.attempt.spoilt = true
		q.dirt.mark(kindAttempt, q.name, m.attempt.key)
	}
}
