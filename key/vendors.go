package key

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/canonjson"
)

// FromGCS makes the key from a notification of Google Cloud Storage: gcs|bucket|object|generation|event type, and for an update
// of metadata, which keeps the generation, also the metageneration. The attributes of the Pub/Sub message are its headers, or
// are in the body of a push subscription. If a bucket has two notification configurations, both messages of an event have the
// same key.
//
// An update of metadata without a payload (payload format NONE) is an error, because the metageneration is missing.
func FromGCS() Func {
	return func(m *driver.Message) (string, error) {
		attrs, payload, err := pubSubMessage(m)
		if err != nil {
			return "", err
		}
		parts := []string{"gcs"}
		for _, name := range []string{"bucketId", "objectId", "objectGeneration", "eventType"} {
			v := attrs(name)
			if v == "" {
				return "", noKey(m, "not a notification of Cloud Storage: no attribute %q", name)
			}
			parts = append(parts, v)
		}
		if parts[4] == "OBJECT_METADATA_UPDATE" {
			meta, err := scalar(m, payload, "the notification of an update of metadata", "/metageneration")
			if err != nil {
				return "", badKey(m, "%v; create the notification with payload format JSON_API_V1", err)
			}
			parts = append(parts, meta)
		}
		return keyOf(m, parts...)
	}
}

// FromPubSub makes the key from the ID of a Google Pub/Sub message: gps|subscription|id, from the body of a push subscription.
// A publisher that publishes again makes another message: prefer an ID of the event inside.
func FromPubSub() Func {
	return func(m *driver.Message) (string, error) {
		if !json.Valid(m.Body) {
			return "", noKey(m, "not a push of Pub/Sub: the body is not JSON; turn payload unwrapping off")
		}
		const what = "a push of Pub/Sub"
		subscription, err := member(m, m.Body, what, "/subscription")
		if err != nil {
			return "", err
		}
		id, err := member(m, m.Body, what, "/message/messageId")
		if err != nil {
			return "", err
		}
		return keyOf(m, "gps", subscription, id)
	}
}

// pubSubMessage returns the attributes and the payload of a Pub/Sub message, from headers and body, or from a push.
func pubSubMessage(m *driver.Message) (attrs func(string) string, payload []byte, err error) {
	if !json.Valid(m.Body) {
		return m.Header, m.Body, nil
	}
	raw, err := pointer("/message/attributes").FindValid(m.Body)
	if err != nil || raw[0] != '{' {
		return m.Header, m.Body, nil //nolint:nilerr // no push
	}
	pushed := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &pushed); err != nil {
		return nil, nil, badKey(m, "attributes of a push of Pub/Sub: %v", err)
	}
	if data := peek(m.Body, "/message/data"); data != "" {
		if payload, err = base64.StdEncoding.DecodeString(data); err != nil {
			return nil, nil, badKey(m, "data of a push of Pub/Sub: %v", err)
		}
	}
	return func(name string) string {
		v, err := canonjson.Unquote(pushed[name])
		if err != nil {
			return ""
		}
		return v
	}, payload, nil
}

// FromKafka makes the key from the position of a record: k|cluster|topic|partition|offset. It reads the headers kafka-cluster,
// kafka-topic-id or kafka-topic, kafka-partition and kafka-offset, or the members of a record as EventBridge Pipes and Lambda
// write it (eventSourceArn or bootstrapServers, topic, partition, offset). A topic that was deleted and created again counts
// from 0 again: use its ID.
//
// A record that is copied to another topic, or produced again, has another key. Prefer an ID that the producer sets:
// [FromHeader], [FromJSON].
func FromKafka() Func {
	return func(m *driver.Message) (string, error) {
		topic := m.Header("kafka-topic-id")
		if topic == "" {
			topic = m.Header("kafka-topic")
		}
		if partition, offset := m.Header("kafka-partition"), m.Header("kafka-offset"); topic != "" && partition != "" && offset != "" {
			return kafkaKey(m, m.Header("kafka-cluster"), topic, partition, offset)
		}
		if !json.Valid(m.Body) || peek(m.Body, "/topic") == "" {
			return "", noKey(m, "no headers kafka-topic, kafka-partition and kafka-offset, and the body is no Kafka record")
		}
		const what = "a Kafka record"
		cluster := peek(m.Body, "/eventSourceArn")
		if cluster == "" {
			cluster = peek(m.Body, "/bootstrapServers")
		}
		partition, err := scalar(m, m.Body, what, "/partition")
		if err != nil {
			return "", err
		}
		offset, err := scalar(m, m.Body, what, "/offset")
		if err != nil {
			return "", err
		}
		return kafkaKey(m, cluster, peek(m.Body, "/topic"), partition, offset)
	}
}

