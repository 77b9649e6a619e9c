package key_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// s3Case is one event as both routes tell it.
type s3Case struct {
	event, detailType, deletion       string // what happened, natively and through EventBridge
	object                            string // its real name
	encoded                           string // its name in the native notification
	version, etag, sequencer, request string
	want                              string
}

func (c s3Case) native(t *testing.T) []byte {
	object := map[string]string{"key": c.encoded}
	put(object, "versionId", c.version)
	put(object, "eTag", c.etag)
	put(object, "sequencer", c.sequencer)
	return marshal(t, map[string]any{"Records": []any{map[string]any{
		"eventVersion": "2.6", "eventSource": "aws:s3", "awsRegion": "eu-central-1", "eventTime": "2026-11-21T04:03:00.000Z",
		"eventName":         c.event,
		"requestParameters": map[string]string{"sourceIPAddress": "192.0.2.7"},
		"responseElements":  map[string]string{"x-amz-request-id": c.request, "x-amz-id-2": "…"},
		"s3": map[string]any{
			"s3SchemaVersion": "1.0", "configurationId": "c", "object": object,
			"bucket": map[string]any{"name": "uploads", "arn": "arn:aws:s3:::uploads"},
		},
	}}})
}

func (c s3Case) bridge(t *testing.T) []byte {
	object := map[string]any{"key": c.object, "size": 12}
	if c.version != "" {
		object["version-id"] = c.version
	}
	if c.etag != "" {
		object["etag"] = c.etag
	}
	if c.sequencer != "" {
		object["sequencer"] = c.sequencer
	}
	detail := map[string]any{
		"version": "0", "bucket": map[string]string{"name": "uploads"}, "object": object, "request-id": c.request,
		"requester": "123456789012", "source-ip-address": "192.0.2.7", "reason": "PutObject",
	}
	if c.deletion != "" {
		detail["deletion-type"] = c.deletion
	}
	return marshal(t, map[string]any{
		"version": "0", "id": "17793124-05d4-b198-2fde-7ededc63b103", "detail-type": c.detailType, "source": "aws.s3",
		"account": "111122223333", "time": "2026-11-21T04:03:00Z", "region": "eu-central-1",
		"resources": []string{"arn:aws:s3:::uploads"}, "detail": detail,
	})
}

