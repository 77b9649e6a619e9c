package sqs

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// This file defines the format of dead letters in a queue. IDs and format are stored for as long as the dead letters are.

// deadLetterMeta is a dead letter without its message.
type deadLetterMeta struct {
	ID         string                `json:"id"`
	Kind       driver.DeadLetterKind `json:"kind"`
	Reason     string                `json:"reason"`
	Consumer   string                `json:"consumer"`
	Tenant     string                `json:"tenant,omitempty"`
	Key        string                `json:"key"`
	Generation uint32                `json:"generation"`
	Token      uint64                `json:"token"`
	Version    []byte                `json:"version,omitempty"`
	Attempts   int                   `json:"attempts"`
	Queue      string                `json:"queue"`
	SentAt     time.Time             `json:"sent_at"`
	First      time.Time             `json:"first_received"`
	DeadAt     time.Time             `json:"dead_at"`
}

func metaOf(l *driver.DeadLetter) deadLetterMeta {
	return deadLetterMeta{
		ID: l.ID, Kind: l.Kind, Reason: strings.ToValidUTF8(l.Reason, "�"), Consumer: l.Key.Consumer, Tenant: l.Key.Tenant,
		Key: l.Key.Raw, Generation: l.Generation, Token: l.Token, Version: []byte(l.Version), Attempts: l.Attempts,
		Queue: l.Message.Queue, SentAt: l.Message.SentAt.UTC(), First: l.FirstReceived.UTC(), DeadAt: l.DeadAt.UTC(),
	}
}

func (m *deadLetterMeta) deadLetter(of driver.Message) driver.DeadLetter {
	of.Queue, of.SentAt = m.Queue, m.SentAt
	return driver.DeadLetter{
		ID: m.ID, Kind: m.Kind, Reason: m.Reason, Key: driver.Key{Consumer: m.Consumer, Tenant: m.Tenant, Raw: m.Key},
		Generation: m.Generation, Token: m.Token, Version: driver.Version(m.Version), Attempts: m.Attempts, Message: of,
		FirstReceived: m.First, DeadAt: m.DeadAt,
	}
}

// pieceMeta identifies a piece: its number, and the dead letter and the copy (set) that it belongs to.
type pieceMeta struct {
	DeadLetter string    `json:"dead_letter"`
	Set        string    `json:"set"`
	Number     int       `json:"number"`
	Of         int       `json:"of"`
	DeadAt     time.Time `json:"dead_at"`
}

// wholeDeadLetter is a dead letter that is sent in pieces.
type wholeDeadLetter struct {
	Meta    deadLetterMeta    `json:"meta"`
	ID      string            `json:"message_id"`
	Group   string            `json:"group,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"body"`
}

// pieceSize leaves room for the attributes of a piece.
const pieceSize = 4096

// write makes the messages of a dead letter: one, or pieces if one would be too large.
func (b *DeadLetterQueue) write(l *driver.DeadLetter) ([]outgoing, error) {
	meta := metaOf(l)
	text, err := asciiJSON(meta)
	if err != nil {
		return nil, err
	}
	p, err := pack(&l.Message, true, map[string]string{attrDeadLetter: text})
	if err != nil {
		return nil, err
	}
	if p.size() <= b.q.is.maxSize {
		return []outgoing{b.outgoing(p, "the dead letter")}, nil
	}
	m := &l.Message
	if text, err = asciiJSON(wholeDeadLetter{Meta: meta, ID: m.ID, Group: m.Group, Headers: m.Headers, Body: m.Body}); err != nil {
		return nil, err
	}
	room := b.q.is.maxSize - pieceSize
	if room <= 0 {
		return nil, fmt.Errorf("queue %q takes %d bytes at most, which is too small for dead letters: raise its MaximumMessageSize",
			b.q.name, b.q.is.maxSize)
	}
	piece := pieceMeta{DeadLetter: l.ID, Set: driver.NewMessageID(), Of: (len(text) + room - 1) / room, DeadAt: l.DeadAt.UTC()}
	var out []outgoing
	for ; len(text) > 0; piece.Number++ {
		n := min(room, len(text))
		attr, err := asciiJSON(piece)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("piece %d of %d of the dead letter", piece.Number+1, piece.Of)
		out = append(out, b.outgoing(packed{body: text[:n], attrs: map[string]string{attrPart: attr}}, what))
		text = text[n:]
	}
	return out, nil
}

// outgoing gives every copy its own group and deduplication ID: a dead letter in flight must not hide another, and SQS must
// not drop one that was deleted and written again.
func (b *DeadLetterQueue) outgoing(p packed, what string) outgoing {
	o := outgoing{packed: p, what: what}
	if b.q.is.fifo {
		o.dedup = driver.NewMessageID()
		o.group = ungrouped + o.dedup
	}
	return o
}

