package key

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/canonjson"
)

// s3Message is the union of the forms of an S3 event: the native notification, EventBridge's envelope, and SNS's envelope
// around either.
type s3Message struct {
	Event   string     // "s3:TestEvent"
	Records []s3Record // native
	// EventBridge.
	DetailType string   `json:"detail-type"`
	Detail     s3Detail `json:"detail"`
	// SNS.
	Type    string
	Message string
}

type s3Record struct {
	EventName string `json:"eventName"`
	S3        struct {
		Bucket struct {
			Name string `json:"name"`
		} `json:"bucket"`
		Object struct {
			Key       json.RawMessage `json:"key"`
			VersionID string          `json:"versionId"`
			ETag      string          `json:"eTag"`
			Sequencer string          `json:"sequencer"`
		} `json:"object"`
	} `json:"s3"`
	Response struct {
		RequestID string `json:"x-amz-request-id"`
	} `json:"responseElements"`
}

type s3Detail struct {
	Bucket struct {
		Name string `json:"name"`
	} `json:"bucket"`
	Object struct {
		Key       json.RawMessage `json:"key"`
		VersionID string          `json:"version-id"`
		ETag      string          `json:"etag"`
		Sequencer string          `json:"sequencer"`
	} `json:"object"`
	RequestID    string `json:"request-id"`
	DeletionType string `json:"deletion-type"`
}

// s3Event has the common fields of both routes.
type s3Event struct {
	kind                                             string // "" = an object was created
	bucket, key, version, etag, sequencer, requestID string
}

// FromS3 makes the key from an S3 event: a native S3 notification, an event through EventBridge, or either of them through SNS.
// All routes of one event give the same key. The object's name is decoded (native notifications URL-encode it):
//
//   - an object was created: bucket|name|versionId, or bucket|name|eTag|sequencer if the bucket has no versions
//   - any other event (removals, tags, restores …): bucket|name|versionId|sequencer|kind of event, with the request id if the
//     event has no sequencer. Such an event has the version id of the object's creation, but is no duplicate of it.
//
// If the key would exceed [MaxBytes], the name is replaced by sha256: and its hash. A notification with several records is an
// error: a message has one key, so the sender must split it. S3's test event and messages that are not S3 events have no key
// (ErrMissing).
func FromS3() Func {
	return func(m *driver.Message) (string, error) { return s3Key(m, m.Body) }
}

// s3Key returns the key of an S3 event after a prefix.
func s3Key(m *driver.Message, body []byte, prefix ...string) (string, error) {
	e, err := readS3(m, body)
	if err != nil {
		return "", err
	}
	parts, err := e.parts(m)
	if err != nil {
		return "", err
	}
	all := append(slices.Clone(prefix), parts...)
	if len(Tuple(all...)) > MaxBytes {
		sum := sha256.Sum256([]byte(e.key))
		all[len(prefix)+1] = "sha256:" + hex.EncodeToString(sum[:])
	}
	return keyOf(m, all...)
}

func readS3(m *driver.Message, body []byte) (s3Event, error) {
	var s s3Message
	if err := json.Unmarshal(body, &s); err != nil {
		return s3Event{}, noKey(m, "not an S3 event: %v", err)
	}
	if s.Type == "Notification" && s.Message != "" {
		inner := s.Message
		s = s3Message{}
		if err := json.Unmarshal([]byte(inner), &s); err != nil {
			return s3Event{}, noKey(m, "not an S3 event inside of the SNS notification: %v", err)
		}
	}
	switch {
	case s.Event == "s3:TestEvent":
		return s3Event{}, noKey(m, "S3's test event, which it sends once when notifications are set up: discard it")
	case len(s.Records) > 1:
		return s3Event{}, badKey(m, "an S3 notification with %d records: split it, one record a message", len(s.Records))
	case len(s.Records) == 1:
		return s.Records[0].event(m)
	case s.DetailType != "":
		return s.Detail.event(m, s.DetailType)
	}
	return s3Event{}, noKey(m, "not an S3 event: neither Records nor detail-type in the body")
}

