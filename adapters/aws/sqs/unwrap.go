package sqs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"

	"github.com/semel-dev/semel/driver"
)

// deepest bounds the nesting of envelopes.
const deepest = 4

// The headers for the fields of an envelope.
const (
	ceID     = "ce-id"
	ceSource = "ce-source"
	ceType   = "ce-type"
	ceTime   = "ce-time"
)

// envelope is the union of all envelopes.
type envelope struct {
	// SNS.
	Type, MessageId, TopicArn, Subject, Message, Timestamp string
	MessageAttributes                                      map[string]struct{ Type, Value string }
	// EventBridge; id, source and time are CloudEvents' too.
	DetailType string          `json:"detail-type"`
	Detail     json.RawMessage `json:"detail"`
	ID         string          `json:"id"`
	Source     string          `json:"source"`
	Account    string          `json:"account"`
	Region     string          `json:"region"`
	Time       string          `json:"time"`
	// CloudEvents, structured.
	SpecVersion string          `json:"specversion"`
	CEType      string          `json:"type"`
	ContentType string          `json:"datacontenttype"`
	About       string          `json:"subject"`
	Data        json.RawMessage `json:"data"`
	Data64      string          `json:"data_base64"`
	// S3.
	Records []s3Record `json:"Records"`
}

type s3Record struct {
	EventSource string `json:"eventSource"`
	Region      string `json:"awsRegion"`
	EventName   string `json:"eventName"`
	S3          struct {
		Bucket struct {
			Name string `json:"name"`
		} `json:"bucket"`
		Object struct {
			Key       string `json:"key"`
			VersionID string `json:"versionId"`
			Sequencer string `json:"sequencer"`
		} `json:"object"`
	} `json:"s3"`
	Response struct {
		RequestID string `json:"x-amz-request-id"`
	} `json:"responseElements"`
}

// unwrap takes a message out of its envelopes. The identity is that of the innermost event: each layer replaces that of the
// layer around it. A message that has an identity in its own attributes keeps it.
func unwrap(m *driver.Message) {
	own := maps.Clone(m.Headers)
	h := map[string]string{}
	for range deepest {
		if !open1(m, h) {
			break
		}
	}
	if len(h) == 0 {
		return
	}
	if identity(own) != "" {
		forget(h)
	}
	maps.Copy(h, own)
	m.Headers = h
}

// forget drops the identity of an outer layer.
func forget(h map[string]string) {
	for _, k := range []string{ceID, ceSource, ceType, ceTime} {
		delete(h, k)
	}
}

// open1 removes one envelope; false if there is none, or if its content must stay in it.
func open1(m *driver.Message, h map[string]string) bool {
	body := bytes.TrimSpace(m.Body)
	if len(body) == 0 || body[0] != '{' {
		return false
	}
	var e envelope
	if json.Unmarshal(body, &e) != nil {
		return false
	}
	switch {
	case e.Type == "Notification" && e.TopicArn != "" && e.MessageId != "":
		e.sns(m, h)
		return true
	case e.SpecVersion != "" && e.ID != "" && e.Source != "" && e.CEType != "":
		return e.cloudEvent(m, h)
	case e.DetailType != "" && e.ID != "" && e.Source != "" && len(e.Detail) > 0:
		return e.bridge(m, h)
	case len(e.Records) == 1 && strings.HasSuffix(e.Records[0].EventSource, ":s3"):
		e.Records[0].identify(h)
	}
	return false
}

func set(h map[string]string, values ...string) {
	for i := 0; i+1 < len(values); i += 2 {
		if values[i+1] != "" {
			h[values[i]] = values[i+1]
		}
	}
}

// sns unwraps a published message. The ID of a publication is the same for all its deliveries.
func (e *envelope) sns(m *driver.Message, h map[string]string) {
	forget(h)
	set(h, ceSource, e.TopicArn, ceID, e.MessageId, ceTime, e.Timestamp, "sns-topic-arn", e.TopicArn,
		"sns-message-id", e.MessageId, "sns-subject", e.Subject)
	attrs := map[string]string{}
	for k, v := range e.MessageAttributes {
		attrs[k] = v.Value
	}
	if identity(attrs) != "" { // the publisher's own
		forget(h)
	}
	maps.Copy(h, attrs)
	m.Body = []byte(e.Message)
}

// bridge unwraps the detail. S3's events stay as they are: their type is outside of the detail, where the key functions for
// S3 read it.
func (e *envelope) bridge(m *driver.Message, h map[string]string) bool {
	forget(h)
	set(h, ceSource, strings.Join([]string{"aws.events", e.Account, e.Region, e.Source}, ":"), ceID, e.ID, ceType, e.DetailType,
		ceTime, e.Time)
	if e.Source == "aws.s3" {
		return false
	}
	m.Body = []byte(e.Detail)
	return true
}

func (e *envelope) cloudEvent(m *driver.Message, h map[string]string) bool {
	body := []byte(e.Data)
	if e.Data64 != "" {
		b, err := base64.StdEncoding.DecodeString(e.Data64)
		if err != nil {
			return false
		}
		body = b
	} else if text := ""; len(body) > 0 && body[0] == '"' && !isJSON(e.ContentType) && json.Unmarshal(body, &text) == nil {
		body = []byte(text) // data that is not JSON is sent as a string
	}
	forget(h)
	set(h, "ce-specversion", e.SpecVersion, ceID, e.ID, ceSource, e.Source, ceType, e.CEType, ceTime, e.Time,
		"ce-subject", e.About, "content-type", e.ContentType)
	m.Body = body
	return true
}

// isJSON: without a content type the data of a CloudEvent is JSON.
func isJSON(contentType string) bool {
	t, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	t = strings.TrimSpace(t)
	return t == "" || t == "application/json" || strings.HasSuffix(t, "+json")
}

// identify sets the identity of the one record of an S3 notification, which S3 may send more than once.
func (r *s3Record) identify(h map[string]string) {
	o := &r.S3.Object
	order := o.Sequencer
	if order == "" {
		order = r.Response.RequestID
	}
	if o.Key == "" || order == "" {
		return
	}
	forget(h)
	// The key of the object is URL-encoded: it has no |.
	set(h, ceSource, "aws:s3:"+r.S3.Bucket.Name, ceID, strings.Join([]string{o.Key, o.VersionID, order, r.EventName}, "|"),
		ceType, r.EventName)
}
