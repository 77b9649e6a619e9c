package fakesqs

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxVisibility is the longest visibility timeout, counted from the receive however often it is extended.
const maxVisibility = 43200

// handleOf makes the receipt handle of the newest delivery. Clients take it as opaque.
func handleOf(q *queue, m *message) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "AQEB %s %s %d", q.arn, m.id, m.delivery))
}

// delivery is what a receipt handle names.
type delivery struct {
	id     string
	number int
}

// parse reads a receipt handle of this queue.
func (q *queue) parse(handle string) (delivery, error) {
	if handle == "" {
		return delivery{}, missing("ReceiptHandle")
	}
	b, err := base64.StdEncoding.DecodeString(handle)
	part := strings.Split(string(b), " ")
	if err != nil || len(part) != 4 || part[0] != "AQEB" || part[1] != q.arn {
		return delivery{}, noSuchHandle(handle)
	}
	n, err := strconv.Atoi(part[3])
	if err != nil {
		return delivery{}, noSuchHandle(handle)
	}
	return delivery{id: part[2], number: n}, nil
}

type settleIn struct {
	ID                string `json:"Id"` // in batches
	QueueURL          string `json:"QueueUrl"`
	ReceiptHandle     string
	VisibilityTimeout *int
}

type settleBatchIn struct {
	QueueURL string `json:"QueueUrl"`
	Entries  []settleIn
}

type settleOut struct {
	ID string `json:"Id,omitempty"`
}

func settleID(e settleIn) string { return e.ID }

func (s *Server) deleteMessage(_ context.Context, in settleIn) (settleOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return settleOut{}, err
	}
	return s.discard(q, in)
}

func (s *Server) deleteMessageBatch(_ context.Context, in settleBatchIn) (batchResult[settleOut], error) {
	return s.settleBatch("DeleteMessageBatchRequestEntry", in, s.discard)
}

func (s *Server) changeMessageVisibility(_ context.Context, in settleIn) (settleOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return settleOut{}, err
	}
	return s.change(q, in)
}

func (s *Server) changeMessageVisibilityBatch(_ context.Context, in settleBatchIn) (batchResult[settleOut], error) {
	return s.settleBatch("ChangeMessageVisibilityBatchRequestEntry", in, s.change)
}

func (s *Server) settleBatch(shape string, in settleBatchIn, do func(*queue, settleIn) (settleOut, error)) (
	batchResult[settleOut], error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return batchResult[settleOut]{}, err
	}
	if err := checkBatch(shape, in.Entries, settleID); err != nil {
		return batchResult[settleOut]{}, err
	}
	return runBatch(in.Entries, settleID, func(e settleIn) (settleOut, error) { return do(q, e) }), nil
}

// discard deletes a message. Deleting a missing one succeeds.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html
func (s *Server) discard(q *queue, in settleIn) (settleOut, error) {
	d, err := q.parse(in.ReceiptHandle)
	if err != nil {
		return settleOut{}, err
	}
	m, now := q.get(d.id), s.o.Clock.Now()
	if m == nil {
		return settleOut{in.ID}, nil
	}
	stale := d.number != m.delivery
	switch {
	case q.fifo && (stale || !m.inFlight(now)):
		return settleOut{}, expiredHandle(in.ReceiptHandle)
	case stale && s.o.Mode == Strict:
		return settleOut{}, noSuchHandle(in.ReceiptHandle)
	case stale && s.o.KeepStaleDeletes:
		return settleOut{in.ID}, nil
	}
	q.remove(m)
	q.keep(m)
	return settleOut{in.ID}, nil
}

func expiredHandle(handle string) error {
	return invalid("ReceiptHandle", handle, "The receipt handle has expired.")
}

// change sets the end of the visibility timeout, counted from now.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html
func (s *Server) change(q *queue, in settleIn) (settleOut, error) {
	d, err := q.parse(in.ReceiptHandle)
	if err != nil {
		return settleOut{}, err
	}
	if in.VisibilityTimeout == nil {
		return settleOut{}, missing("VisibilityTimeout")
	}
	seconds, err := between("VisibilityTimeout", in.VisibilityTimeout, 0, 0, maxVisibility,
		"VisibilityTimeout must be an integer between 0 and 43200.")
	if err != nil {
		return settleOut{}, err
	}
	m, now := q.get(d.id), s.o.Clock.Now()
	if m == nil {
		return settleOut{}, invalid("ReceiptHandle", in.ReceiptHandle,
			"Message does not exist or is not available for visibility timeout change.")
	}
	if late, err := s.late(q, m, d, in, now); late {
		return settleOut{in.ID}, err
	}
	at := now.Add(time.Duration(seconds) * time.Second)
	if at.Sub(m.receivedAt) > maxVisibility*time.Second {
		return settleOut{}, invalid("VisibilityTimeout", seconds,
			"Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
	}
	m.visibleAt = at
	q.touched(m)
	q.wake()
	return settleOut{in.ID}, nil
}

// late is a change by a caller that does not hold the message. A standard queue of the service does not notice: it changes
// the delivery of the current holder, and reports success if there is none.
func (s *Server) late(q *queue, m *message, d delivery, in settleIn, now time.Time) (bool, error) {
	stale, held := d.number != m.delivery, m.inFlight(now)
	switch {
	case !stale && held:
		return false, nil
	case q.fifo:
		return true, expiredHandle(in.ReceiptHandle)
	case s.o.Mode == AWS:
		return !held, nil
	case stale:
		return true, noSuchHandle(in.ReceiptHandle)
	default:
		return true, modelled("MessageNotInflight", legacy+"MessageNotInflight", "The message is not in flight.")
	}
}
