package sqs

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
)

func after(op string, call int) *awstest.Faults {
	return awstest.NewFaults(awstest.Plan{Schedule: []awstest.Fault{{Operation: op, Call: call, Kind: awstest.After}}})
}

// TestFM18_StaleHandleHitsNobody: with an old handle SQS changes the visibility of the current holder's message. So a
// delivery that is no longer ours by our own clock is abandoned without a call.
func TestFM18_StaleHandleHitsNobody(t *testing.T) {
	b := newBench(t, setup{frozen: true})
	b.send(driver.Message{ID: "m"})
	old := b.one()
	b.clock.Advance(31 * time.Second)
	holder := b.one()
	calls := b.server.Calls("ChangeMessageVisibilityBatch")
	for _, a := range []driver.Action{driver.Retry, driver.Defer} {
		b.settle(driver.Lost, driver.Settlement{Receipt: old.Receipt, Action: a})
	}
	if out, err := b.q.Extend(t.Context(), time.Minute, old.Receipt); err != nil || out[0] != driver.Lost {
		t.Errorf("extend: %v, %v", out, err)
	}
	if n := b.server.Calls("ChangeMessageVisibilityBatch") - calls; n != 0 {
		t.Errorf("%d calls with a stale handle", n)
	}
	if visible, flying, _ := b.server.Count("orders"); visible != 0 || flying != 1 {
		t.Errorf("%d visible, %d in flight: the new holder lost its message", visible, flying)
	}
	// This is what the calls would have done.
	_, err := b.client.ChangeMessageVisibility(t.Context(), &awssqs.ChangeMessageVisibilityInput{
		QueueUrl: &b.q.url, ReceiptHandle: aws.String(old.Receipt.(*receipt).handle),
	})
	if visible, _, _ := b.server.Count("orders"); err != nil || visible != 1 {
		t.Errorf("the fake is not like SQS: %d visible, %v", visible, err)
	}
	b.settle(driver.Applied, driver.Settlement{Receipt: holder.Receipt})
}

// TestFM18_RetryWithoutResponse: a change of visibility that was applied, and whose response is lost, must not be repeated
// when another worker may hold the message.
func TestFM18_RetryWithoutResponse(t *testing.T) {
	f := after("ChangeMessageVisibilityBatch", 1)
	b := newBench(t, setup{frozen: true, wrap: wrapOf(f)})
	b.send(driver.Message{ID: "m"})
	old := b.one()
	s := driver.Settlement{Receipt: old.Receipt, Action: driver.Retry}
	if out, err := b.q.Settle(t.Context(), s); err == nil || out[0] != driver.Unknown {
		t.Fatalf("a lost response: %v, %v", out, err)
	}
	holder := b.one()
	b.settle(driver.Lost, s)
	if visible, _, _ := b.server.Count("orders"); visible != 0 {
		t.Error("the repetition took the message from its new holder")
	}
	b.settle(driver.Applied, driver.Settlement{Receipt: holder.Receipt})
	if n := f.Calls("ChangeMessageVisibilityBatch"); n != 1 {
		t.Errorf("%d calls: the SDK repeated it", n)
	}
}

// TestFM20_AckWithoutResponse: the response to a delete is lost, and so are those to the SDK's retries. A repetition is
// Applied.
func TestFM20_AckWithoutResponse(t *testing.T) {
	t.Parallel()
	kindsFrozen(t, func(t *testing.T, s setup) {
		plan := awstest.Plan{}
		for call := 1; call <= 3; call++ {
			plan.Schedule = append(plan.Schedule, awstest.Fault{Operation: "DeleteMessageBatch", Call: call, Kind: awstest.After})
		}
		f := awstest.NewFaults(plan)
		s.wrap = wrapOf(f)
		b := newBench(t, s)
		b.send(driver.Message{ID: "a"}, driver.Message{ID: "b"})
		ds := b.receive(2)
		ss := []driver.Settlement{{Receipt: ds[0].Receipt}, {Receipt: ds[1].Receipt}}
		out, err := b.q.Settle(t.Context(), ss...)
		if err == nil || out[0] != driver.Unknown || out[1] != driver.Unknown {
			t.Fatalf("got %v, %v", out, err)
		}
		if b.q.is.fifo { // the message is gone, and a FIFO queue reports that
			_, err = b.q.Settle(t.Context(), ss...)
		} else {
			b.settle(driver.Applied, ss...)
			err = nil
		}
		if visible, flying, _ := b.server.Count(b.q.name); err != nil || visible+flying != 0 {
			t.Errorf("%d messages are left, %v", visible+flying, err)
		}
	})
}

// TestS3_14_StaleReceiptIsAWarning: a handle that SQS refuses is Lost and logged, and nothing stops.
func TestS3_14_StaleReceiptIsAWarning(t *testing.T) {
	b := newBench(t, setup{name: "orders.fifo", frozen: true, o: Options{Ungrouped: true}})
	b.send(driver.Message{ID: "m"})
	d := b.one()
	b.clock.Advance(31 * time.Second)
	b.settle(driver.Lost, driver.Settlement{Receipt: d.Receipt})
	s := b.log.String()
	if strings.Count(s, "settle_stale") != 1 || !strings.Contains(s, "level=WARN") || !strings.Contains(s, "message_id=m") {
		t.Errorf("the log says %q", s)
	}
	b.settle(driver.Applied, driver.Settlement{Receipt: b.one().Receipt})
}

