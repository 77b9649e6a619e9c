package key

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/canonjson"
	"github.com/semel-dev/semel/internal/jsonptr"
)

// The first part of the keys of [FromEvent] and of the functions for one kind of event.
const (
	eventS3     = "s3"
	eventBridge = "eb"
	eventSNS    = "sns"
	eventCloud  = "ce"
)

// errNoEvent: the text is not an event that FromEvent knows.
var errNoEvent = errors.New("no event")

// deepestEvent is the maximum depth of nested envelopes.
const deepestEvent = 4

// FromEvent makes the key from the innermost event of a message, so that all routes of one event give the same key:
//
//	S3, natively or through EventBridge     s3|… and the key of FromS3
//	structured or binary CloudEvents        ce|source|id
//	EventBridge                             eb|account|region|source|id
//	SNS                                     sns|topic|id of the publication
//
// FromEvent reads SNS's envelope first, then EventBridge's, then the event itself. If the content of an envelope is not an
// event, the key is that of the envelope. A queue that unwraps (sqs.Options.Unwrap) gives the same keys, from headers.
//
// SNS's requests to confirm a subscription, S3's test event, and messages that are not events have no key (ErrMissing). An S3
// notification with several records is an error, see [FromS3].
func FromEvent() Func {
	return func(m *driver.Message) (string, error) {
		key, err := eventKey(m, m.Body, 0)
		if errors.Is(err, errNoEvent) {
			key, err = headerEvent(m)
		}
		if errors.Is(err, errNoEvent) {
			return "", noKey(m, "no event: the body is none of S3, EventBridge, SNS and CloudEvents, and no header tells one")
		}
		return key, err
	}
}

// eventKey returns the key of the innermost event in a body, or errNoEvent.
func eventKey(m *driver.Message, body []byte, depth int) (string, error) {
	if depth >= deepestEvent || !json.Valid(body) {
		return "", errNoEvent
	}
	switch {
	case strings.HasSuffix(peek(body, "/Type"), "Confirmation") && peek(body, "/TopicArn") != "":
		return "", noKey(m, "SNS asks to confirm a subscription (%s): open its SubscribeURL once, and discard it", peek(body, "/Type"))
	case peek(body, "/Type") == "Notification" && peek(body, "/TopicArn") != "":
		inner, err := member(m, body, "an SNS notification", "/Message")
		if err != nil {
			return "", err
		}
		return innermost(m, []byte(inner), depth, func() (string, error) { return snsKey(m, body) })
	case peek(body, "/detail-type") != "" && peek(body, "/source") != "":
		if peek(body, "/source") == "aws.s3" && strings.HasPrefix(peek(body, "/detail-type"), "Object ") {
			return s3Key(m, body, eventS3)
		}
		detail, _ := pointer("/detail").FindValid(body)
		return innermost(m, detail, depth, func() (string, error) { return bridgeKey(m, body, false) })
	case peek(body, "/specversion") != "" && peek(body, "/type") != "":
		return membersKey(m, body, "a CloudEvent", []string{eventCloud}, "/source", "/id")
	case peek(body, "/Event") == "s3:TestEvent", strings.HasSuffix(peek(body, "/Records/0/eventSource"), ":s3"):
		return s3Key(m, body, eventS3)
	}
	return "", errNoEvent
}

// innermost returns the key of the event inside an envelope, or that of the envelope if there is none.
func innermost(m *driver.Message, inside []byte, depth int, envelope func() (string, error)) (string, error) {
	key, err := eventKey(m, inside, depth+1)
	if errors.Is(err, errNoEvent) {
		return envelope()
	}
	return key, err
}

// headerEvent returns the key of an event in headers: a CloudEvent in binary mode, or an event that a queue unwrapped.
func headerEvent(m *driver.Message) (string, error) {
	if source, id, ok := cloudEventHeaders(m); ok {
		if at, found := strings.CutPrefix(source, "aws.events:"); found {
			if p := strings.SplitN(at, ":", 3); len(p) == 3 {
				return keyOf(m, eventBridge, p[0], p[1], p[2], id)
			}
		}
		if topic, published, ok := snsHeaders(m); ok && topic == source && published == id {
			return keyOf(m, eventSNS, topic, published)
		}
		return keyOf(m, eventCloud, source, id)
	}
	if topic, id, ok := snsHeaders(m); ok {
		return keyOf(m, eventSNS, topic, id)
	}
	return "", errNoEvent
}

// FromEventBridge makes the key from EventBridge's envelope: eb|account|region|source|id. EventBridge redelivers an event
// under the same id. A producer that puts it again makes another event: to detect that, use a field of the detail
// ([FromJSON]).
//
// A replay from an archive is the same event, and so a duplicate. With replays, the name of the replay is part of the key, so
// that every replay runs each event once more.
//
// A message without the envelope (from a rule with an input transformer or an input path) has no key (ErrMissing).
func FromEventBridge(replays bool) Func {
	return func(m *driver.Message) (string, error) {
		body := m.Body
		if json.Valid(body) && peek(body, "/Type") == "Notification" && peek(body, "/TopicArn") != "" {
			inner, err := member(m, body, "an SNS notification", "/Message")
			if err != nil {
				return "", err
			}
			body = []byte(inner)
		}
		key, err := "", errNoEvent
		if json.Valid(body) && peek(body, "/detail-type") != "" {
			return bridgeKey(m, body, replays)
		}
		if source, _, ok := cloudEventHeaders(m); ok && strings.HasPrefix(source, "aws.events:") && !replays {
			key, err = headerEvent(m)
		}
		if errors.Is(err, errNoEvent) {
			return "", noKey(m, "not EventBridge's envelope: no detail-type in the body; give the rule's target the whole event")
		}
		return key, err
	}
}

