package sqs

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// This file defines the wire format of a message. Producers and consumers that do not know the format can still send
// messages, and read their bodies and headers.

// The attributes of this package.
const (
	attrID         = "semel-id"          // the message's ID, which survives a redrive by the provider
	attrGroup      = "semel-group"       // its group, if MessageGroupId does not have it
	attrHeaders    = "semel-headers"     // JSON of restOf
	attrEncoding   = "semel-encoding"    // of the body: base64, or empty (SQS accepts no empty body)
	attrDue        = "semel-not-before"  // milliseconds since 1970: a delay that SQS does not support
	attrDeadLetter = "semel-dead-letter" // JSON of deadLetterMeta: the message is a dead letter
	attrPart       = "semel-part"        // JSON of pieceMeta: the body is a piece of a dead letter
)

const (
	encodingBase64 = "base64"
	encodingEmpty  = "empty"
	emptyBody      = "(empty)"
	textType       = "String"
)

// ungrouped begins the MessageGroupId of a message without a group on a FIFO queue.
const ungrouped = "semel-ungrouped-"

// The headers that this package adds to messages of other producers.
const (
	headerDedup = "sqs-message-deduplication-id"
	headerTrace = "x-amzn-trace-id"
)

// restOf holds what SQS cannot keep as attributes: headers beyond the tenth attribute, and headers, IDs and groups that it
// refuses.
type restOf struct {
	Headers map[string]string `json:"headers,omitempty"`
	ID      string            `json:"id,omitempty"`
	Group   string            `json:"group,omitempty"`
}

// packed is a message as SQS accepts it.
type packed struct {
	body  string
	attrs map[string]string
}

func (p *packed) size() int {
	n := len(p.body)
	for k, v := range p.attrs {
		n += len(k) + len(textType) + len(v)
	}
	return n
}

func (p *packed) attributes() map[string]types.MessageAttributeValue {
	out := make(map[string]types.MessageAttributeValue, len(p.attrs))
	for k, v := range p.attrs {
		out[k] = types.MessageAttributeValue{DataType: aws.String(textType), StringValue: aws.String(v)}
	}
	return out
}

// pack encodes a message. withGroup writes its group as an attribute.
func pack(m *driver.Message, withGroup bool, extra map[string]string) (packed, error) {
	p := packed{attrs: map[string]string{}}
	maps.Copy(p.attrs, extra)
	if err := driver.CheckHeaders(m.Headers); err != nil {
		return p, err
	}
	if !utf8.ValidString(m.ID) || !utf8.ValidString(m.Group) {
		return p, fmt.Errorf("its ID %q or its group %q is not UTF-8: encode it (percent or base64)", m.ID, m.Group)
	}
	p.body = string(m.Body)
	switch {
	case len(m.Body) == 0:
		p.body, p.attrs[attrEncoding] = emptyBody, encodingEmpty
	case !allowed(p.body):
		p.body, p.attrs[attrEncoding] = base64.StdEncoding.EncodeToString(m.Body), encodingBase64
	}
	var rest restOf
	if withGroup && m.Group != "" {
		p.put(attrGroup, m.Group, &rest.Group)
	}
	p.put(attrID, m.ID, &rest.ID)
	return p, p.headers(m.Headers, rest)
}

func (p *packed) put(name, value string, else_ *string) {
	if value != "" && allowed(value) {
		p.attrs[name] = value
	} else {
		*else_ = value
	}
}

// headers makes attributes of as many headers as fit, so that other consumers see them too: the trace context first, because
// consumers share it, then the others by name.
func (p *packed) headers(h map[string]string, rest restOf) error {
	fits := func(k string) bool { return legalName(k) && !reserved(k) && h[k] != "" && allowed(h[k]) }
	names := slices.SortedFunc(maps.Keys(h), func(a, b string) int {
		return cmp.Or(cmp.Compare(traceRank(a), traceRank(b)), cmp.Compare(a, b))
	})
	room := maxAttributes - len(p.attrs)
	every := slices.IndexFunc(names, func(k string) bool { return !fits(k) }) < 0
	if !every || len(names) > room || rest.ID != "" || rest.Group != "" {
		room-- // for the rest
	}
	for _, k := range names {
		if room > 0 && fits(k) {
			p.attrs[k] = h[k]
			room--
			continue
		}
		if rest.Headers == nil {
			rest.Headers = map[string]string{}
		}
		rest.Headers[k] = h[k]
	}
	if rest.Headers == nil && rest.ID == "" && rest.Group == "" {
		return nil
	}
	text, err := asciiJSON(rest)
	p.attrs[attrHeaders] = text
	return err
}

// traceRank puts the headers of W3C Trace Context before all others.
func traceRank(name string) int {
	switch strings.ToLower(name) {
	case "traceparent":
		return 0
	case "tracestate": // useless without traceparent
		return 1
	}
	return 2
}

// reserved reports a name of this package in any spelling. A header with such a name is sent in restOf.
func reserved(name string) bool { return ours(strings.ToLower(name)) }

func ours(name string) bool {
	switch name {
	case attrID, attrGroup, attrHeaders, attrEncoding, attrDue, attrDeadLetter, attrPart:
		return true
	}
	return false
}