// TestPartialBatches: SQS reports on every entry. An entry that failed is Unknown, and repeated alone.
func TestPartialBatches(t *testing.T) {
	kindsFrozen(t, func(t *testing.T, s setup) {
		f := awstest.NewFaults(awstest.Plan{Seed: 3, Operations: map[string]awstest.Rates{
			"DeleteMessageBatch": {Partial: .5}, "ChangeMessageVisibilityBatch": {Partial: .5}, "SendMessageBatch": {Partial: .5},
		}})
		s.wrap = wrapOf(f)
		b := newBench(t, s)
		ms := make([]driver.Message, 35)
		for i := range ms {
			ms[i] = driver.Message{ID: string(rune('A' + i)), Body: []byte("x")}
		}
		b.send(ms...)
		left := map[any]driver.Action{}
		got := map[string]int{}
		accepted, _, _ := b.server.Count(b.q.name) // what failed may have been accepted, and was sent again
		for i, d := range b.receive(accepted) {
			got[d.ID]++
			left[d.Receipt] = driver.Ack
			if i%2 == 0 {
				left[d.Receipt] = driver.Defer
			}
		}
		for round := 0; len(left) > 0; round++ {
			var ss []driver.Settlement
			for r, a := range left {
				ss = append(ss, driver.Settlement{Receipt: r, Action: a, After: 5 * time.Second})
			}
			out, _ := b.q.Settle(t.Context(), ss...)
			for i, o := range out {
				// An entry that failed may have been carried out: of a change that is Lost by and by.
				if o != driver.Unknown {
					delete(left, ss[i].Receipt)
				}
			}
			if round > 40 {
				t.Fatalf("%d are left after %d rounds", len(left), round)
			}
		}
		if f.Counts()["partial"] == 0 || len(got) != len(ms) {
			t.Errorf("faults %v, %d messages of %d", f.Counts(), len(got), len(ms))
		}
		if visible, flying, _ := b.server.Count(b.q.name); visible+flying != (accepted+1)/2 {
			t.Errorf("%d messages of %d are left, wanted the half that was deferred", visible+flying, accepted)
		}
	})
}

// TestFM24_TwelveHours: no delivery is hidden for longer than SQS allows, and asking for more is no error.
func TestFM24_TwelveHours(t *testing.T) {
	b := newBench(t, setup{frozen: true, o: Options{Visibility: 12 * time.Hour}})
	b.send(driver.Message{ID: "m"})
	d := b.one()
	b.clock.Advance(11*time.Hour + 30*time.Minute)
	if out, err := b.q.Extend(t.Context(), time.Hour, d.Receipt); err != nil || out[0] != driver.Applied {
		t.Errorf("clamped: %v, %v", out, err)
	}
	b.clock.Advance(29*time.Minute + 58*time.Second)
	if out, err := b.q.Extend(t.Context(), time.Hour, d.Receipt); err != nil || out[0] != driver.Lost {
		t.Errorf("at the end: %v, %v", out, err)
	}
	if f := b.q.Features(); f.MaxVisible != 12*time.Hour {
		t.Errorf("MaxVisible is %v", f.MaxVisible)
	}
}

// TestFM22_ExtensionWithoutResponse: the extension is Unknown, and the delivery stays ours until its visibility ends.
func TestFM22_ExtensionWithoutResponse(t *testing.T) {
	b := newBench(t, setup{frozen: true, wrap: wrapOf(after("ChangeMessageVisibilityBatch", 1))})
	b.send(driver.Message{ID: "m"})
	d := b.one()
	if out, err := b.q.Extend(t.Context(), time.Minute, d.Receipt); err == nil || out[0] != driver.Unknown {
		t.Errorf("got %v, %v", out, err)
	}
	b.clock.Advance(20 * time.Second)
	if out, err := b.q.Extend(t.Context(), time.Minute, d.Receipt); err != nil || out[0] != driver.Applied {
		t.Errorf("repeated: %v, %v", out, err)
	}
	b.clock.Advance(50 * time.Second)
	b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry})
}

// TestHangingConnection: a call that gets no response ends by itself.
func TestHangingConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := awstest.NewFaults(awstest.Plan{Schedule: []awstest.Fault{
			{Operation: "DeleteMessageBatch", Call: 1, Kind: awstest.Hang}, {Operation: "ReceiveMessage", Call: 2, Kind: awstest.Hang},
		}})
		b := newBench(t, setup{wrap: wrapOf(f), o: Options{CallTimeout: 50 * time.Millisecond, Wait: time.Second}})
		b.send(driver.Message{ID: "m"})
		d := b.one()
		if out, err := b.q.Settle(t.Context(), driver.Settlement{Receipt: d.Receipt}); err == nil || out[0] != driver.Unknown {
			t.Errorf("got %v, %v", out, err)
		}
		if _, err := b.q.Receive(t.Context(), 1); err == nil {
			t.Error("a receive without a response is no error")
		}
		b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt})
	})
}
