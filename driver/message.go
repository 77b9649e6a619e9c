package driver

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Message is what the sender sent; nobody mutates it.
type Message struct {
	// ID is the broker's or the sender's id of the message. It is a delivery identity: a producer that retries, or a
	// redrive through a provider, may give the same business act another ID.
	ID string
	// Queue names the queue it was sent to, or is to be sent to.
	Queue string
	// Group orders: messages of one non-empty group are handled one after the other. Empty = unordered.
	Group string
	Body  []byte
	// Headers are the sender's; names are compared without regard to case by [Message.Header].
	Headers map[string]string
	SentAt  time.Time
	// Delay is the sender's wish: not deliverable before SentAt + Delay. Zero on receipt.
	Delay time.Duration
	// Position is set on receipt from a log, and nil elsewhere. A queue ignores it in messages that are sent.
	Position *Position
}

// Position is where a log keeps a message. It never changes, and no other message of the log has it.
type Position struct {
	// Log names the log among all that a consumer may ever read. A log that is made anew counts from 0 again: it needs
	// another name, such as one with its id.
	Log       string
	Partition int32
	Offset    int64
	// Epoch is the leader's when it wrote the message; 0 = the log has none. It is no part of the text.
	Epoch int32
}

// String is log/partition/offset. It is stored as a key: it never changes.
func (p Position) String() string {
	b := make([]byte, 0, len(p.Log)+32)
	b = append(append(b, p.Log...), '/')
	b = append(strconv.AppendInt(b, int64(p.Partition), 10), '/')
	return string(strconv.AppendInt(b, p.Offset, 10))
}

// PositionHeader is the header in which a dead letter keeps the position that its message had: sent again, the message has
// another position, and the same header.
const PositionHeader = "semel-position"

// Detached returns the message without its position, which becomes a header. One that has the header keeps it: it was sent
// again before.
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

// Header returns the value of a header, whatever the case of its name; "" when absent.
func (m *Message) Header(name string) string {
	if v, ok := m.Headers[name]; ok {
		return v
	}
	best, value := "", ""
	for k, v := range m.Headers {
		// Two spellings of one header: the smaller spelling wins, so that the answer never depends on map order.
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
	// Count is the broker's count of deliveries including this one; 0 = it keeps none. It is never the attempt.
	Count int
	// Visible is how long the broker keeps the message from others, counted from the return of Receive; 0 = it has no
	// visibility timeout.
	Visible time.Duration
}

// Action says what a settlement does with a delivery.
type Action uint8

// The ways to settle a delivery.
const (
	// Ack removes the message for good.
	Ack Action = iota
	// Retry makes it deliverable again after Settlement.After; the attempt was spent.
	Retry
	// Defer makes it deliverable again after Settlement.After and spends no attempt: busy, drain, follower of a
	// stopped group.
	Defer
	// Dead publishes Settlement.DeadLetter (once per dead letter id), then removes the message, in one step where the queue can.
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
	// DeadLetter is published by Dead. Publishing an id twice is one dead letter.
	DeadLetter *DeadLetter
	// Close is the id of a dead letter to remove with an Ack: the uncertain dead letter of a record whose late completion was
	// accepted. A dead letter that is not there is no error.
	Close string
}

// DeadLetterKind tells why a message became a dead letter.
type DeadLetterKind string

// The kinds of dead letters.
const (
	DeadLetterFailed    DeadLetterKind = "failed"    // the handler gave up, or attempts ran out
	DeadLetterMismatch  DeadLetterKind = "mismatch"  // the same key came with another payload
	DeadLetterUncertain DeadLetterKind = "uncertain" // nobody can know whether the effect happened
	DeadLetterBusy      DeadLetterKind = "busy"      // its key was in progress, and the consumer does not wait for that
	DeadLetterLate      DeadLetterKind = "late"      // a duplicate of an EXPIRED record, or an older version that came too late to run
)

// DeadLetter is a message set aside for a person, with the reason. It is self-contained: the message travels in it, so
// that it can be redriven after the broker forgot the delivery.
type DeadLetter struct {
	ID         string // see [DeadLetterID], [BusyDeadLetterID], [LateDeadLetterID], [MismatchDeadLetterID] and [Message.StandIn]
	Kind       DeadLetterKind
	Reason     string
	Key        Key
	Generation uint32
	Token      uint64
	// Version is the version of the message, where keys have versions. A dead letter whose version is not the record's any more
	// was overtaken by a newer one.
	Version  Version
	Attempts int
	Message  Message
	// FirstReceived is when the record was made, DeadAt when the dead letter was written (set by the queue).
	FirstReceived, DeadAt time.Time
}

// DeadLetterID derives the id of a dead letter: dead and uncertain dead letters from the key and the token of the attempt, so that
// a second failure after a redrive is another dead letter; mismatch dead letters from the key and the fingerprint.
func DeadLetterID(kind DeadLetterKind, k Key, token uint64, fp Fingerprint) string {
	if kind == DeadLetterMismatch {
		return deadLetterID(kind, k, binary.BigEndian.AppendUint64(nil, uint64(len(fp))), []byte(fp))
	}
	return deadLetterID(kind, k, binary.BigEndian.AppendUint64(nil, token))
}

// LateDeadLetterID derives the id of a late dead letter from version, payload and message id: many messages can be late for one
// record. Sent again the message has another id; so when it comes too late again, its dead letter is not the one that is
// about to be deleted. Without a fingerprint the whole message stands for the payload.
func LateDeadLetterID(k Key, v Version, fp Fingerprint, m *Message) string {
	var sized []byte
	for _, s := range [...]string{string(v), payload(fp, m)} {
		sized = binary.BigEndian.AppendUint64(sized, uint64(len(s)))
		sized = append(sized, s...)
	}
	return deadLetterID(DeadLetterLate, k, sized, []byte(m.ID))
}

// BusyDeadLetterID derives the id of a busy dead letter from the message: sent again it has another id, and may be busy once more.
func BusyDeadLetterID(k Key, m *Message) string {
	return deadLetterID(DeadLetterBusy, k, []byte(m.ID), []byte(m.sum()))
}

// MismatchDeadLetterID derives the id of a mismatch dead letter from the key, the payload and the version ("" = the key has none;
// two versions can have the same payload). Without a fingerprint the whole message stands for the payload.
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

// StandIn is a key that no message can have, in place of the key that m does not have: the id of its dead letter and its
// effect key are made of it. It is made of everything that the sender sent, because senders use one id twice: two
// messages are the same only if their id, group, headers and body are the same.
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

// redrivePrefix begins the id of every message that is sent again from a dead letter.
const redrivePrefix = "redrive-"

// RedriveID is the id of the message that is sent again from a dead letter: another one than the message had, because brokers
// drop what they have seen, and the same one when the same dead letter is sent again after a crash.
func RedriveID(deadLetterID string) string { return redrivePrefix + deadLetterID }

// IsRedrive tells that a message was sent again from a dead letter. A person may have reopened its record just before, even a
// completed one: what a cache knows of the key is no answer to it.
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