// read makes a dead letter of a message that was put, or that the provider moved.
func (b *DeadLetterQueue) read(in *types.Message) driver.DeadLetter {
	m := b.q.unpack(in)
	if text := deref(in.MessageAttributes[attrDeadLetter].StringValue); text != "" {
		var meta deadLetterMeta
		err := json.Unmarshal([]byte(text), &meta)
		if err == nil && meta.ID != "" {
			return meta.deadLetter(m)
		}
		b.q.o.Logger.Warn("attribute cannot be read", "queue", b.q.name, "message_id", m.ID, "attribute", attrDeadLetter, "err", err)
	}
	if from := in.Attributes["DeadLetterQueueSourceArn"]; from != "" {
		m.Queue = from[strings.LastIndexByte(from, ':')+1:] // several queues may share a dead-letter queue
	}
	l := withoutKey(in, m)
	l.ID, l.DeadAt = "sqs-"+deref(in.MessageId), m.SentAt
	l.Reason = fmt.Sprintf("moved here by SQS: it was received too often without being settled (%d receives so far); "+
		"its key is unknown", l.Attempts)
	return l
}

// withoutKey makes a dead letter of a message that no consumer has seen: its key is unknown.
func withoutKey(in *types.Message, m driver.Message) driver.DeadLetter {
	if identity(m.Headers) == "" && m.ID != "" {
		// When it is sent again, the message gets another ID. If its ID was its key, this header keeps it.
		h := map[string]string{"idempotency-key": m.ID}
		for k, v := range m.Headers {
			h[k] = v
		}
		m.Headers = h
	}
	count, _ := strconv.Atoi(in.Attributes["ApproximateReceiveCount"])
	return driver.DeadLetter{
		Kind: driver.DeadLetterFailed, Attempts: count, Message: m,
		FirstReceived: millis(in.Attributes["ApproximateFirstReceiveTimestamp"]),
	}
}

// identity returns the header that key.ByID would choose; empty = there is none.
func identity(h map[string]string) string {
	m := driver.Message{Headers: h}
	for _, name := range []string{"idempotency-key", "message-id", "nats-msg-id"} {
		if m.Header(name) != "" {
			return name
		}
	}
	for _, pair := range [][2]string{
		{"ce-id", "ce-source"}, {"ce_id", "ce_source"}, {"cloudEvents:id", "cloudEvents:source"}, {"cloudEvents_id", "cloudEvents_source"},
	} {
		if m.Header(pair[0]) != "" && m.Header(pair[1]) != "" {
			return pair[0]
		}
	}
	return ""
}

// piece is a message with a piece of a dead letter.
type piece struct {
	pieceMeta
	text, handle string
}

// readPart reads a piece; false for a message that only looks like one.
func readPart(in *types.Message) (p piece, ok bool) {
	text := deref(in.MessageAttributes[attrPart].StringValue)
	if text == "" {
		return p, false
	}
	if err := json.Unmarshal([]byte(text), &p.pieceMeta); err != nil || p.DeadLetter == "" || p.Number < 0 || p.Number >= p.Of {
		return p, false
	}
	p.text, p.handle = deref(in.Body), deref(in.ReceiptHandle)
	return p, true
}

// setOf is one copy of a dead letter. Its sizes are not trusted: anybody may have sent a piece.
type setOf struct {
	deadLetter, set string
	of              int
}

// join puts pieces together. If pieces are missing, the write was never finished, or another process holds a piece. Such a
// copy is no dead letter, and is deleted with the others of its ID.
func (b *DeadLetterQueue) join(byID map[string]*held, pieces []piece) {
	sets := map[setOf]map[int]string{}
	for _, p := range pieces {
		k := setOf{p.DeadLetter, p.Set, p.Of}
		if sets[k] == nil {
			sets[k] = map[int]string{}
		}
		sets[k][p.Number] = p.text
		h := byID[p.DeadLetter]
		if h == nil {
			h = &held{DeadLetter: driver.DeadLetter{ID: p.DeadLetter, DeadAt: p.DeadAt}}
			byID[p.DeadLetter] = h
		}
		h.handles = append(h.handles, p.handle)
	}
	for k, texts := range sets {
		if len(texts) < k.of {
			continue
		}
		var all strings.Builder
		for n := range k.of {
			all.WriteString(texts[n])
		}
		var w wholeDeadLetter
		if err := json.Unmarshal([]byte(all.String()), &w); err != nil || w.Meta.ID != k.deadLetter {
			continue
		}
		b.add(byID, w.Meta.deadLetter(driver.Message{ID: w.ID, Group: w.Group, Headers: w.Headers, Body: w.Body}))
	}
}

// returnPart moves a piece of a dead letter, which a redrive by the provider moved into the queue, back to the dead-letter
// queue: alone it is no message.
func (q *Queue) returnPart(ctx context.Context, in *types.Message) {
	id := deref(in.MessageId)
	dlq, ok := q.dlq.(*DeadLetterQueue)
	if !ok {
		q.o.Logger.Warn("a piece of a dead letter arrived, and the queue has no dead-letter queue to return it to", "queue", q.name,
			"message_id", id)
		return
	}
	text := deref(in.MessageAttributes[attrPart].StringValue)
	o := dlq.outgoing(packed{body: deref(in.Body), attrs: map[string]string{attrPart: text}}, "a piece of a dead letter")
	err := dlq.q.post(ctx, []outgoing{o})
	if err == nil {
		rc := &receipt{q: q, id: id, handle: deref(in.ReceiptHandle)}
		err = q.remove(ctx, []change{{rc: rc}}, make([]driver.Outcome, 1))
	}
	q.o.Logger.Warn("a piece of a dead letter was redriven and returned to the dead-letter queue: redrive the dead letter with semel", "queue", q.name,
		"dead_letters", dlq.q.name, "message_id", id, "err", err)
}
