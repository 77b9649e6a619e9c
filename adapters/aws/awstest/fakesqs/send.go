package fakesqs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"time"
)

// dedupWindow is how long a FIFO queue knows a deduplication id.
const dedupWindow = 5 * time.Minute

// sender is SenderId of every message: there are no users here.
const sender = "AIDASEMELFAKESQS00000"

type sendIn struct {
	ID                      string `json:"Id"` // in batches
	QueueURL                string `json:"QueueUrl"`
	MessageBody             string
	DelaySeconds            *int
	MessageAttributes       map[string]attribute
	MessageSystemAttributes map[string]attribute
	MessageGroupID          *string `json:"MessageGroupId"`
	MessageDeduplicationID  *string `json:"MessageDeduplicationId"`
}

type sendOut struct {
	ID                           string `json:"Id,omitempty"`
	MessageID                    string `json:"MessageId"`
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string `json:",omitempty"`
	MD5OfMessageSystemAttributes string `json:",omitempty"`
	SequenceNumber               string `json:",omitempty"`
}

// sent is what a FIFO queue remembers of a message for its deduplication.
type sent struct {
	at           time.Time
	id, sequence string
}

func (s *Server) sendMessage(_ context.Context, in sendIn) (sendOut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return sendOut{}, err
	}
	return s.send(q, in, "One or more parameters are invalid.")
}

type sendBatchIn struct {
	QueueURL string `json:"QueueUrl"`
	Entries  []sendIn
}

func (s *Server) sendMessageBatch(_ context.Context, in sendBatchIn) (batchResult[sendOut], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return batchResult[sendOut]{}, err
	}
	id := func(e sendIn) string { return e.ID }
	if err := checkBatch("SendMessageBatchRequestEntry", in.Entries, id); err != nil {
		return batchResult[sendOut]{}, err
	}
	total := 0
	for _, e := range in.Entries {
		total += size(e.MessageBody, e.MessageAttributes)
	}
	if total > maxSize {
		return batchResult[sendOut]{}, modelled("BatchRequestTooLong", legacy+"BatchRequestTooLong",
			"Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxSize, total)
	}
	return runBatch(in.Entries, id, func(e sendIn) (sendOut, error) {
		return s.send(q, e, "One or more parameters cannot be validated.")
	}), nil
}

func (s *Server) send(q *queue, in sendIn, refused string) (sendOut, error) {
	if err := checkSend(q, in, refused); err != nil {
		return sendOut{}, err
	}
	now := s.o.Clock.Now()
	out := sendOut{
		ID: in.ID, MD5OfMessageBody: sum(in.MessageBody), MD5OfMessageAttributes: digest(in.MessageAttributes),
		MD5OfMessageSystemAttributes: digest(in.MessageSystemAttributes),
	}
	m := &message{
		id: newID(), body: in.MessageBody, attributes: in.MessageAttributes, sender: sender,
		sentAt: now, retained: now, visibleAt: now.Add(q.set.seconds("DelaySeconds")),
	}
	if a, ok := in.MessageSystemAttributes["AWSTraceHeader"]; ok {
		m.trace = &a
	}
	if in.DelaySeconds != nil {
		m.visibleAt = now.Add(time.Duration(*in.DelaySeconds) * time.Second)
	}
	if in.MessageGroupID != nil {
		m.group = *in.MessageGroupID
	}
	if q.fifo {
		if first, ok := q.duplicate(m, in.MessageDeduplicationID, now); ok {
			out.MessageID, out.SequenceNumber = first.id, first.sequence
			return out, nil
		}
	}
	s.add(q, m)
	out.MessageID, out.SequenceNumber = m.id, m.sequence
	return out, nil
}

// duplicate gives the message its number, or finds the one that was sent with its deduplication id less than five minutes
// ago, which may have been received and deleted since.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html
func (q *queue) duplicate(m *message, given *string, now time.Time) (sent, bool) {
	if given != nil {
		m.dedupID = *given
	} else {
		h := sha256.Sum256([]byte(m.body)) // attributes do not count
		m.dedupID = hex.EncodeToString(h[:])
	}
	key := m.dedupID
	if q.get1("DeduplicationScope") == "messageGroup" {
		key = m.group + " " + key // neither has a space in it
	}
	if now.Sub(q.swept) >= dedupWindow {
		q.swept = now
		maps.DeleteFunc(q.dedup, func(id string, old sent) bool {
			over := now.Sub(old.at) >= dedupWindow
			if over {
				q.dirt.mark(kindDedup, q.name, id)
			}
			return over
		})
	}
	if first, ok := q.dedup[key]; ok && now.Sub(first.at) < dedupWindow {
		return first, true
	}
	q.number(m)
	q.dedup[key] = sent{at: now, id: m.id, sequence: m.sequence}
	q.dirt.mark(kindDedup, q.name, key)
	return sent{}, false
}

// number gives a message of a FIFO queue its SequenceNumber: 20 digits, growing.
func (q *queue) number(m *message) {
	q.sequence += 256
	q.mark()
	m.sequence = fmt.Sprintf("188%017d", q.sequence)
}

// checkSend checks what holds for every message.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
func checkSend(q *queue, in sendIn, refused string) error {
	if in.MessageBody == "" {
		return missing("MessageBody")
	}
	if !legal(in.MessageBody) {
		return modelled("InvalidMessageContents", "InvalidMessageContents", "Invalid binary character was found in the message "+
			"body, the set of allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	if err := checkAttributes(in.MessageAttributes); err != nil {
		return err
	}
	for name, a := range in.MessageSystemAttributes {
		if name != "AWSTraceHeader" || a.DataType != "String" || a.value() == "" {
			return invalidValue("Message system attribute '%s' is not valid: only AWSTraceHeader of type String can be sent.", name)
		}
	}
	if most := q.set.number("MaximumMessageSize"); size(in.MessageBody, in.MessageAttributes) > most {
		return invalidValue("%s Reason: Message must be shorter than %d bytes.", refused, most)
	}
	if d := in.DelaySeconds; d != nil {
		switch {
		case q.fifo && *d != 0:
			return invalid("DelaySeconds", *d, "The request include parameter that is not valid for this queue type.")
		case *d < 0 || *d > 900:
			return invalid("DelaySeconds", *d, "DelaySeconds must be >= 0 and <= 900.")
		}
	}
	return checkIDs(q, in)
}

func checkIDs(q *queue, in sendIn) error {
	const reason = "%s can only include alphanumeric and punctuation characters. 1 to 128 in length."
	if g := in.MessageGroupID; g != nil && !validFIFOID(*g) {
		return invalid("MessageGroupId", *g, fmt.Sprintf(reason, "MessageGroupId"))
	}
	if d := in.MessageDeduplicationID; d != nil {
		if !q.fifo {
			return invalid("MessageDeduplicationId", *d, "The request includes a parameter that is not valid for this queue type.")
		}
		if !validFIFOID(*d) {
			return invalid("MessageDeduplicationId", *d, fmt.Sprintf(reason, "MessageDeduplicationId"))
		}
	}
	if !q.fifo {
		return nil
	}
	if in.MessageGroupID == nil {
		return missing("MessageGroupId")
	}
	if in.MessageDeduplicationID == nil && q.get1("ContentBasedDeduplication") != "true" {
		return invalidValue("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided " +
			"explicitly")
	}
	return nil
}

// newID makes a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
