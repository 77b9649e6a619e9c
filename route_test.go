package semel_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// TestS204_OneEventByTwoRoutes: two rules, or two kinds of routes, are told of once for each event; deliveries that are
// repeated, and what is sent again from a letter, are not.
func TestS204_OneEventByTwoRoutes(t *testing.T) {
	sns := func(topic string, inner []byte) []byte {
		return marshal(t, map[string]any{"Type": "Notification", "MessageId": topic, "TopicArn": "arn:" + topic, "Message": string(inner)})
	}
	a, b := s3Cases["versioned"], s3Cases["without versions"]
	synctest.Test(t, func(t *testing.T) {
		var found []string
		fails := 2
		r := newRig(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			if fails--; fails >= 0 {
				return errRoutes
			}
			return nil
		}), func(c *semel.Config) {
			c.Key = semel.KeyFromEvent()
			c.Events = semel.WatchRoutes(func(k semel.Key, first, second semel.Sighting) {
				found = append(found, fmt.Sprintf("%s: %s (%s), %s (%s)", k.Raw, first.MessageID, first.Route, second.MessageID, second.Route))
			})
		})
		send := func(id string, body []byte) {
			r.send(semel.Message{ID: id, Body: body})
			time.Sleep(time.Minute)
		}
		r.start()
		send("1", b.native(t)) // fails twice: the same message, three times
		send(driver.RedriveID("x"), b.native(t))
		if len(found) != 0 {
			t.Errorf("found %q", found)
		}
		send("2", a.native(t))
		send("3", a.bridge(t))
		send("4", sns("t", a.native(t))) // told already
		send("5", sns("t", b.bridge(t)))
		send("6", []byte(cloudEvent))
		send("7", []byte(cloudEvent))
		r.after(time.Minute)
		want := []string{
			"s3|" + a.want + ": 2 (S3 notification c), 3 (EventBridge)",
			"s3|" + b.want + ": 1 (S3 notification c), 5 (SNS arn:t > EventBridge)",
			"ce|/orders|A234-1234-1234: 6 (CloudEvent), 7 (CloudEvent)",
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("found %q, want %q", found, want)
		}
	})
}

// TestRoutesOfFormerKeysAreForgotten: what is remembered has a bound, and it is the latest.
func TestRoutesOfFormerKeysAreForgotten(t *testing.T) {
	found := 0
	w := semel.WatchRoutes(func(semel.Key, semel.Sighting, semel.Sighting) { found++ })
	see := func(key int, id string) {
		w.Delivery(semel.Event{Kind: semel.EventReceived, Key: semel.Key{Raw: fmt.Sprint(key)}, MessageID: id, Route: "r"})
	}
	for key := range 10_001 {
		see(key, "first")
	}
	if see(0, "second"); found != 0 {
		t.Error("it remembers more than 10,000 keys")
	}
	if see(10_000, "second"); found != 1 {
		t.Error("it forgot the latest key")
	}
}

var errRoutes = fmt.Errorf("not yet")

// TestRoutesOfUnwrappedMessages are told by their headers.
func TestRoutesOfUnwrappedMessages(t *testing.T) {
	for want, m := range map[string]semel.Message{
		"SNS arn:t > EventBridge": {Body: []byte(`{"n":1}`), Headers: map[string]string{
			"sns-topic-arn": "arn:t", "sns-message-id": "m", "ce-source": "aws.events:1:r:s", "ce-id": "i",
		}},
		"SNS arn:t":  {Body: []byte(`hello`), Headers: map[string]string{"sns-topic-arn": "arn:t", "sns-message-id": "m", "ce-source": "arn:t", "ce-id": "m"}},
		"CloudEvent": {Headers: map[string]string{"ce-source": "/orders", "ce-id": "i"}},
		"":           {ID: "1", Body: []byte(`{"order":1}`), Headers: map[string]string{"idempotency-key": "k"}},
	} {
		if got := semel.Route(&m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
