package driver

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Message is a message as its sender sent it. It is not modified.
type Message struct {
	// ID is the broker's or the sender's ID of the message. It identifies a delivery, not an operation: a producer that
	// retries, or a redrive through a provider, may send the same operation under another ID.
	ID string
	// Queue is the queue it was sent to, or is to be sent to.
	Queue string
	// Group: messages of one non-empty group are handled in order, one at a time. Empty = unordered.
	Group string
	Body  []byte
	// Headers are the sender's headers. [Message.Header] ignores the case of their names.
	Headers map[string]string
	SentAt  time.Time
	// Delay is set by the sender: the message is not deliverable before SentAt + Delay. Zero on receipt.
	Delay time.Duration
	// Position is set on receipt from a log, and nil elsewhere. A queue ignores it in messages that are sent.
	Position *Position
}

// Position is where a log keeps a message. It does not change, and no other message of the log has it.
type Position struct {
	// Log names the log among all logs that a consumer may read. A log that is created again counts from 0 again, and needs
	// another name, such as one with its ID.
	Log       string
	Partition int32
	Offset    int64
	// Epoch is the leader epoch when the message was written. 0 = the log has none. It is not part of the text.
	Epoch int32
}

// String returns log/partition/offset. It is stored as a key, so its form must not change.
func (p Position) String() string {
	b := make([]byte, 0, len(p.Log)+32)
	b = append(append(b, p.Log...), '/')
	b = append(strconv.AppendInt(b, int64(p.Partition), 10), '/')
	return string(strconv.AppendInt(b, p.Offset, 10))
}

// PositionHeader is the header in which a dead letter keeps the position of its message. After a redrive the message has
// another position and the same header.
const PositionHeader = "semel-position"

// Detached returns the message with a header in place of its position. An existing header remains: the message was redriven
// before.
func (m Message) Detached() Message {
	if m.Position == nil {
		return m
	}
	if m.Header(PositionHeader) == "" {
		m.Headers = maps.Clone(m.Headers)
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[PositionHeader] = m.Position.String()
	}
	m.Position = nil
	return m
}

// Header returns the value of a header, whatever the case of its name, or "" if it is absent.
func (m *Message) Header(name string) string {
	if v, ok := m.Headers[name]; ok {
		return v
	}
	best, value := "", ""
	for k, v := range m.Headers {
		// Two spellings of one header: the smaller spelling wins, so that the result does not depend on map order.
		if len(k) == len(name) && foldEqual(k, name) && (best == "" || k < best) {
			best, value = k, v
		}
	}
	return value
}

func foldEqual(a, b string) bool {
	for i := range len(a) {
		x, y := a[i], b[i]
		if 'A' <= x && x <= 'Z' {
			x += 'a' - 'A'
		}
		if 'A' <= y && y <= 'Z' {
			y += 'a' - 'A'
		}
		if x != y {
			return false
		}
	}
	return true
}

// Delivery is one delivery of one message: plain data, so that it can be logged, faked and replayed.
type Delivery struct {
	Message
	// Receipt is the adapter's handle of this delivery: opaque and comparable.
	Receipt any
	// Count is the broker's count of deliveries including this one. 0 = it keeps none. It is not the attempt.
	Count int
	// Visible is how long the broker keeps the message from others, counted from the return of Receive. 0 = it has no
	// visibility timeout.
	Visible time.Duration
}

// Action is what a settlement does with a delivery.
type Action uint8

// The ways to settle a delivery.
const (
	// Ack removes the message permanently.
	Ack Action = iota
	// Retry makes it deliverable again after Settlement.After. The attempt is spent.
	Retry
	// Defer makes it deliverable again after Settlement.After and spends no attempt: its key is busy, the worker drains, or an
	// earlier message of its group stopped.
	Defer
	// Dead publishes Settlement.DeadLetter (once per dead-letter ID), then removes the message, in one step if the queue can.
	Dead
)

func (a Action) String() string {
	return [...]string{"ack", "retry", "defer", "dead"}[a]
}

// Settlement ends one delivery.
type Settlement struct {
	Receipt any
	Action  Action
	After   time.Duration
	// DeadLetter is published by Dead. Publishing an ID twice makes one dead letter.
	DeadLetter *DeadLetter
	// Close is the ID of a dead letter to remove with an Ack: the uncertain dead letter of a record whose late completion was
	// accepted. It is no error if that dead letter does not exist.
	Close string
}

// Check refuses a settlement that no queue could carry out: an unknown action, or Dead without a dead letter.
func (s *Settlement) Check() error {
	switch {
	case s.Action > Dead:
		return fmt.Errorf("action %d is unknown", s.Action)
	case s.Action == Dead && (s.DeadLetter == nil || s.DeadLetter.ID == ""):
		return errors.New("action dead needs a dead letter with an ID")
	}
	return nil
}

// DeadLetterKind is the reason why a message became a dead letter.
type DeadLetterKind string

// The kinds of dead letters.
const (
	DeadLetterFailed    DeadLetterKind = "failed"    // the handler failed permanently, or the attempts ran out
	DeadLetterMismatch  DeadLetterKind = "mismatch"  // the same key came with another payload
	DeadLetterUncertain DeadLetterKind = "uncertain" // the outcome of the effect is unknown
	DeadLetterBusy      DeadLetterKind = "busy"      // its key was in progress, and the consumer does not wait (BusyFail)
	DeadLetterLate      DeadLetterKind = "late"      // a duplicate of an EXPIRED record, or an older version that came too late to run
)

