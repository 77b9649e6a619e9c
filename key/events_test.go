package key_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// Events as their senders document them, shortened where nothing is read.
const (
	bridgeEvent = `{"version":"0","id":"6a7e8feb-b491-4cf7-a9f1-bf3703467718","detail-type":"EC2 Instance State-change Notification",
		"source":"aws.ec2","account":"111122223333","time":"2017-12-22T18:43:48Z","region":"us-west-1",
		"resources":["arn:aws:ec2:us-west-1:123456789012:instance/i-1234567890abcdef0"],
		"detail":{"instance-id":"i-1234567890abcdef0","state":"terminated"}}`
	bridgeReplay = `{"version":"0","id":"6a7e8feb-b491-4cf7-a9f1-bf3703467718","detail-type":"EC2 Instance State-change Notification",
		"source":"aws.ec2","account":"111122223333","time":"2017-12-22T18:43:48Z","region":"us-west-1","replay-name":"again",
		"resources":[],"detail":{"instance-id":"i-1234567890abcdef0","state":"terminated"}}`
	snsEvent = `{"Type":"Notification","MessageId":"22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
		"TopicArn":"arn:aws:sns:us-west-2:123456789012:MyTopic","Subject":"My First Message","Message":"Hello world!",
		"Timestamp":"2012-05-02T00:54:06.655Z","SignatureVersion":"1","Signature":"EXAMPLE","SigningCertURL":"https://sns",
		"UnsubscribeURL":"https://sns"}`
	snsConfirm = `{"Type":"SubscriptionConfirmation","MessageId":"165545c9","Token":"2336412f37",
		"TopicArn":"arn:aws:sns:us-west-2:123456789012:MyTopic","Message":"You have chosen to subscribe","SubscribeURL":"https://sns"}`
	cloudEvent  = `{"specversion":"1.0","type":"com.example.order","source":"/orders","id":"A234-1234-1234","data":{"n":1}}`
	stripeEvent = `{"id":"evt_1MqqbKLt4dXK03v5qaIbiNCC","object":"event","api_version":"2024-04-10","account":"acct_1",
		"created":1680064028,"data":{"object":{"id":"sub_1Mqqb6","object":"subscription"}},"pending_webhooks":2,
		"type":"customer.subscription.updated"}`
	gcsPush = `{"message":{"attributes":{"bucketId":"b","objectId":"a/ü","objectGeneration":"1685","eventType":"OBJECT_FINALIZE",
		"notificationConfig":"projects/_/buckets/b/notificationConfigs/3"},"data":"e30=","messageId":"7","publishTime":"2026"},
		"subscription":"projects/p/subscriptions/s"}`
	kafkaRecord = `{"eventSource":"aws:kafka","eventSourceArn":"arn:aws:kafka:sa-east-1:1:cluster/c","topic":"t","partition":0,
		"offset":9223372036854775807,"timestamp":1545084650987,"timestampType":"CREATE_TIME","key":"k","value":"dg=="}`
)

