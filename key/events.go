package key

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/canonjson"
	"github.com/semel-dev/semel/internal/jsonptr"
)

// The first part of the keys that [FromEvent] and the functions for one kind of event write.
const (
	eventS3     = "s3"
	eventBridge = "eb"
	eventSNS    = "sns"
	eventCloud  = "ce"
)

// errNoEvent: what was looked at is none of the events that FromEvent knows.
var errNoEvent = errors.New("no event")

// deepestEvent bounds envelopes inside of envelopes.
const deepestEvent = 4

// FromEvent makes the key from the innermost event of a message, whatever it was sent through, so that two routes of
// one event give one key:
//
//	S3, natively or through EventBridge     s3|… as FromS3 tells
//	structured or binary CloudEvents        ce|source|id
//	EventBridge                             eb|account|region|source|id
//	SNS                                     sns|topic|id of the publication
//
// SNS's envelope is looked through first, then EventBridge's, then the event itself: what is inside of an envelope and is
// no event leaves the key to the envelope. A queue that unwraps (sqs.Options.Unwrap) gives the same keys: then the
// envelope's facts are headers.
//
// SNS's requests to confirm a subscription and S3's test event have no key (ErrMissing), nor has anything that is no event.
// A notification of S3 with several records is an error, see [FromS3].
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

// eventKey is the key of the innermost event in a body; errNoEvent = there is none.
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

// innermost is the key of the event inside, or that of its envelope when there is none.
func innermost(m *driver.Message, inside []byte, depth int, envelope func() (string, error)) (string, error) {
	key, err := eventKey(m, inside, depth+1)
	if errors.Is(err, errNoEvent) {
		return envelope()
	}
	return key, err
}

// headerEvent is the key of an event whose facts are headers: of a CloudEvent in binary mode, and of what a queue unwrapped.
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

// FromEventBridge makes the key from EventBridge's envelope: eb|account|region|source|id. EventBridge repeats an event
// under its id; a producer that puts it again makes another event, which a field of the detail tells ([FromJSON]).
//
// A replay out of an archive is the same event, and a duplicate. With replays its name is a part of the key, so that
// every replay runs each event once more.
//
// What has no envelope (a rule with an input transformer or an input path) has no key (ErrMissing).
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

// FromSNS makes the key from a notification of SNS: sns|topic|id of the publication, which is the same for every
// subscription and every delivery. A publisher that publishes again makes another one. With raw delivery over HTTP the
// headers x-amz-sns-topic-arn and x-amz-sns-message-id tell; raw delivery to a queue carries nothing of the publication:
// such messages have no key (ErrMissing).
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

// snsHeaders are what SNS sends over HTTP, and what a queue that unwraps makes of the envelope.
func snsHeaders(m *driver.Message) (topic, id string, ok bool) {
	for _, n := range [...][2]string{{"sns-topic-arn", "sns-message-id"}, {"x-amz-sns-topic-arn", "x-amz-sns-message-id"}} {
		if topic, id = m.Header(n[0]), m.Header(n[1]); topic != "" && id != "" {
			return topic, id, true
		}
	}
	return "", "", false
}

// membersKey makes a key of members of a valid JSON body.
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

// member reads a string out of a valid JSON body, strictly: encoding/json would make one text of two that are no Unicode.
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

// peek reads a string to tell what a valid JSON body is; "" = there is none.
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

// pointers are those that this package looks for; made once.
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
