package fakesqs

import (
	"context"
	"slices"
	"strconv"
)

type attributesIn struct {
	QueueURL       string `json:"QueueUrl"`
	AttributeNames []string
}

type attributesOut struct {
	Attributes map[string]string `json:",omitempty"`
}

// computed are the attributes that cannot be set.
var computed = []string{
	"QueueArn", "CreatedTimestamp", "LastModifiedTimestamp",
	"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
}

func (s *Server) getQueueAttributes(_ context.Context, in attributesIn) (attributesOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return attributesOut{}, err
	}
	out := map[string]string{}
	for name, v := range s.describe(q) {
		if v != "" && (slices.Contains(in.AttributeNames, name) || slices.Contains(in.AttributeNames, "All")) {
			out[name] = v
		}
	}
	for _, name := range in.AttributeNames {
		_, isNumber := numbers[name]
		_, isChoice := choices[name]
		if !isNumber && !isChoice && name != "All" && !slices.Contains(free, name) && !slices.Contains(computed, name) {
			return attributesOut{}, modelled("InvalidAttributeName", "InvalidAttributeName", "Unknown Attribute %s.", name)
		}
	}
	return attributesOut{out}, nil
}

// describe is all attributes, the empty ones included.
func (s *Server) describe(q *queue) map[string]string {
	visible, inFlight, delayed := q.count(s.o.Clock.Now())
	out := map[string]string{
		"QueueArn":                              q.arn,
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Unix(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Unix(), 10),
		"ApproximateNumberOfMessages":           strconv.Itoa(visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(inFlight),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(delayed),
	}
	for name := range numbers {
		out[name] = q.get1(name)
	}
	for name := range choices {
		out[name] = q.get1(name)
	}
	for _, name := range free {
		out[name] = q.get1(name)
	}
	return out
}

type setIn struct {
	QueueURL   string `json:"QueueUrl"`
	Attributes settings
}

func (s *Server) setQueueAttributes(_ context.Context, in setIn) (struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return struct{}{}, err
	}
	if v, ok := in.Attributes["FifoQueue"]; ok && q.fifo && v != "true" {
		return struct{}{}, badAttribute("FifoQueue", "Modifying queue type is not supported.")
	}
	if err := in.Attributes.check(q.fifo); err != nil {
		return struct{}{}, err
	}
	if err := s.checkTarget(in.Attributes, q.arn, q.fifo); err != nil {
		return struct{}{}, err
	}
	q.merge(in.Attributes)
	q.mark()
	now := s.o.Clock.Now()
	q.modified = now
	if _, ok := in.Attributes["DelaySeconds"]; ok && q.fifo {
		q.redelay()
	}
	if _, ok := in.Attributes["MessageRetentionPeriod"]; ok && q.messages.Len() > 0 {
		q.expiry = now // look at every message again
		q.expire(now)
	}
	q.wake()
	return struct{}{}, nil
}

// redelay applies a new delay to messages that wait already. Only FIFO queues do that.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html
func (q *queue) redelay() {
	q.each(func(m *message) bool {
		if m.receives == 0 {
			m.visibleAt = m.sentAt.Add(q.set.seconds("DelaySeconds"))
			q.moved(m)
		}
		return true
	})
}

type tagsIn struct {
	QueueURL string `json:"QueueUrl"`
	Tags     map[string]string
	TagKeys  []string
}

type tagsOut struct {
	Tags map[string]string `json:",omitempty"`
}

func (s *Server) listQueueTags(_ context.Context, in tagsIn) (tagsOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return tagsOut{}, err
	}
	out := map[string]string{}
	for k, v := range q.tags {
		out[k] = v
	}
	return tagsOut{out}, nil
}

func (s *Server) tagQueue(_ context.Context, in tagsIn) (struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return struct{}{}, err
	}
	if len(in.Tags) == 0 {
		return struct{}{}, missing("Tags")
	}
	for k, v := range in.Tags {
		q.tags[k] = v
	}
	q.mark()
	return struct{}{}, nil
}

func (s *Server) untagQueue(_ context.Context, in tagsIn) (struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return struct{}{}, err
	}
	for _, k := range in.TagKeys {
		delete(q.tags, k)
	}
	q.mark()
	return struct{}{}, nil
}