func put(m map[string]string, k, v string) {
	if v != "" {
		m[k] = v
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var s3Cases = map[string]s3Case{
	"versioned": {
		event: "ObjectCreated:Put", detailType: "Object Created", object: "in/Ä report+1|2 50%.csv",
		encoded: "in/%C3%84+report%2B1%7C2+50%25.csv", version: "096fKKXTRTtl3on89fVO.nfljtsv6qko", etag: "d41d8",
		sequencer: "0055AED6DCD90281E5", want: `uploads|in/Ä report+1\|2 50%.csv|096fKKXTRTtl3on89fVO.nfljtsv6qko`,
	},
	"without versions": {
		event: "ObjectCreated:CompleteMultipartUpload", detailType: "Object Created", object: "a b", encoded: "a+b",
		etag: "d41d8-2", sequencer: "0055AED6", want: "uploads|a b|d41d8-2|0055AED6",
	},
	"versioning suspended": {
		event: "ObjectCreated:Copy", detailType: "Object Created", object: "a", encoded: "a", version: "null",
		etag: "e", sequencer: "00B", want: "uploads|a|e|00B",
	},
	"version removed": {
		event: "ObjectRemoved:Delete", detailType: "Object Deleted", deletion: "Permanently Deleted", object: "a",
		encoded: "a", version: "V1", sequencer: "00C", want: "uploads|a|V1|00C|removed",
	},
	"delete marker": {
		event: "ObjectRemoved:DeleteMarkerCreated", detailType: "Object Deleted", deletion: "Delete Marker Created",
		object: "a", encoded: "a", version: "V2", etag: "d41d8", sequencer: "00D", want: "uploads|a|V2|00D|delete-marker",
	},
	"expired": {
		event: "LifecycleExpiration:Delete", detailType: "Object Deleted", deletion: "Permanently Deleted", object: "a",
		encoded: "a", version: "V3", sequencer: "00E", want: "uploads|a|V3|00E|removed",
	},
	"tagged, without sequencer": {
		event: "ObjectTagging:Put", detailType: "Object Tags Added", object: "a", encoded: "a", version: "V1", etag: "e",
		request: "C3D13FE58DE4C810", want: "uploads|a|V1|C3D13FE58DE4C810|tags-added",
	},
	"restored": {
		event: "ObjectRestore:Completed", detailType: "Object Restore Completed", object: "a", encoded: "a",
		version: "V1", request: "R9", want: "uploads|a|V1|R9|restore-completed",
	},
}

func TestKeyFromS3BothRoutes(t *testing.T) {
	f := key.FromS3()
	sns := func(inner []byte) []byte {
		return marshal(t, map[string]any{
			"Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:eu-central-1:111122223333:t",
			"Subject": "Amazon S3 Notification", "Message": string(inner), "Timestamp": "2026-11-21T04:03:00.000Z",
		})
	}
	for name, c := range s3Cases {
		t.Run(name, func(t *testing.T) {
			wantKey(t, f, &driver.Message{Body: c.native(t)}, c.want)
			wantKey(t, f, &driver.Message{Body: c.bridge(t)}, c.want)
			wantKey(t, f, &driver.Message{Body: sns(c.native(t))}, c.want)
			wantKey(t, f, &driver.Message{Body: sns(c.bridge(t))}, c.want)
		})
	}
	c := s3Cases["versioned"]
	c.event = "s3:ObjectCreated:Put" // as MinIO spells it
	wantKey(t, f, &driver.Message{Body: c.native(t)}, c.want)
	c.event = "ObjectRemoved:NewKind" // not known yet: its own name, and never taken for a creation
	wantKey(t, f, &driver.Message{Body: c.native(t)},
		`uploads|in/Ä report+1\|2 50%.csv|096fKKXTRTtl3on89fVO.nfljtsv6qko|0055AED6DCD90281E5|ObjectRemoved:NewKind`)
}

// The same object, put again: another version, or without versions another sequencer, is another operation.
func TestKeyFromS3TellsUploadsApart(t *testing.T) {
	f := key.FromS3()
	seen := map[string]string{}
	for name, c := range s3Cases {
		for i := range 3 {
			d := c
			d.sequencer, d.request = c.sequencer+fmt.Sprint(i), c.request+fmt.Sprint(i)
			if c.version != "" && c.version != "null" {
				d.version += fmt.Sprint(i)
			}
			k, err := f(&driver.Message{Body: d.native(t)})
			if err != nil {
				t.Fatal(err)
			}
			if old, ok := seen[k]; ok {
				t.Errorf("%s and %s have the key %s", old, name, k)
			}
			seen[k] = name
		}
	}
}

func TestKeyFromS3LongNames(t *testing.T) {
	f := key.FromS3()
	long := func(last string) *driver.Message {
		name := strings.Repeat("d/", 511) + last // 1024 bytes, the most that S3 allows
		return &driver.Message{Body: s3Case{
			event: "ObjectCreated:Put", encoded: name, version: "V1", sequencer: "1",
		}.native(t)}
	}
	a, err := f(long("aa"))
	if err != nil {
		t.Fatal(err)
	}
	if parts, err := key.SplitTuple(a); err != nil || len(parts) != 3 || !strings.HasPrefix(parts[1], "sha256:") {
		t.Errorf("got %q, %v", parts, err)
	}
	if b, err := f(long("ab")); err != nil || a == b {
		t.Errorf("two long names have one key: %q, %v", b, err)
	}
}

func TestKeyFromS3Refuses(t *testing.T) {
	f := key.FromS3()
	record := string(s3Cases["versioned"].native(t))
	one := strings.TrimSuffix(strings.TrimPrefix(record, `{"Records":[`), `]}`)
	object := func(s string) string {
		return `{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":` + s + `}}]}`
	}
	for _, v := range []struct {
		body    string
		missing bool
		words   string
	}{
		{`{"Records":[` + one + `,` + one + `]}`, false, "2 records"},
		{`{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"uploads","RequestId":"x"}`, true, "test event"},
		{`{"Records":[]}`, true, "not an S3 event"},
		{`{"Records":[{"eventSource":"aws:sqs"}]}`, true, "names no object"},
		{`{"Records":[{"s3":{"bucket":{"name":"b"},"object":{"key":"a"}}}]}`, true, "eventName"},
		{`{}`, true, "neither Records nor detail-type"},
		{`7`, true, "not an S3 event"},
		{`not json`, true, "not an S3 event"},
		{`{"Type":"Notification","Message":"hello"}`, true, "inside of the SNS notification"},
		{`{"detail-type":"AWS API Call via CloudTrail","detail":{"requestParameters":{}}}`, true, "names no object"},
		{`{"detail-type":"Object Created","detail":{"object":{"key":"a","version-id":"v"}}}`, true, "no bucket"},
		{object(`{"key":"","versionId":"v"}`), true, "no object"},
		{object(`{"key":null,"versionId":"v"}`), true, "names no object"},
		{object(`{"key":"a","eTag":"e"}`), true, "turn on versioning"},
		{object(`{"key":"a%zz","versionId":"v"}`), false, "not URL-encoded"},
		{object(`{"key":7,"versionId":"v"}`), false, "not a string"},
		{object(`{"key":"\ud800","versionId":"v"}`), false, "lone surrogate"},
		{`{"detail-type":"Object Tags Added","detail":{"bucket":{"name":"b"},"object":{"key":"a"}}}`, true, "request id"},
	} {
		_, err := f(&driver.Message{ID: "m", Body: []byte(v.body)})
		keyError(t, v.body[:min(len(v.body), 60)], err, v.missing, `message "m"`, v.words)
	}
}
