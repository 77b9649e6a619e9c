package sqs

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
)

// around calls functions before a request of an operation is carried out, and before its response arrives.
type around struct {
	next          http.RoundTripper
	op            string
	before, after func()
}

func (a *around) RoundTrip(r *http.Request) (*http.Response, error) {
	hit := strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+a.op)
	if hit && a.before != nil {
		a.before()
	}
	res, err := a.next.RoundTrip(r)
	if hit && a.after != nil {
		a.after()
	}
	return res, err
}

// slow makes a bench with delays before the service sees a call of an operation, and before its response arrives.
func slow(t *testing.T, s setup, op string, before, after time.Duration) *bench {
	t.Helper()
	clock := awstest.Frozen(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	s.fake.Clock, s.frozen = clock, true
	s.wrap = append(s.wrap, func(next http.RoundTripper) http.RoundTripper {
		return &around{next, op, func() { clock.Advance(before) }, func() { clock.Advance(after) }}
	})
	return newBench(t, s)
}

// TestFM22_ExtensionThatArrivesTooLate: SQS reports success for an extension that arrives after the message is visible
// again, and does nothing, or extends the visibility of the current holder. By our own clock it is Lost.
func TestFM22_ExtensionThatArrivesTooLate(t *testing.T) {
	for what, took := range map[string][2]time.Duration{"the request": {5 * time.Second, 0}, "the response": {0, 5 * time.Second}} {
		b := slow(t, setup{}, "ChangeMessageVisibilityBatch", took[0], took[1])
		b.send(driver.Message{ID: "m"})
		d := b.one()
		b.clock.Advance(27 * time.Second)
		if out, err := b.q.Extend(t.Context(), time.Minute, d.Receipt); err != nil || out[0] != driver.Lost {
			t.Errorf("%s took longer than the delivery was ours: %v, %v", what, out, err)
		}
		calls := b.server.Calls("ChangeMessageVisibilityBatch")
		b.settle(driver.Lost, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry})
		if n := b.server.Calls("ChangeMessageVisibilityBatch") - calls; n != 0 {
			t.Errorf("%s: %d calls that may hit another holder", what, n)
		}
	}
}

// TestFM18_RetryThatFailedAlone: an entry of a batch that the service failed may have been carried out. Repeated, it would
// take the message from its new holder.
func TestFM18_RetryThatFailedAlone(t *testing.T) {
	f := awstest.NewFaults(awstest.Plan{Schedule: []awstest.Fault{
		{Operation: "ChangeMessageVisibilityBatch", Call: 1, Kind: awstest.Partial, Done: true},
	}})
	b := newBench(t, setup{frozen: true, wrap: wrapOf(f)})
	b.send(driver.Message{ID: "m"})
	old := b.one()
	s := driver.Settlement{Receipt: old.Receipt, Action: driver.Retry}
	if out, err := b.q.Settle(t.Context(), s); err == nil || out[0] != driver.Unknown {
		t.Fatalf("got %v, %v", out, err)
	}
	holder := b.one()
	b.settle(driver.Lost, s)
	if visible, _, _ := b.server.Count("orders"); visible != 0 {
		t.Error("the repetition took the message from its new holder")
	}
	b.settle(driver.Applied, driver.Settlement{Receipt: holder.Receipt})
}

// TestFM27_DeliveriesThatCameTooLate: messages that arrive after their visibility has ended are not delivered. A delivery
// without any time left would look like one of a queue that has no visibility.
func TestFM27_DeliveriesThatCameTooLate(t *testing.T) {
	b := slow(t, setup{}, "ReceiveMessage", 0, 40*time.Second)
	b.send(driver.Message{ID: "m"})
	ds, err := b.q.Receive(t.Context(), 1)
	if err != nil || len(ds) != 0 {
		t.Errorf("received %+v, %v", ds, err)
	}
	if s := b.log.String(); !strings.Contains(s, "level=WARN") {
		t.Errorf("the log says %q", s)
	}
}

// TestFM27_VisibleCountsFromTheReturn: time that Receive spends on some messages reduces the visibility of the others.
func TestFM27_VisibleCountsFromTheReturn(t *testing.T) {
	b := slow(t, setup{}, "ChangeMessageVisibilityBatch", 10*time.Second, 0)
	due := b.clock.Now().Add(time.Hour).UnixMilli()
	b.raw(awssqs.SendMessageInput{MessageBody: aws.String("later"), MessageAttributes: textAttributes(attrDue, due)})
	b.send(driver.Message{ID: "now"})
	ds, err := b.q.Receive(t.Context(), 10)
	if err != nil || len(ds) != 1 || ds[0].ID != "now" {
		t.Fatalf("received %+v, %v", ds, err)
	}
	if ds[0].Visible > 20*time.Second {
		t.Errorf("visible for %v, and 10 s of 30 s have passed", ds[0].Visible)
	}
}