// DeadLetter is a message set aside for a person, with the reason. It contains the message, so that it can be redriven after
// the broker has forgotten the delivery.
type DeadLetter struct {
	ID         string // see [DeadLetterID], [BusyDeadLetterID], [LateDeadLetterID], [MismatchDeadLetterID] and [Message.StandIn]
	Kind       DeadLetterKind
	Reason     string
	Key        Key
	Generation uint32
	Token      uint64
	// Version is the version of the message, if keys have versions. If the record has another version now, a newer message has
	// superseded this dead letter.
	Version  Version
	Attempts int
	Message  Message
	// FirstReceived is when the record was made. DeadAt is when the dead letter was written (set by the queue).
	FirstReceived, DeadAt time.Time
}

// DeadLetterID derives the ID of a dead letter. Failed and uncertain dead letters have an ID from the key and the token of the
// attempt, so that a second failure after a redrive is another dead letter. Mismatch dead letters have one from the key and the
// fingerprint.
func DeadLetterID(kind DeadLetterKind, k Key, token uint64, fp Fingerprint) string {
	if kind == DeadLetterMismatch {
		return deadLetterID(kind, k, binary.BigEndian.AppendUint64(nil, uint64(len(fp))), []byte(fp))
	}
	return deadLetterID(kind, k, binary.BigEndian.AppendUint64(nil, token))
}

// LateDeadLetterID derives the ID of a late dead letter from version, payload and message ID, because many messages can be late
// for one record. After a redrive the message has another ID. If it is late again, its new dead letter differs from the one
// that is about to be deleted. Without a fingerprint the whole message counts as the payload.
func LateDeadLetterID(k Key, v Version, fp Fingerprint, m *Message) string {
	var sized []byte
	for _, s := range [...]string{string(v), payload(fp, m)} {
		sized = binary.BigEndian.AppendUint64(sized, uint64(len(s)))
		sized = append(sized, s...)
	}
	return deadLetterID(DeadLetterLate, k, sized, []byte(m.ID))
}

// BusyDeadLetterID derives the ID of a busy dead letter from the message. After a redrive the message has another ID, and may
// be busy again.
func BusyDeadLetterID(k Key, m *Message) string {
	return deadLetterID(DeadLetterBusy, k, []byte(m.ID), []byte(m.sum()))
}

// MismatchDeadLetterID derives the ID of a mismatch dead letter from the key, the payload and the version ("" = the key has
// none), because two versions can have the same payload. Without a fingerprint the whole message counts as the payload.
func MismatchDeadLetterID(k Key, fp Fingerprint, v Version, m *Message) string {
	if fp = Fingerprint(payload(fp, m)); v == "" {
		return DeadLetterID(DeadLetterMismatch, k, 0, fp)
	}
	return deadLetterID(DeadLetterMismatch, k, binary.BigEndian.AppendUint64(nil, uint64(len(fp))), []byte(fp), []byte(v))
}

func payload(fp Fingerprint, m *Message) string {
	if fp != "" {
		return string(fp)
	}
	return m.sum()
}

// StandIn returns a replacement key for a message without a key. No other message can have it. The message's effect key and
// the ID of its dead letter are derived from it. It covers everything that the sender sent, because senders may use one ID
// twice: two messages are the same only if their ID, group, headers and body are.
func (m *Message) StandIn(consumer string) Key {
	return Key{Consumer: consumer, Raw: "message\x00" + m.ID + "\x00" + m.sum()}
}

// sum hashes everything that the sender sent, as hex.
func (m *Message) sum() string {
	h := sha256.New()
	var b [8]byte
	put := func(s string) {
		binary.BigEndian.PutUint64(b[:], uint64(len(s)))
		h.Write(b[:])
		h.Write([]byte(s))
	}
	put("semel-message-1")
	put(m.ID)
	put(m.Group)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		put(name)
		put(m.Headers[name])
	}
	h.Write(m.Body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// redrivePrefix begins the ID of every message that is redriven from a dead letter.
const redrivePrefix = "redrive-"

// RedriveID returns the message ID for a redrive of a dead letter. It differs from the original ID, because brokers drop
// messages that they have seen. It is the same if the same dead letter is redriven again after a crash.
func RedriveID(deadLetterID string) string { return redrivePrefix + deadLetterID }

// IsRedrive reports whether a message was redriven from a dead letter. A person may just have reopened its record, even a
// completed one, so a cache must not decide its claim.
func IsRedrive(messageID string) bool { return strings.HasPrefix(messageID, redrivePrefix) }

func deadLetterID(kind DeadLetterKind, k Key, rest ...[]byte) string {
	h := sha256.New()
	var b [8]byte
	for _, s := range [...]string{string(kind), k.Consumer, k.Tenant, k.Raw} {
		binary.BigEndian.PutUint64(b[:], uint64(len(s)))
		h.Write(b[:])
		h.Write([]byte(s))
	}
	for _, r := range rest {
		h.Write(r)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
