package fakesqs

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

type receiveIn struct {
	QueueURL                    string `json:"QueueUrl"`
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	ReceiveRequestAttemptID     string `json:"ReceiveRequestAttemptId"`
}

type receivedMessage struct {
	MessageID              string `json:"MessageId"`
	ReceiptHandle          string
	MD5OfBody              string
	Body                   string
	Attributes             map[string]string    `json:",omitempty"`
	MD5OfMessageAttributes string               `json:",omitempty"`
	MessageAttributes      map[string]attribute `json:",omitempty"`
}

type receiveOut struct {
	Messages []receivedMessage `json:",omitempty"`
}

// wish is a receive with its defaults filled in.
type wish struct {
	most       int
	visibility time.Duration
	wait       time.Duration
	attempt    string
	chance     *rand.Rand // nil: in order
}

// disorderKey is the context's key of the seed of one receive's disorder.
type disorderKey struct{}

// Disorderly makes one receive of a standard queue as disorderly as Options.Disorder makes all of them.
func Disorderly(ctx context.Context, seed uint64) context.Context {
	return context.WithValue(ctx, disorderKey{}, seed)
}

// between is a parameter or its default, checked.
func between(name string, given *int, def, least, most int, reason string) (int, error) {
	if given == nil {
		return def, nil
	}
	if *given < least || *given > most {
		return 0, invalid(name, *given, reason)
	}
	return *given, nil
}

// receiveMessage delivers messages, or waits for some. A caller that is gone gets none.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
func (s *Server) receiveMessage(ctx context.Context, in receiveIn) (receiveOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return receiveOut{}, err
	}
	w, err := q.wish(in)
	if err != nil {
		return receiveOut{}, err
	}
	w.chance = s.chance
	if seed, ok := ctx.Value(disorderKey{}).(uint64); ok {
		w.chance = rand.New(rand.NewPCG(seed, 1))
	}
	if w.wait == 0 && q.blind > 0 {
		q.blind--
		return receiveOut{}, nil
	}
	end := s.o.Clock.Now().Add(w.wait)
	for {
		now := s.o.Clock.Now()
		if ctx.Err() != nil {
			return receiveOut{}, ctx.Err()
		}
		if q.gone {
			return receiveOut{}, noQueue()
		}
		s.runTasks(now)
		q.expire(now)
		taken, err := s.take(q, w, now)
		if len(taken) > 0 || err != nil || s.stopped || !now.Before(end) {
			return render(q, taken, in), err
		}
		at := end
		if next := q.next(now); !next.IsZero() && next.Before(at) {
			at = next
		}
		if next := s.nextMove(now); !next.IsZero() && next.Before(at) {
			at = next
		}
		changed := q.changed
		s.mu.Unlock()
		s.o.Clock.WaitEither(ctx.Done(), changed, at)
		s.mu.Lock()
	}
}

