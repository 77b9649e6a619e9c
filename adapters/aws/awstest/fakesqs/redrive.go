package fakesqs

import (
	"context"
	"maps"
	"slices"
	"time"
)

// redriven moves a message to the dead-letter queue instead of handing it out once more. It keeps its id, and its count of
// receives goes on. In a standard queue its age does too; a FIFO queue starts it anew.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
func (s *Server) redriven(q *queue, m *message, now time.Time) bool {
	target, most, ok := q.set.policy()
	if !ok || m.here < most {
		return false
	}
	to := s.byARN(target)
	if to == nil || to == q {
		return false // the service cannot move it either, and goes on handing it out
	}
	q.remove(m)
	moved := *m
	moved.here, moved.delivery, moved.handed, moved.again, moved.attempt = 0, 0, false, false, nil
	moved.visibleAt, moved.source = now, q.arn
	if to.fifo {
		moved.retained = now
		to.number(&moved)
	}
	s.add(to, &moved)
	return true
}

// checkTarget checks that the dead-letter queue exists, is of the same kind, and lets itself be used.
func (s *Server) checkTarget(set settings, source string, fifo bool) error {
	target, _, ok := set.policy()
	if !ok {
		return nil
	}
	q := s.byARN(target)
	switch {
	case q == nil:
		return badAttribute("RedrivePolicy", "Dead letter target does not exist.")
	case q.fifo != fifo:
		return badAttribute("RedrivePolicy", "Dead-letter queue must be same type of queue as the source.")
	case !q.set.allows(source):
		return badAttribute("RedrivePolicy", "The redrive allow policy of the dead-letter queue does not allow this source queue.")
	}
	return nil
}

// sources are the queues whose dead-letter queue it is, sorted by name.
func (s *Server) sources(dead *queue) []*queue {
	var out []*queue
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if target, _, ok := s.queues[name].set.policy(); ok && target == dead.arn {
			out = append(out, s.queues[name])
		}
	}
	return out
}

type sourcesOut struct {
	QueueURLs []string `json:"queueUrls"`
	NextToken string   `json:",omitempty"`
}

func (s *Server) listDeadLetterSourceQueues(ctx context.Context, in listIn) (sourcesOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return sourcesOut{}, err
	}
	var all []string
	for _, source := range s.sources(q) {
		all = append(all, source.name)
	}
	names, token, err := page(in, all)
	out := sourcesOut{QueueURLs: []string{}, NextToken: token}
	for _, n := range names {
		out.QueueURLs = append(out.QueueURLs, s.url(ctx, s.queues[n]))
	}
	return out, err
}