func (r *s3Record) event(m *driver.Message) (s3Event, error) {
	o := &r.S3.Object
	key, err := s3Name(m, o.Key)
	if err != nil {
		return s3Event{}, err
	}
	if key, err = url.QueryUnescape(key); err != nil {
		return s3Event{}, badKey(m, "the object key of an S3 notification is not URL-encoded: %v", err)
	}
	name := strings.TrimPrefix(r.EventName, "s3:") // MinIO writes it
	kind, known := s3NativeKinds[name]
	if !known && !strings.HasPrefix(name, "ObjectCreated:") {
		kind = name
		if kind == "" {
			return s3Event{}, noKey(m, "not an S3 event: the record has no eventName")
		}
	}
	return s3Event{
		kind: kind, bucket: r.S3.Bucket.Name, key: key, version: o.VersionID, etag: o.ETag, sequencer: o.Sequencer,
		requestID: r.Response.RequestID,
	}, nil
}

func (d *s3Detail) event(m *driver.Message, detailType string) (s3Event, error) {
	key, err := s3Name(m, d.Object.Key)
	if err != nil {
		return s3Event{}, err
	}
	kind, known := s3BridgeKinds[detailType]
	switch {
	case detailType == "Object Deleted" && d.DeletionType == "Delete Marker Created":
		kind = s3Marker
	case !known:
		kind = detailType
	}
	return s3Event{
		kind: kind, bucket: d.Bucket.Name, key: key, version: d.Object.VersionID, etag: d.Object.ETag,
		sequencer: d.Object.Sequencer, requestID: d.RequestID,
	}, nil
}

// s3Name reads the object's name strictly: encoding/json would replace invalid characters, and turn two names into one.
func s3Name(m *driver.Message, raw json.RawMessage) (string, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return "", noKey(m, "not an S3 event: it names no object")
	}
	key, err := canonjson.Unquote(raw)
	if err != nil {
		return "", badKey(m, "the object key of an S3 event: %v", err)
	}
	return key, nil
}

// The kinds of events, the same for both routes.
const (
	s3Removed = "removed"
	s3Marker  = "delete-marker"
)

var s3NativeKinds = map[string]string{
	"ObjectRemoved:Delete":                    s3Removed,
	"ObjectRemoved:DeleteMarkerCreated":       s3Marker,
	"LifecycleExpiration:Delete":              s3Removed,
	"LifecycleExpiration:DeleteMarkerCreated": s3Marker,
	"ObjectRestore:Post":                      "restore-initiated",
	"ObjectRestore:Completed":                 "restore-completed",
	"ObjectRestore:Delete":                    "restore-expired",
	"ObjectTagging:Put":                       "tags-added",
	"ObjectTagging:Delete":                    "tags-deleted",
	"ObjectAcl:Put":                           "acl-updated",
	"LifecycleTransition":                     "storage-class-changed",
	"IntelligentTiering":                      "access-tier-changed",
}

var s3BridgeKinds = map[string]string{
	"Object Created":               "",
	"Object Deleted":               s3Removed,
	"Object Restore Initiated":     "restore-initiated",
	"Object Restore Completed":     "restore-completed",
	"Object Restore Expired":       "restore-expired",
	"Object Tags Added":            "tags-added",
	"Object Tags Deleted":          "tags-deleted",
	"Object ACL Updated":           "acl-updated",
	"Object Storage Class Changed": "storage-class-changed",
	"Object Access Tier Changed":   "access-tier-changed",
}

func (e *s3Event) parts(m *driver.Message) ([]string, error) {
	if e.bucket == "" || e.key == "" {
		return nil, noKey(m, "not an S3 event: it names no bucket or no object")
	}
	version := e.version
	if version == "null" { // the one version of every object while versioning is suspended
		version = ""
	}
	if e.kind == "" {
		switch {
		case version != "":
			return []string{e.bucket, e.key, version}, nil
		case e.sequencer != "":
			return []string{e.bucket, e.key, strings.Trim(e.etag, `"`), e.sequencer}, nil
		}
		return nil, noKey(m, "an S3 event without versionId and sequencer cannot be distinguished from an upload of the same "+
			"bytes: turn on versioning, or take the key from elsewhere")
	}
	moment := e.sequencer
	if moment == "" {
		moment = e.requestID
	}
	if moment == "" {
		return nil, noKey(m, "an S3 event %q with neither sequencer nor request id", e.kind)
	}
	return []string{e.bucket, e.key, version, moment, e.kind}, nil
}