// TestFM73_DelayedHeadOfAGroup: one receive returns a message that is not due and the next of its group: neither is
// delivered, and later they come in order.
func TestFM73_DelayedHeadOfAGroup(t *testing.T) {
	b := newBench(t, setup{name: "orders.fifo", frozen: true, o: Options{Wait: ShortPoll}})
	b.send(driver.Message{ID: "first", Group: "g", Delay: time.Hour})
	b.send(driver.Message{ID: "second", Group: "g"}, driver.Message{ID: "other", Group: "h"})
	ds, err := b.q.Receive(t.Context(), 10)
	if more, merr := b.q.Receive(t.Context(), 10); err != nil || merr != nil || len(ds) != 1 || ds[0].ID != "other" || len(more) != 0 {
		t.Fatalf("received %v, %v, then %v, %v; wanted only the other group", ds, err, more, merr)
	}
	b.settle(driver.Applied, driver.Settlement{Receipt: ds[0].Receipt})
	b.clock.Advance(time.Hour)
	for _, want := range []string{"first", "second"} {
		d := b.one()
		if d.ID != want {
			t.Errorf("%s came, wanted %s", d.ID, want)
		}
		b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt})
	}
}

func textAttributes(name string, value any) map[string]types.MessageAttributeValue {
	return map[string]types.MessageAttributeValue{name: {DataType: aws.String("String"), StringValue: aws.String(fmt.Sprint(value))}}
}

// broken is a connection that breaks when a request is written, a number of times.
type broken struct {
	next  http.RoundTripper
	op    string
	times int
	how   string // of net.OpError
	calls int
}

func (b *broken) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+b.op) {
		if b.calls++; b.calls <= b.times {
			return nil, &net.OpError{Op: b.how, Net: "tcp", Err: net.ErrClosed}
		}
	}
	return b.next.RoundTrip(r)
}

// TestIdleConnectionClosedByTheServer: a server closes an idle connection just when it is used again, before any of the
// request was sent. net/http does not repeat a POST by itself, so the queue does, and a change of visibility is not Unknown.
// It is, if the connection breaks while the response is read.
func TestIdleConnectionClosedByTheServer(t *testing.T) {
	for _, op := range []string{"ReceiveMessage", "ChangeMessageVisibilityBatch", "SendMessageBatch"} {
		for how, want := range map[string]int{"write": 2, "read": 1} {
			c := &broken{op: op, times: 1, how: how}
			b := newBench(t, setup{frozen: true, wrap: []func(http.RoundTripper) http.RoundTripper{
				func(next http.RoundTripper) http.RoundTripper { c.next = next; return c },
			}})
			_, err := b.client.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &b.q.url, MessageBody: aws.String("m")})
			if err != nil {
				t.Fatal(err)
			}
			switch op {
			case "ReceiveMessage":
				_, err = b.q.Receive(t.Context(), 1)
			case "ChangeMessageVisibilityBatch":
				_, err = b.q.Settle(t.Context(), driver.Settlement{Receipt: b.one().Receipt, Action: driver.Retry})
			default:
				_, err = b.q.postOnce(t.Context(), []outgoing{{packed: packed{body: "x"}}})
			}
			if c.calls != want || (err == nil) != (want == 2) || err != nil && !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s, %s: %d calls, %v", op, how, c.calls, err)
			}
		}
	}
}

// TestFM18_NothingSentIsCertain: a change of visibility that never left the machine leaves the delivery ours.
func TestFM18_NothingSentIsCertain(t *testing.T) {
	c := &broken{op: "ChangeMessageVisibilityBatch", times: 1, how: "dial"}
	b := newBench(t, setup{frozen: true, wrap: []func(http.RoundTripper) http.RoundTripper{
		func(next http.RoundTripper) http.RoundTripper { c.next = next; return c },
	}})
	b.send(driver.Message{ID: "m"})
	s := driver.Settlement{Receipt: b.one().Receipt, Action: driver.Retry}
	if out, err := b.q.Settle(t.Context(), s); err == nil || out[0] != driver.Unknown || c.calls != 1 {
		t.Errorf("got %v, %v after %d calls", out, err, c.calls)
	}
	b.settle(driver.Applied, s)
}
