package sqs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// TestTraceContextIsAnAttribute: if a message has more headers than attributes, those of the trace context are attributes,
// so that consumers without semel-headers can read them. All headers arrive.
func TestTraceContextIsAnAttribute(t *testing.T) {
	m := driver.Message{ID: "m", Body: []byte("x"), Headers: map[string]string{
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "shop=7",
	}}
	for i := range 12 {
		m.Headers[fmt.Sprintf("a-header-%02d", i)] = "v"
	}
	for _, group := range []bool{false, true} {
		m.Group = "g"
		p, err := pack(&m, group, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.attrs) > maxAttributes || p.attrs["Traceparent"] == "" || p.attrs["tracestate"] == "" {
			t.Errorf("the attributes are %v", slices.Sorted(maps.Keys(p.attrs)))
		}
	}
	kindsFrozen(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		b.send(m)
		if d := b.one(); !maps.Equal(d.Headers, m.Headers) {
			t.Errorf("the headers came as %v", d.Headers)
		}
	})
}

// TestHostileMessages: every message arrives unchanged, or is refused with the reason.
func TestHostileMessages(t *testing.T) {
	many := map[string]string{}
	for i := range 200 {
		many[fmt.Sprintf("header-%03d", i)] = fmt.Sprint("value ", i)
	}
	ms := []driver.Message{
		{ID: "many", Headers: many, Body: []byte("x")},
		{ID: "eight", Headers: map[string]string{"1": "a", "2": "b", "3": "c", "4": "d", "5": "e", "6": "f", "7": "g", "8": "h", "9": "i"}},
		{ID: "names", Headers: map[string]string{"": "empty", "a b": "c", "AWS.x": "y", ".dot": "z", "x..y": "1", "ü": "2", "semel-id": "mine", "Semel-Dead-Letter": "l"}},
		{ID: "values", Headers: map[string]string{"nul": "\x00\x01\x7f", "empty": "", "bmp": "\uFFFE\uFFFF", "astral": "😀 \u2028", "json": `"\u0000`}},
		{ID: "control\x00\x1b", Group: "g\x00\n", Body: []byte("\x00")},
		{ID: strings.Repeat("long", 500), Group: strings.Repeat("group ", 100), Body: []byte("\xff\xfe")},
		{ID: "empty"},
		{ID: "text", Body: []byte("(empty)")},
		{ID: "nonchar", Body: []byte("a\uFFFFb")},
		{ID: "tabs", Body: []byte("\t\r\n é 😀")},
	}
	kindsFrozen(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		for _, m := range ms {
			b.send(m)
			d := b.one()
			want := maps.Clone(m.Headers)
			if d.ID != m.ID || d.Group != m.Group || !bytes.Equal(d.Body, m.Body) || !maps.Equal(d.Headers, want) {
				t.Errorf("%.20q arrived as ID %.20q, group %.20q, body %.20q, headers %v", m.ID, d.ID, d.Group, d.Body, d.Headers)
			}
			l := deadLetterOf(d, "dead letter of "+m.ID)
			b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: l})
			ls := b.listed()
			if len(ls) != 1 || ls[0].ID != l.ID || ls[0].Message.ID != m.ID || ls[0].Message.Group != m.Group ||
				!bytes.Equal(ls[0].Message.Body, m.Body) || !maps.Equal(ls[0].Message.Headers, want) {
				t.Errorf("%.20q as a dead letter: %+v", m.ID, ls)
			}
			if err := b.q.DeleteDeadLetter(t.Context(), l.ID); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range []driver.Message{
			{ID: "a\xff"}, {ID: "m", Group: "\xff"}, {ID: "m", Headers: map[string]string{"a": "\xff"}},
		} {
			if err := b.q.Send(t.Context(), m); err == nil || !strings.Contains(err.Error(), "is not UTF-8") {
				t.Errorf("%+v: %v", m, err)
			}
		}
		if visible, flying, _ := b.server.Count(b.q.name); visible+flying != 0 {
			t.Errorf("%d messages are left", visible+flying)
		}
	})
}

// TestForeignMessages: messages of a program without this package arrive unchanged.
func TestForeignMessages(t *testing.T) {
	b := newBench(t, setup{name: "orders.fifo", frozen: true})
	id := b.raw(awssqs.SendMessageInput{
		MessageBody: aws.String(`{"id":1}`), MessageGroupId: aws.String("customer-1"), MessageDeduplicationId: aws.String("dedup"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"text":   {DataType: aws.String("String.custom"), StringValue: aws.String("v")},
			"number": {DataType: aws.String("Number"), StringValue: aws.String("42")},
			"bytes":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
		},
		MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
			"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")},
		},
	})
	d := b.one()
	want := map[string]string{
		"text": "v", "number": "42", "bytes": "AP8=", headerDedup: "dedup", headerTrace: "Root=1-5759e988-bd862e3fe1be46a994272793",
	}
	if d.ID != id || d.Group != "customer-1" || string(d.Body) != `{"id":1}` || !maps.Equal(d.Headers, want) || d.Count != 1 {
		t.Errorf("arrived as %+v", d)
	}
	if !d.SentAt.Equal(b.clock.Now()) || d.Visible <= 28*time.Second || d.Visible >= 30*time.Second {
		t.Errorf("sent at %v, visible for %v", d.SentAt, d.Visible)
	}
	// A message that looks like this package's format but is invalid arrives, too.
	b.raw(awssqs.SendMessageInput{
		MessageBody: aws.String("not base64!"), MessageGroupId: aws.String("2"), MessageDeduplicationId: aws.String("2"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			attrEncoding: {DataType: aws.String("String"), StringValue: aws.String("base64")},
			attrHeaders:  {DataType: aws.String("String"), StringValue: aws.String("{broken")},
			attrDue:      {DataType: aws.String("String"), StringValue: aws.String("soon")},
		},
	})
	if d := b.one(); string(d.Body) != "not base64!" || d.Header(attrHeaders) != "{broken" {
		t.Errorf("arrived as %+v", d)
	}
	if s := b.log.String(); strings.Count(s, "level=WARN") != 2 {
		t.Errorf("the log says %q", s)
	}
}