// legalName reports a name that SQS accepts for an attribute.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
func legalName(s string) bool {
	low := strings.ToLower(s)
	if s == "" || len(s) > 256 || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") ||
		strings.HasPrefix(low, "aws.") || strings.HasPrefix(low, "amazon.") {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' || r == '.')
	}) < 0
}

// allowed reports a text of characters that SQS accepts: those of XML 1.0.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
func allowed(s string) bool {
	for i, r := range s {
		switch {
		case r == utf8.RuneError:
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return false
			}
		case r < 0x20 && r != '\t' && r != '\n' && r != '\r', r == 0xFFFE, r == 0xFFFF:
			return false
		}
	}
	return true
}

// asciiJSON is JSON in ASCII: SQS accepts every character, and the text can be cut anywhere.
func asciiJSON(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("write as JSON: %w", err)
	}
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case r < 0x7F:
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			_, _ = fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+(r>>10), 0xDC00+(r&0x3FF))
		default:
			_, _ = fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String(), nil
}

// unpack reads a message of any sender. If its attributes look like this package's format but are invalid, it is taken as it
// is, with a warning: the message must not be lost.
func (q *Queue) unpack(in *types.Message) driver.Message {
	m := driver.Message{ID: deref(in.MessageId), Queue: q.name, Body: []byte(deref(in.Body)), SentAt: millis(in.Attributes["SentTimestamp"])}
	h := map[string]string{}
	for name, v := range in.MessageAttributes {
		switch {
		case ours(name):
		case strings.HasPrefix(deref(v.DataType), "Binary"):
			h[name] = base64.StdEncoding.EncodeToString(v.BinaryValue)
		default:
			h[name] = deref(v.StringValue)
		}
	}
	own := func(name string) string { v := in.MessageAttributes[name]; return deref(v.StringValue) }
	m.Group = in.Attributes["MessageGroupId"]
	if g := own(attrGroup); g != "" {
		m.Group = g
	} else if strings.HasPrefix(m.Group, ungrouped) {
		m.Group = ""
	}
	if id := own(attrID); id != "" {
		m.ID = id
	}
	if text := own(attrHeaders); text != "" {
		q.readRest(&m, h, text)
	}
	q.readBody(&m, own(attrEncoding))
	foreign := own(attrID) == "" && m.ID == deref(in.MessageId)
	if d := in.Attributes["MessageDeduplicationId"]; d != "" && foreign {
		addHeader(h, headerDedup, d)
	}
	if t := in.Attributes["AWSTraceHeader"]; t != "" {
		addHeader(h, headerTrace, t)
	}
	if len(h) > 0 {
		m.Headers = h
	}
	if q.o.Unwrap && foreign {
		unwrap(&m)
	}
	return m
}

func (q *Queue) readRest(m *driver.Message, h map[string]string, text string) {
	var rest restOf
	if err := json.Unmarshal([]byte(text), &rest); err != nil {
		q.o.Logger.Warn("attribute cannot be read", "queue", q.name, "message_id", m.ID, "attribute", attrHeaders, "err", err)
		h[attrHeaders] = text
		return
	}
	maps.Copy(h, rest.Headers)
	if rest.ID != "" {
		m.ID = rest.ID
	}
	if rest.Group != "" {
		m.Group = rest.Group
	}
}

func (q *Queue) readBody(m *driver.Message, encoding string) {
	switch encoding {
	case "":
	case encodingEmpty:
		m.Body = nil
	case encodingBase64:
		if b, err := base64.StdEncoding.DecodeString(string(m.Body)); err == nil {
			m.Body = b
			return
		}
		fallthrough
	default:
		q.o.Logger.Warn("body cannot be decoded: taken as it is", "queue", q.name, "message_id", m.ID, "encoding", encoding)
	}
}

// addHeader adds a header unless the sender has it, in any spelling.
func addHeader(h map[string]string, name, value string) {
	for k := range h {
		if strings.EqualFold(k, name) {
			return
		}
	}
	h[name] = value
}

func millis(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// legalID makes an ID that SQS accepts for groups and deduplication: at most 128 letters, digits and punctuation. Any other
// ID is replaced by its hash.
func legalID(s string) string {
	bad := func(r rune) bool { return r <= 0x20 || r >= 0x7F }
	if s != "" && len(s) <= 128 && strings.IndexFunc(s, bad) < 0 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Record is a message that another client received from SQS, read as [Queue.Receive] reads it.
type Record struct {
	Message driver.Message
	// Count is SQS's delivery count, 0 if it has none.
	Count int
	// Due is when the message may be handled, if its sender set a delay that SQS does not support.
	Due time.Time
	// Piece: it is a piece of a large dead letter, which a redrive by the provider moved into the queue. Alone it is no
	// message.
	Piece bool
}

// ReadRecord reads a message of the named queue that did not come from Receive, for example in a Lambda invocation. With
// unwrap it is taken out of its envelopes, see Options.Unwrap. A nil logger discards.
func ReadRecord(queue string, in *types.Message, unwrap bool, logger *slog.Logger) Record {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	q := &Queue{name: queue, o: Options{Unwrap: unwrap, Logger: logger}}
	r := Record{Message: q.unpack(in), Due: millis(deref(in.MessageAttributes[attrDue].StringValue))}
	_, r.Piece = readPart(in)
	r.Count, _ = strconv.Atoi(in.Attributes["ApproximateReceiveCount"])
	return r
}