func bridgeKey(m *driver.Message, body []byte, replays bool) (string, error) {
	prefix := []string{eventBridge}
	if name := peek(body, "/replay-name"); replays && name != "" {
		prefix = append(prefix, name)
	}
	return membersKey(m, body, "an event of EventBridge", prefix, "/account", "/region", "/source", "/id")
}

// FromSNS makes the key from an SNS notification: sns|topic|id of the publication, which is the same for every subscription
// and every delivery. A publisher that publishes again makes another key. With raw delivery over HTTP the topic and the id
// come from the headers x-amz-sns-topic-arn and x-amz-sns-message-id. Raw delivery to a queue contains neither: such messages
// have no key (ErrMissing).
func FromSNS() Func {
	return func(m *driver.Message) (string, error) {
		if json.Valid(m.Body) && peek(m.Body, "/TopicArn") != "" {
			switch t := peek(m.Body, "/Type"); {
			case t == "Notification":
				return snsKey(m, m.Body)
			case strings.HasSuffix(t, "Confirmation"):
				return eventKey(m, m.Body, 0)
			}
		}
		if topic, id, ok := snsHeaders(m); ok {
			return keyOf(m, eventSNS, topic, id)
		}
		return "", noKey(m, "not a notification of SNS: turn raw delivery off, or take the key from the body")
	}
}

func snsKey(m *driver.Message, body []byte) (string, error) {
	return membersKey(m, body, "an SNS notification", []string{eventSNS}, "/TopicArn", "/MessageId")
}

// snsHeaders reads topic and id from the headers that SNS sends over HTTP, or that a queue makes when it unwraps.
func snsHeaders(m *driver.Message) (topic, id string, ok bool) {
	for _, n := range [...][2]string{{"sns-topic-arn", "sns-message-id"}, {"x-amz-sns-topic-arn", "x-amz-sns-message-id"}} {
		if topic, id = m.Header(n[0]), m.Header(n[1]); topic != "" && id != "" {
			return topic, id, true
		}
	}
	return "", "", false
}

// membersKey makes a key from members of a valid JSON body.
func membersKey(m *driver.Message, body []byte, what string, prefix []string, pointers ...string) (string, error) {
	parts := append(make([]string, 0, len(prefix)+len(pointers)), prefix...)
	for _, p := range pointers {
		v, err := member(m, body, what, p)
		if err != nil {
			return "", err
		}
		parts = append(parts, v)
	}
	return keyOf(m, parts...)
}

// member reads a string from a valid JSON body, strictly: encoding/json would turn two invalid strings into one.
func member(m *driver.Message, body []byte, what, at string) (string, error) {
	raw, err := pointer(at).FindValid(body)
	switch {
	case errors.Is(err, jsonptr.ErrNotFound):
		return "", noKey(m, "%s without %q", what, at)
	case err != nil:
		return "", badKey(m, "%q of %s: %v", at, what, err)
	case string(raw) == "null":
		return "", noKey(m, "%s whose %q is null", what, at)
	case raw[0] != '"':
		return "", badKey(m, "%q of %s is not a string", at, what)
	}
	v, err := canonjson.Unquote(raw)
	switch {
	case err != nil:
		return "", badKey(m, "%q of %s: %v", at, what, err)
	case strings.TrimSpace(v) == "":
		return "", badKey(m, "%q of %s is empty", at, what)
	}
	return v, nil
}

// peek reads a string that identifies the kind of a valid JSON body. It returns "" if there is none.
func peek(body []byte, at string) string {
	raw, err := pointer(at).FindValid(body)
	if err != nil || raw[0] != '"' {
		return ""
	}
	v, err := canonjson.Unquote(raw)
	if err != nil {
		return ""
	}
	return v
}

// pointers are the JSON Pointers of this package, parsed once.
var pointers = func() map[string]jsonptr.Pointer {
	all := map[string]jsonptr.Pointer{}
	for _, s := range []string{
		"/Type", "/TopicArn", "/MessageId", "/Message", "/detail-type", "/source", "/account", "/region", "/id", "/detail",
		"/replay-name", "/specversion", "/type", "/Event", "/Records/0/eventSource", "/Records/0/s3/configurationId", "/metageneration",
		"/message/attributes", "/message/messageId", "/message/data", "/subscription",
		"/topic", "/partition", "/offset", "/eventSourceArn", "/bootstrapServers",
	} {
		all[s] = mustPointer(s)
	}
	return all
}()

func pointer(s string) jsonptr.Pointer {
	p, ok := pointers[s]
	if !ok {
		panic("semel: pointer " + s + " is not among those that are looked for")
	}
	return p
}