// TestLongDelays: a delay that SQS does not support is kept.
func TestLongDelays(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{frozen: true})
	b.send(driver.Message{ID: "m", Delay: 2 * time.Hour})
	b.q.wait = 0
	for at := time.Duration(0); at < 2*time.Hour; at += 5 * time.Minute {
		if ds, err := b.q.Receive(t.Context(), 1); err != nil || len(ds) > 0 {
			t.Fatalf("after %v: %v, %v", at, ds, err)
		}
		b.clock.Advance(5 * time.Minute)
	}
	b.clock.Advance(time.Second)
	if d := b.one(); d.ID != "m" || d.Delay != 0 || len(d.Headers) != 0 {
		t.Errorf("received %+v", d)
	}
	if n := b.server.Messages("orders")[0].Receives; n != 2 {
		t.Errorf("%d receives, wanted one that hid it and one that delivered it", n)
	}
}

// TestUnwrap: an event has the same identity by every route.
func TestUnwrap(t *testing.T) {
	s3 := `{"Records":[{"eventSource":"aws:s3","awsRegion":"eu-west-1","eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":{"key":"a%7Cb","sequencer":"0A1"}}}]}`
	bridge := `{"version":"0","id":"e-1","detail-type":"Order Placed","source":"shop","account":"1","region":"eu-west-1","time":"t","detail":{"n":1}}`
	bridgeS3 := `{"id":"e-2","detail-type":"Object Created","source":"aws.s3","account":"1","region":"r","detail":{"object":{"key":"k"}}}`
	cloud := `{"specversion":"1.0","id":"c-1","source":"/s","type":"t","datacontenttype":"text/plain","data":"hello"}`
	sns := func(inner, attrs string) string {
		return fmt.Sprintf(`{"Type":"Notification","MessageId":"n-1","TopicArn":"arn:t","Subject":"s","Message":%q%s}`, inner, attrs)
	}
	for name, c := range map[string]struct {
		body, want, source, id string
		own                    map[string]string
	}{
		"sns":                {sns("plain", ""), "plain", "arn:t", "n-1", nil},
		"bridge":             {bridge, `{"n":1}`, "aws.events:1:eu-west-1:shop", "e-1", nil},
		"sns bridge":         {sns(bridge, ""), `{"n":1}`, "aws.events:1:eu-west-1:shop", "e-1", nil},
		"bridge of s3":       {bridgeS3, bridgeS3, "aws.events:1:r:aws.s3", "e-2", nil},
		"s3":                 {s3, s3, "aws:s3:b", "a%7Cb||0A1|ObjectCreated:Put", nil},
		"sns s3":             {sns(s3, ""), s3, "aws:s3:b", "a%7Cb||0A1|ObjectCreated:Put", nil},
		"cloud event":        {cloud, "hello", "/s", "c-1", nil},
		"sns cloud event":    {sns(cloud, ""), "hello", "/s", "c-1", nil},
		"publisher's id":     {sns("x", `,"MessageAttributes":{"ce-id":{"Type":"String","Value":"p"},"ce-source":{"Type":"String","Value":"q"}}`), "x", "q", "p", nil},
		"sender's key":       {sns("x", ""), "x", "", "", map[string]string{"idempotency-key": "k"}},
		"two records":        {`{"Records":[{"eventSource":"aws:s3"},{"eventSource":"aws:s3"}]}`, `{"Records":[{"eventSource":"aws:s3"},{"eventSource":"aws:s3"}]}`, "", "", nil},
		"an order":           {`{"id":"1","source":"x"}`, `{"id":"1","source":"x"}`, "", "", nil},
		"a confirmation":     {`{"Type":"SubscriptionConfirmation","MessageId":"m","TopicArn":"a"}`, `{"Type":"SubscriptionConfirmation","MessageId":"m","TopicArn":"a"}`, "", "", nil},
		"no JSON":            {"{", "{", "", "", nil},
		"an array":           {"[1]", "[1]", "", "", nil},
		"other types inside": {`{"Type":1,"id":{},"detail-type":[]}`, `{"Type":1,"id":{},"detail-type":[]}`, "", "", nil},
	} {
		m := driver.Message{ID: "m", Body: []byte(c.body), Headers: c.own}
		unwrap(&m)
		if string(m.Body) != c.want || m.Header("ce-source") != c.source || m.Header("ce-id") != c.id {
			t.Errorf("%s: body %s, source %q, id %q", name, m.Body, m.Header("ce-source"), m.Header("ce-id"))
		}
	}
	b := newBench(t, setup{frozen: true, o: Options{Unwrap: true}})
	b.raw(awssqs.SendMessageInput{MessageBody: aws.String(sns("plain", ""))})
	d := b.one()
	if string(d.Body) != "plain" || d.Header("sns-subject") != "s" {
		t.Errorf("received %+v", d.Message)
	}
	b.send(driver.Message{ID: "own", Body: []byte(sns("kept", ""))}) // not from SNS: its sender meant it
	if d := b.one(); !strings.Contains(string(d.Body), "Notification") {
		t.Errorf("a body of our own was unwrapped: %s", d.Body)
	}
}
