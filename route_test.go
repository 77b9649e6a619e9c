package semel_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// TestS204_OneEventByTwoRoutes: two rules, or two kinds of routes, are reported once per event. Redeliveries and redriven
// dead letters are not.
func TestS204_OneEventByTwoRoutes(t *testing.T) {
	sns := func(topic, inner string) string {
		return fmt.Sprintf(`{"Type":"Notification","MessageId":%q,"TopicArn":"arn:%s","Message":%q}`, topic, topic, inner)
	}
	notification := func(object string) string {
		return fmt.Sprintf(`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put","s3":{"configurationId":"c",
			"bucket":{"name":"in"},"object":{"key":%q,"eTag":"e","sequencer":"00A"}}}]}`, object)
	}
	bridge := func(object string) string {
		return fmt.Sprintf(`{"detail-type":"Object Created","source":"aws.s3","detail":{
			"bucket":{"name":"in"},"object":{"key":%q,"etag":"e","sequencer":"00A"}}}`, object)
	}
	cloudEvent := `{"specversion":"1.0","type":"order","source":"/orders","id":"7"}`
	synctest.Test(t, func(t *testing.T) {
		var found []string
		fails := 2
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			if fails--; fails >= 0 {
				return errRoutes
			}
			return nil
		}), func(c *semel.Config) {
			c.Key = key.FromEvent()
			c.Events = semel.DetectDuplicateRoutes(func(k semel.Key, first, second semel.DuplicateRoute) {
				found = append(found, fmt.Sprintf("%s: %s (%s), %s (%s)", k.Raw, first.MessageID, first.Route, second.MessageID, second.Route))
			})
		})
		send := func(id, body string) {
			r.send(semel.Message{ID: id, Body: []byte(body)})
			time.Sleep(time.Minute)
		}
		r.start()
		send("1", notification("b")) // fails twice: the same message, three times
		send(driver.RedriveID("x"), notification("b"))
		if len(found) != 0 {
			t.Errorf("found %q", found)
		}
		send("2", notification("a"))
		send("3", bridge("a"))
		send("4", sns("t", notification("a"))) // reported already
		send("5", sns("t", bridge("b")))
		send("6", cloudEvent)
		send("7", cloudEvent)
		r.after(time.Minute)
		want := []string{
			"s3|in|a|e|00A: 2 (S3 notification c), 3 (EventBridge)",
			"s3|in|b|e|00A: 1 (S3 notification c), 5 (SNS arn:t > EventBridge)",
			"ce|/orders|7: 6 (CloudEvent), 7 (CloudEvent)",
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("found %q, want %q", found, want)
		}
	})
}

// TestRoutesOfPreviousKeysAreForgotten: what is remembered has a bound, and it is the latest.
func TestRoutesOfPreviousKeysAreForgotten(t *testing.T) {
	found := 0
	w := semel.DetectDuplicateRoutes(func(semel.Key, semel.DuplicateRoute, semel.DuplicateRoute) { found++ })
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