func mustKey(t *testing.T, spec string) key.Func {
	t.Helper()
	f, err := key.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestEventKeys is the table of events and their keys, row by row.
func TestEventKeys(t *testing.T) {
	gcs := map[string]string{
		"bucketId": "b", "objectId": "a/ü", "objectGeneration": "1685", "eventType": "OBJECT_FINALIZE",
		"notificationConfig": "projects/_/buckets/b/notificationConfigs/4",
	}
	update := map[string]string{"bucketId": "b", "objectId": "o", "objectGeneration": "1685", "eventType": "OBJECT_METADATA_UPDATE"}
	hook := map[string]string{"X-GitHub-Delivery": "72d3162e-cc78", "X-GitHub-Hook-ID": "292430182"}
	kafka := map[string]string{"kafka-cluster": "c", "kafka-topic": "t", "kafka-partition": "3", "kafka-offset": "42"}
	fifo := driver.Message{ID: "m", Queue: "orders.fifo", Group: "g", Headers: map[string]string{"sqs-message-deduplication-id": "d"}}
	s3 := s3Cases["versioned"]
	at := &driver.Position{Log: "shop/orders", Partition: 3, Offset: 17, Epoch: 5}
	for _, c := range []struct {
		spec string
		m    driver.Message
		want string
	}{
		{"s3", driver.Message{Body: s3.native(t)}, s3.want},
		{"event", driver.Message{Body: s3.native(t)}, "s3|" + s3.want},
		{"event", driver.Message{Body: s3.bridge(t)}, "s3|" + s3.want},
		{"eventbridge", driver.Message{Body: s3.bridge(t)}, "eb|111122223333|eu-central-1|aws.s3|17793124-05d4-b198-2fde-7ededc63b103"},
		{"eventbridge", driver.Message{Body: []byte(bridgeEvent)}, "eb|111122223333|us-west-1|aws.ec2|6a7e8feb-b491-4cf7-a9f1-bf3703467718"},
		{"eventbridge", driver.Message{Body: []byte(bridgeReplay)}, "eb|111122223333|us-west-1|aws.ec2|6a7e8feb-b491-4cf7-a9f1-bf3703467718"},
		{"eventbridge:replays", driver.Message{Body: []byte(bridgeReplay)}, "eb|again|111122223333|us-west-1|aws.ec2|6a7e8feb-b491-4cf7-a9f1-bf3703467718"},
		{"eventbridge:replays", driver.Message{Body: []byte(bridgeEvent)}, "eb|111122223333|us-west-1|aws.ec2|6a7e8feb-b491-4cf7-a9f1-bf3703467718"},
		{"event", driver.Message{Body: []byte(bridgeEvent)}, "eb|111122223333|us-west-1|aws.ec2|6a7e8feb-b491-4cf7-a9f1-bf3703467718"},
		{"sns", driver.Message{Body: []byte(snsEvent)}, "sns|arn:aws:sns:us-west-2:123456789012:MyTopic|22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"},
		{"event", driver.Message{Body: []byte(snsEvent)}, "sns|arn:aws:sns:us-west-2:123456789012:MyTopic|22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"},
		{"sns", driver.Message{Headers: map[string]string{"X-Amz-Sns-Topic-Arn": "arn:t", "X-Amz-Sns-Message-Id": "m"}}, "sns|arn:t|m"},
		{"event", driver.Message{Headers: map[string]string{"X-Amz-Sns-Topic-Arn": "arn:t", "X-Amz-Sns-Message-Id": "m"}}, "sns|arn:t|m"},
		{"cloudevents", driver.Message{Body: []byte(cloudEvent)}, "/orders|A234-1234-1234"},
		{"event", driver.Message{Body: []byte(cloudEvent)}, "ce|/orders|A234-1234-1234"},
		{"event", driver.Message{Headers: map[string]string{"ce_id": "A234-1234-1234", "ce_source": "/orders"}}, "ce|/orders|A234-1234-1234"},
		{"id", driver.Message{ID: "m-1"}, "m-1"},
		{"sqsfifo", fifo, "sqsfifo|orders.fifo|d"},
		{"position", driver.Message{ID: "m", Position: at}, "shop/orders/3/17"},
		{"position", driver.Message{Headers: map[string]string{"semel-position": "shop/orders/3/4"}, Position: at}, "shop/orders/3/4"},
		{"position", driver.Message{Position: &driver.Position{Log: "a|b"}}, "a\\|b/0/0"},
		{"sqsfifo:group", fifo, "sqsfifo|orders.fifo|g|d"},
		{"gcs", driver.Message{Headers: gcs}, "gcs|b|a/ü|1685|OBJECT_FINALIZE"},
		{"gcs", driver.Message{Body: []byte(gcsPush)}, "gcs|b|a/ü|1685|OBJECT_FINALIZE"},
		{"gcs", driver.Message{Headers: update, Body: []byte(`{"metageneration":"2"}`)}, "gcs|b|o|1685|OBJECT_METADATA_UPDATE|2"},
		{"gcs", driver.Message{Headers: update, Body: []byte(`{"metageneration":"3"}`)}, "gcs|b|o|1685|OBJECT_METADATA_UPDATE|3"},
		{"pubsub", driver.Message{Body: []byte(gcsPush)}, "gps|projects/p/subscriptions/s|7"},
		{"kafka", driver.Message{Headers: kafka}, "k|c|t|3|42"},
		{"kafka", driver.Message{Body: []byte(kafkaRecord)}, "k|arn:aws:kafka:sa-east-1:1:cluster/c|t|0|9223372036854775807"},
		{"id", driver.Message{ID: "orders:17", Headers: map[string]string{"Nats-Msg-Id": "n-1"}}, "n-1"},
		{"stripe", driver.Message{Body: []byte(stripeEvent)}, "stripe|acct_1|evt_1MqqbKLt4dXK03v5qaIbiNCC"},
		{"stripe", driver.Message{Body: []byte(`{"detail-type":"x","source":"aws.partner/stripe.com/1","detail":` + stripeEvent + `}`)},
			"stripe|acct_1|evt_1MqqbKLt4dXK03v5qaIbiNCC"},
		{"github", driver.Message{Headers: hook}, "gh|292430182|72d3162e-cc78"},
		{"github:any", driver.Message{Headers: hook}, "gh|72d3162e-cc78"},
		{"json:/execution,/state,/order", driver.Message{Body: []byte(`{"execution":"arn:x","state":"Pay","order":7}`)}, "arn:x|Pay|7"},
	} {
		t.Run(c.spec, func(t *testing.T) { wantKey(t, mustKey(t, c.spec), &c.m, c.want) })
	}
}

// TestEventKeysAcrossRoutes: each pair of routes that one event can take gives one key, and neither its own.
func TestEventKeysAcrossRoutes(t *testing.T) {
	sns := func(topic, id string, inner []byte) []byte {
		return marshal(t, map[string]any{"Type": "Notification", "MessageId": id, "TopicArn": "arn:aws:sns:eu-central-1:1:" + topic, "Message": string(inner)})
	}
	bridge := func(id string, inner []byte) []byte {
		return fmt.Appendf(nil, `{"detail-type":"forwarded","source":"shop","account":"1","region":"r","id":%q,"detail":%s}`, id, inner)
	}
	f := key.FromEvent()
	for name, c := range s3Cases {
		routes := map[string][]byte{
			"S3→SQS":                        c.native(t),
			"S3→SNS→SQS":                    sns("a", "1", c.native(t)),
			"S3→SNS→SQS, raw":               c.native(t), // the body, and no envelope
			"S3→SNS→SQS, another topic":     sns("b", "2", c.native(t)),
			"S3→EventBridge→SQS":            c.bridge(t),
			"S3→EventBridge→SNS→SQS":        sns("a", "3", c.bridge(t)),
			"S3→SNS→SNS→SQS":                sns("b", "5", sns("a", "4", c.native(t))),
			"S3→EventBridge→SNS, raw, →SQS": c.bridge(t),
		}
		for route, body := range routes {
			t.Run(name+"/"+route, func(t *testing.T) { wantKey(t, f, &driver.Message{Body: body}, "s3|"+c.want) })
		}
	}
	for route, body := range map[string][]byte{
		"direct": []byte(cloudEvent), "SNS": sns("a", "6", []byte(cloudEvent)), "EventBridge": bridge("7", []byte(cloudEvent)),
		"EventBridge, SNS": sns("a", "8", bridge("7", []byte(cloudEvent))),
	} {
		t.Run("CloudEvent/"+route, func(t *testing.T) { wantKey(t, f, &driver.Message{Body: body}, "ce|/orders|A234-1234-1234") })
	}
	// What a queue unwrapped tells in headers gives the key of the envelope.
	plain := `{"instance-id":"i"}`
	for name, m := range map[string]driver.Message{
		"wrapped": {Body: bridge("9", []byte(plain))},
		"unwrapped": {Body: []byte(plain), Headers: map[string]string{
			"ce-source": "aws.events:1:r:shop", "ce-id": "9", "sns-topic-arn": "arn:t", "sns-message-id": "m",
		}},
	} {
		t.Run("EventBridge "+name, func(t *testing.T) { wantKey(t, f, &m, "eb|1|r|shop|9") })
		t.Run("eventbridge "+name, func(t *testing.T) { wantKey(t, key.FromEventBridge(false), &m, "eb|1|r|shop|9") })
	}
	wantKey(t, f, &driver.Message{Body: []byte("Hello world!"), Headers: map[string]string{
		"ce-source": "arn:t", "ce-id": "m", "sns-topic-arn": "arn:t", "sns-message-id": "m",
	}}, "sns|arn:t|m")
}

// TestHostileEvents: what is missing, wrong, twice or hidden is refused with a fix, and never shares a key.
func TestHostileEvents(t *testing.T) {
	record := strings.TrimSuffix(strings.TrimPrefix(string(s3Cases["versioned"].native(t)), `{"Records":[`), `]}`)
	deep := cloudEvent
	for range 6 {
		deep = string(marshal(t, map[string]any{"Type": "Notification", "MessageId": "m", "TopicArn": "arn", "Message": deep}))
	}
	header := func(kv ...string) driver.Message {
		h := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			h[kv[i]] = kv[i+1]
		}
		return driver.Message{Headers: h}
	}
	body := func(s string) driver.Message { return driver.Message{Body: []byte(s)} }
	for _, c := range []struct {
		spec    string
		m       driver.Message
		missing bool
		words   string
	}{
		{"event", body(`{"Records":[` + record + `,` + record + `]}`), false, "split it"},
		{"event", body(`{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`), true, "discard it"},
		{"event", body(snsConfirm), true, "SubscribeURL"},
		{"sns", body(snsConfirm), true, "SubscribeURL"},
		{"event", body(``), true, "no event"},
		{"event", body(`[]`), true, "no event"},
		{"event", body(`{"Records":[{"eventSource":"aws:ses"}]}`), true, "no event"},
		{"event", body(`{"Records":7}`), true, "no event"},
		{"event", body(`{"detail-type":"x","source":"y","detail":{}}`), true, `without "/account"`},
		{"event", body(`{"detail-type":"x","source":"y","account":7,"region":"r","id":"i","detail":{}}`), false, "not a string"},
		{"event", body(`{"detail-type":"x","source":"y","account":"1","region":"r","id":"","detail":{}}`), false, "is empty"},
		{"event", body(`{"detail-type":"x","source":"y","account":"1","region":"r","id":null,"detail":{}}`), true, "is null"},
		{"event", body(`{"detail-type":"x","source":"y","account":"1","region":"r","id":"a","id":"b","detail":{}}`), false, "twice"},
		{"event", body(`{"detail-type":"x","source":"y","account":"1","region":"r","id":"\ud800","detail":{}}`), false, "lone surrogate"},
		{"event", body(`{"type":"Notification","topicarn":"arn","messageid":"m","message":"x"}`), true, "no event"},
		{"eventbridge", body(`{"instance-id":"i"}`), true, "the whole event"},
		{"sns", body(`{"order":1}`), true, "raw delivery"},
		{"sns", body(`{"Type":"Notification","TopicArn":"arn"}`), true, `without "/MessageId"`},
		{"gcs", header("bucketId", "b", "objectId", "o", "eventType", "OBJECT_FINALIZE"), true, "objectGeneration"},
		{"gcs", header("bucketId", "b", "objectId", "o", "objectGeneration", "1", "eventType", "OBJECT_METADATA_UPDATE"), false, "JSON_API_V1"},
		{"pubsub", body(`{"message":{"messageId":7},"subscription":"s"}`), false, "not a string"},
		{"pubsub", body(`hello`), true, "payload unwrapping"},
		{"kafka", header("kafka-topic", "t", "kafka-partition", "0", "kafka-offset", "1e3"), false, "no number"},
		{"kafka", header("kafka-topic", "t", "kafka-partition", "00", "kafka-offset", "1"), false, "no number"},
		{"kafka", body(`{"topic":"t","partition":0,"offset":-1}`), false, "no number"},
		{"kafka", body(`{"topic":"t","partition":0,"offset":1e400}`), false, "offset"},
		{"kafka", body(`{"topic":"t","partition":{},"offset":1}`), false, "neither a number nor a string"},
		{"kafka", body(`{}`), true, "kafka-topic"},
		{"stripe", body(`{"id":"sub_1"}`), true, "evt_"},
		{"stripe", body(`{"id":7}`), true, "evt_"},
		{"github", header("x-github-hook-id", "1"), true, "X-GitHub-Delivery"},
		{"github", header("x-github-delivery", "1"), true, "github:any"},
		{"sqsfifo", driver.Message{ID: "m"}, true, "FIFO"},
		{"position", driver.Message{ID: "m", Queue: "orders"}, true, "queue orders gives no position: it is no log"},
		{"position", driver.Message{Position: &driver.Position{Log: strings.Repeat("l", 2000)}}, false, "more than 1024"},
	} {
		raw, err := mustKey(t, c.spec)(&c.m)
		if raw != "" || !errors.As(err, new(*key.Error)) || errors.Is(err, key.ErrMissing) != c.missing || !strings.Contains(err.Error(), c.words) {
			t.Errorf("--key %s of %s %v: %q, %v", c.spec, c.m.Body, c.m.Headers, raw, err)
		}
	}
	// Too many envelopes: the outermost one that can be identified, and no endless descent.
	if k, err := key.FromEvent()(&driver.Message{Body: []byte(deep)}); err != nil || !strings.HasPrefix(k, "sns|") {
		t.Errorf("%q, %v", k, err)
	}
	// Parts cannot be shifted into each other.
	a := body(`{"detail-type":"x","source":"s|i","account":"1","region":"r","id":"j","detail":{}}`)
	b := body(`{"detail-type":"x","source":"s","account":"1","region":"r","id":"i|j","detail":{}}`)
	ka, _ := key.FromEvent()(&a)
	kb, _ := key.FromEvent()(&b)
	if ka == kb || ka == "" {
		t.Errorf("two events have the key %q", ka)
	}
	pushed := body(`{"message":{"attributes":{"bucketId":"b","objectId":"o","objectGeneration":"1","eventType":"OBJECT_METADATA_UPDATE"},"data":"` +
		base64.StdEncoding.EncodeToString([]byte(`{"metageneration":4}`)) + `"}}`)
	wantKey(t, key.FromGCS(), &pushed, "gcs|b|o|1|OBJECT_METADATA_UPDATE|4")
}

// TestEventKeysCompareNoBody: what differs between two routes of one event is no other payload.
func TestEventKeysCompareNoBody(t *testing.T) {
	for spec, body := range map[string]bool{
		"id": true, "header:x": true, "cloudevents": true, "kafka": true, "sqsfifo": true, "position": true, "event": false, "s3": false, "sns": false,
		"eventbridge": false, "eventbridge:replays": false, "gcs": false, "pubsub": false, "stripe": false, "github": false, "json:/a": false,
	} {
		f := key.DefaultFingerprint(spec)
		if (f == nil) != (spec == "json:/a") {
			t.Errorf("--key %s: has a fingerprint: %v", spec, f != nil)
			continue
		}
		if f == nil {
			continue
		}
		a, err := f(&driver.Message{Body: []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := f(&driver.Message{Body: []byte(`2`)}); err != nil || a == "" || (a != b) != body {
			t.Errorf("--key %s: the body is compared: %v, %v", spec, a != b, err)
		}
	}
}