// kafkaKey refuses non-canonical numbers: 07 and 7 would be two keys for one record.
func kafkaKey(m *driver.Message, cluster, topic, partition, offset string) (string, error) {
	for name, v := range map[string]string{"partition": partition, "offset": offset} {
		if !natural(v) {
			return "", badKey(m, "the %s %.40q of a Kafka record is no number", name, v)
		}
	}
	return keyOf(m, "k", cluster, topic, partition, offset)
}

// natural reports whether s is a decimal number of at most 19 digits without leading zeros.
func natural(s string) bool {
	return s != "" && len(s) <= 19 && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

// FromStripe makes the key from a Stripe event: stripe|account|evt_…, where account is a connected account or empty. Stripe
// redelivers an event under the same ID. Two events can report one change: FromJSON("/data/object/id", "/type") gives both the
// same key. FromStripe also reads events in the envelopes of EventBridge and SNS.
func FromStripe() Func {
	return func(m *driver.Message) (string, error) {
		is := func(b []byte) bool { return strings.HasPrefix(peek(b, "/id"), "evt_") }
		body := inside(m.Body, is)
		if body == nil {
			return "", noKey(m, "not a Stripe event: no id that begins with evt_")
		}
		return keyOf(m, "stripe", peek(body, "/account"), peek(body, "/id"))
	}
}

// FromGitHub makes the key from the headers of a GitHub webhook: gh|hook|delivery. GitHub redelivers under the same delivery
// ID. If hooks of a repository and of its organization lead to one place, they also deliver an event under one delivery ID.
// With anyHook, all of them have the same key (gh|delivery).
func FromGitHub(anyHook bool) Func {
	return func(m *driver.Message) (string, error) {
		delivery := m.Header("x-github-delivery")
		if delivery == "" {
			return "", noKey(m, "no header X-GitHub-Delivery")
		}
		if anyHook {
			return keyOf(m, "gh", delivery)
		}
		hook := m.Header("x-github-hook-id")
		if hook == "" {
			return "", noKey(m, "no header X-GitHub-Hook-ID: hand it on, or take one key for all hooks (github:any)")
		}
		return keyOf(m, "gh", hook, delivery)
	}
}

// FromDeduplicationID makes the key from the deduplication ID of an SQS FIFO queue: sqsfifo|queue|id. The queue itself
// remembers the ID for five minutes, the record for as long as it is kept. With content-based deduplication SQS makes the ID
// from the body, so that two operations with the same content become one. Set perGroup if the queue deduplicates per message
// group: the group is then part of the key.
func FromDeduplicationID(perGroup bool) Func {
	return func(m *driver.Message) (string, error) {
		id := m.Header("sqs-message-deduplication-id")
		switch {
		case id == "":
			return "", noKey(m, "no MessageDeduplicationId (header sqs-message-deduplication-id): the queue is no FIFO queue of "+
				"SQS, or the message was sent by semel, whose id is its key")
		case perGroup:
			return keyOf(m, "sqsfifo", m.Queue, m.Group, id)
		}
		return keyOf(m, "sqsfifo", m.Queue, id)
	}
}

// inside returns the JSON body inside envelopes of SNS and EventBridge for which is returns true, or nil.
func inside(body []byte, is func([]byte) bool) []byte {
	for range deepestEvent {
		if !json.Valid(body) {
			return nil
		}
		if is(body) {
			return body
		}
		switch detail, err := pointer("/detail").FindValid(body); {
		case peek(body, "/Type") == "Notification" && peek(body, "/Message") != "":
			body = []byte(peek(body, "/Message"))
		case err == nil && peek(body, "/detail-type") != "":
			body = detail
		default:
			return nil
		}
	}
	return nil
}

// scalar reads a number or a string from a JSON body as a part of a key.
func scalar(m *driver.Message, body []byte, what, at string) (string, error) {
	if !json.Valid(body) {
		return "", noKey(m, "%s without %q: its body is not JSON", what, at)
	}
	raw, err := pointer(at).FindValid(body)
	if err != nil {
		return "", noKey(m, "%s without %q", what, at)
	}
	if raw[0] != '"' && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return "", badKey(m, "%q of %s is neither a number nor a string", at, what)
	}
	part, err := keyPart(raw)
	if err != nil || strings.TrimSpace(part) == "" {
		return "", badKey(m, "%q of %s is empty or cannot be read", at, what)
	}
	return part, nil
}
