package kafka

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/driver"
)

const (
	// headerID is the header with a message's ID. A producer that knows nothing of it sends messages that arrive well.
	headerID = "semel-id"
	// binary begins the text of a header whose value is not UTF-8 (RFC 2397).
	binary = "data:;base64,"
)

// Send produces messages and waits until the brokers have acknowledged all of them. The group of a message is its Kafka key.
// A delay is refused (driver.ErrUnsupported): it would hold back the position of its partition.
func (q *Queue) Send(ctx context.Context, ms ...driver.Message) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("kafka: send to %s: %w", q.name, err)
	}
	out := make([]*kgo.Record, len(ms))
	for i := range ms {
		if ms[i].Delay > 0 {
			return fmt.Errorf("kafka: send to %s: message %d: Delay is %v, and a log has none: %w", q.name, i, ms[i].Delay, driver.ErrUnsupported)
		}
		out[i] = pack(&ms[i])
	}
	for i, r := range q.client.ProduceSync(ctx, out...) {
		if r.Err != nil {
			return q.explain(fmt.Sprintf("send message %d of %d to", i, len(ms)), r.Err)
		}
	}
	return nil
}

// pack makes the form in which a message travels.
func pack(m *driver.Message) *kgo.Record {
	id := m.ID
	if id == "" {
		id = driver.NewMessageID()
	}
	out := &kgo.Record{Value: m.Body, Headers: []kgo.RecordHeader{{Key: headerID, Value: []byte(id)}}}
	if m.Group != "" {
		out.Key = []byte(m.Group)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		value := []byte(m.Headers[name])
		if text, ok := strings.CutPrefix(m.Headers[name], binary); ok {
			if raw, err := base64.StdEncoding.DecodeString(text); err == nil && !utf8.Valid(raw) {
				value = raw
			}
		}
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: name, Value: value})
	}
	return out
}

// unpack reads a message. Its ID is the header semel-id, else its position. Headers with the same name are joined with ", ".
func (q *Queue) unpack(in *kgo.Record) *record {
	r := &record{
		pos:  driver.Position{Log: q.is.log, Partition: in.Partition, Offset: in.Offset, Epoch: in.LeaderEpoch},
		size: len(in.Value) + len(in.Key),
	}
	m := driver.Message{Queue: q.name, Group: string(in.Key), Body: in.Value, Headers: map[string]string{}, SentAt: in.Timestamp, Position: &r.pos}
	for _, h := range in.Headers {
		r.size += len(h.Key) + len(h.Value)
		value := string(h.Value)
		if !utf8.Valid(h.Value) {
			value = binary + base64.StdEncoding.EncodeToString(h.Value)
		}
		name := strings.ToValidUTF8(h.Key, "\ufffd")
		if name == headerID && m.ID == "" {
			m.ID = value
			continue
		}
		if before, ok := m.Headers[name]; ok {
			value = before + ", " + value
		}
		m.Headers[name] = value
	}
	if m.ID == "" {
		m.ID = r.pos.String()
	}
	r.msg = m
	return r
}
