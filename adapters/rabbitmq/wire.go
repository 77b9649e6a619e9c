package rabbitmq

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
)

// The headers of this package.
const (
	headerGroup = "x-semel-group"   // the message's group
	headerRest  = "x-semel-headers" // JSON of the headers that RabbitMQ cannot keep
	headerDue   = "x-semel-due"     // milliseconds since 1970: the end of a delay
	headerUntil = "x-semel-until"   // milliseconds since 1970: until when the message waits in this delay queue
	headerCount = "x-semel-count"   // deliveries before the message was delayed
)

// maxHeaders is how large headers may be: RabbitMQ takes them in one frame, of 128 KiB by default.
const maxHeaders = 100 << 10

// servers reports headers that the server writes when it delivers or moves a message.
func servers(name string) bool {
	for _, p := range [...]string{"x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// property returns the property of a message that a header stands for.
func property(p *amqp.Publishing, header string) *string {
	switch header {
	case "content-type":
		return &p.ContentType
	case "content-encoding":
		return &p.ContentEncoding
	case "correlation-id":
		return &p.CorrelationId
	case "reply-to":
		return &p.ReplyTo
	case "type":
		return &p.Type
	case "app-id":
		return &p.AppId
	}
	return nil
}

var properties = [...]string{"content-type", "content-encoding", "correlation-id", "reply-to", "type", "app-id"}

// pack makes the form in which a message travels. RabbitMQ routes by the headers CC and BCC, so these go with the rest.
func pack(m *driver.Message) (amqp.Publishing, error) {
	p := amqp.Publishing{
		MessageId: cmp.Or(m.ID, driver.NewMessageID()), DeliveryMode: amqp.Persistent, Timestamp: time.Now(), Body: m.Body, Headers: amqp.Table{},
	}
	if err := driver.CheckHeaders(m.Headers); err != nil {
		return p, err
	}
	if n := len(p.MessageId); n > 255 {
		return p, fmt.Errorf("its ID has %d bytes, and RabbitMQ takes 255", n)
	}
	rest, size := map[string]string{}, len(m.Group)
	for name, v := range m.Headers {
		size += len(name) + len(v) + 8
		field := property(&p, name)
		switch {
		case field != nil && v != "" && len(v) <= 255:
			*field = v
		case len(name) > 128, name == "CC", name == "BCC", strings.HasPrefix(name, "x-semel-"), servers(name), field != nil:
			rest[name] = v
		default:
			p.Headers[name] = v
		}
	}
	if m.Group != "" {
		p.Headers[headerGroup] = m.Group
	}
	if len(rest) > 0 {
		text, _ := json.Marshal(rest) // never fails
		size += len(text)
		p.Headers[headerRest] = string(text)
	}
	if size > maxHeaders {
		return p, fmt.Errorf("its headers have %d bytes, and RabbitMQ takes %d", size, maxHeaders)
	}
	return p, nil
}

// unpack is the counterpart of pack. The rest is the state of a message in this package.
func (q *Queue) unpack(d amqp.Delivery) *message {
	w := &message{tag: d.DeliveryTag, raw: d, arrived: time.Now()}
	m := driver.Message{ID: d.MessageId, Queue: q.name, Body: d.Body, SentAt: d.Timestamp, Headers: make(map[string]string, len(d.Headers)+1)}
	if m.Body == nil {
		m.Body = []byte{}
	}
	var rest map[string]string
	for name, v := range d.Headers {
		n, isNumber := v.(int64)
		switch {
		case name == headerGroup:
			m.Group = text(v)
		case name == headerDue && isNumber:
			w.due = time.UnixMilli(n)
		case name == headerUntil && isNumber:
			w.until = time.UnixMilli(n)
		case name == headerCount && isNumber, name == "x-delivery-count" && isNumber:
			w.count += int(n)
		case name == headerRest && json.Unmarshal([]byte(text(v)), &rest) == nil, servers(name):
		default:
			m.Headers[strings.ToValidUTF8(name, "\uFFFD")] = text(v)
		}
	}
	p := amqp.Publishing{
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Type: d.Type, AppId: d.AppId,
	}
	for _, name := range properties {
		if v := *property(&p, name); v != "" {
			m.Headers[name] = strings.ToValidUTF8(v, "\uFFFD")
		}
	}
	maps.Copy(m.Headers, rest)
	w.msg = m
	return w
}

// text is a header's value of any type as text.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return strings.ToValidUTF8(v, "\uFFFD")
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case bool, int, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64:
		return fmt.Sprint(v)
	}
	b, err := json.Marshal(v) // tables, lists, bytes
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
