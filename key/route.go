package key

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/semel-dev/semel/driver"
)

// Route returns the route on which an event came, as far as its envelopes show it, the outermost first: "SNS arn:… > S3
// notification ToQueue". It returns "" if the message is not an event of S3, EventBridge, SNS or CloudEvents. The envelope of
// EventBridge does not contain the rule.
func Route(m *driver.Message) string {
	var way []string
	body := m.Body
	if topic, _, ok := snsHeaders(m); ok {
		way = append(way, "SNS "+topic)
	}
	for range deepestEvent {
		if !mayBeEvent(body) || !json.Valid(body) {
			break
		}
		if topic := peek(body, "/TopicArn"); topic != "" && peek(body, "/Type") == "Notification" {
			way = append(way, "SNS "+topic)
			body = []byte(peek(body, "/Message"))
			continue
		}
		switch {
		case peek(body, "/detail-type") != "" && peek(body, "/source") != "":
			way = append(way, "EventBridge")
		case strings.HasSuffix(peek(body, "/Records/0/eventSource"), ":s3"):
			way = append(way, strings.TrimSpace("S3 notification "+peek(body, "/Records/0/s3/configurationId")))
		case peek(body, "/specversion") != "" && peek(body, "/type") != "":
			way = append(way, "CloudEvent")
		}
		break
	}
	if source, _, ok := cloudEventHeaders(m); ok {
		switch {
		case strings.HasPrefix(source, "aws.events:"):
			way = append(way, "EventBridge")
		case len(way) == 0:
			way = append(way, "CloudEvent")
		}
	}
	return strings.Join(way, " > ")
}

// mayBeEvent excludes most other bodies without parsing them as JSON.
func mayBeEvent(body []byte) bool {
	for _, word := range [...]string{`"TopicArn"`, `"detail-type"`, `"eventSource"`, `"specversion"`} {
		if bytes.Contains(body, []byte(word)) {
			return true
		}
	}
	return false
}