func (q *queue) wish(in receiveIn) (wish, error) {
	most, err := between("MaxNumberOfMessages", in.MaxNumberOfMessages, 1, 1, 10, "Must be between 1 and 10, if provided.")
	if err != nil {
		return wish{}, err
	}
	visibility, err := between("VisibilityTimeout", in.VisibilityTimeout, q.set.number("VisibilityTimeout"), 0, maxVisibility,
		"Must be between 0 and 43200, if provided.")
	if err != nil {
		return wish{}, err
	}
	wait, err := between("WaitTimeSeconds", in.WaitTimeSeconds, q.set.number("ReceiveMessageWaitTimeSeconds"), 0, 20,
		"Must be >= 0 and <= 20, if provided.")
	if err != nil {
		return wish{}, err
	}
	if in.ReceiveRequestAttemptID != "" {
		switch {
		case !q.fifo:
			return wish{}, invalid("ReceiveRequestAttemptId", in.ReceiveRequestAttemptID,
				"The request includes a parameter that is not valid for this queue type.")
		case !validFIFOID(in.ReceiveRequestAttemptID):
			return wish{}, invalid("ReceiveRequestAttemptId", in.ReceiveRequestAttemptID,
				"ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
		}
	}
	return wish{
		most: most, visibility: time.Duration(visibility) * time.Second, wait: time.Duration(wait) * time.Second,
		attempt: in.ReceiveRequestAttemptID,
	}, nil
}

// take delivers the messages that are available now.
func (s *Server) take(q *queue, w wish, now time.Time) ([]*message, error) {
	room := w.most
	if q.messages.Len() >= s.o.MaxInFlight {
		if _, inFlight, _ := q.count(now); inFlight+room > s.o.MaxInFlight {
			room = s.o.MaxInFlight - inFlight
		}
	}
	if room <= 0 {
		// Only a standard queue reports that, and only to a short poll.
		// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
		if q.fifo || w.wait > 0 {
			return nil, nil
		}
		return nil, &awsjson.Error{
			Status: http.StatusForbidden, Type: "com.amazonaws.sqs#OverLimit", Query: "OverLimit;Sender",
			Message: "Too many messages in flight: delete some, or wait until their visibility timeouts end.",
		}
	}
	if q.fifo {
		return s.takeFIFO(q, w, room, now), nil
	}
	taken := s.takeStandard(q, w, room, now)
	for _, m := range taken {
		q.hand(m, now, w.visibility)
	}
	return taken, nil
}

// takeStandard finds messages in a standard queue. Those that were received three times or more go to the back.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/standard-queues.html
func (s *Server) takeStandard(q *queue, w wish, room int, now time.Time) []*message {
	var taken, late []*message
	enough := room
	if w.chance != nil {
		enough = q.messages.Len()
	}
	q.each(func(m *message) bool {
		switch {
		case m.hidden(now) && !m.again:
		case s.redriven(q, m, now):
		case w.chance != nil && w.wait == 0 && w.chance.IntN(4) == 0: // on a server that a short poll does not ask
		case m.receives >= 3:
			if len(late) < enough {
				late = append(late, m)
			}
		default:
			taken = append(taken, m)
		}
		return len(taken) < enough
	})
	if w.chance != nil {
		taken = append(taken, late...)
		w.chance.Shuffle(len(taken), func(i, j int) { taken[i], taken[j] = taken[j], taken[i] })
		return taken[:min(len(taken), 1+w.chance.IntN(room))]
	}
	return append(taken, late[:min(len(late), room-len(taken))]...)
}

// hand makes a delivery of a message.
func (q *queue) hand(m *message, now time.Time, visibility time.Duration) {
	q.moved(m)
	if m.receives == 0 {
		m.firstReceivedAt = now
	}
	m.receives++
	m.here++
	m.delivery++
	m.handed, m.again = true, false
	m.receivedAt, m.visibleAt = now, now.Add(visibility)
}

func render(q *queue, taken []*message, in receiveIn) receiveOut {
	var out receiveOut
	for _, m := range taken {
		attributes := m.filter(in.MessageAttributeNames)
		out.Messages = append(out.Messages, receivedMessage{
			MessageID: m.id, ReceiptHandle: handleOf(q, m), MD5OfBody: sum(m.body), Body: m.body,
			Attributes:        m.system(append(slices.Clone(in.AttributeNames), in.MessageSystemAttributeNames...)),
			MessageAttributes: attributes, MD5OfMessageAttributes: digest(attributes),
		})
	}
	return out
}

// filter is the attributes that were asked for: by name, by prefix ("bar.*"), or all ("All", ".*").
func (m *message) filter(names []string) map[string]attribute {
	out := map[string]attribute{}
	for name, a := range m.attributes {
		for _, want := range names {
			prefix, isPrefix := strings.CutSuffix(want, ".*")
			if want == "All" || want == name || isPrefix && strings.HasPrefix(name, prefix) {
				out[name] = a
			}
		}
	}
	return out
}

// system is the system attributes that were asked for.
func (m *message) system(names []string) map[string]string {
	all := map[string]string{
		"SenderId":                         m.sender,
		"SentTimestamp":                    millis(m.sentAt),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": millis(m.firstReceivedAt),
		"SequenceNumber":                   m.sequence,
		"MessageDeduplicationId":           m.dedupID,
		"MessageGroupId":                   m.group,
		"DeadLetterQueueSourceArn":         m.source,
	}
	if m.trace != nil {
		all["AWSTraceHeader"] = m.trace.value()
	}
	out := map[string]string{}
	for name, v := range all {
		if v != "" && (slices.Contains(names, "All") || slices.Contains(names, name)) {
			out[name] = v
		}
	}
	return out
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
