package sqs

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
)

// closing acks deliveries with a dead letter to close for each.
func closing(ds []driver.Delivery, ids ...string) (ss []driver.Settlement) {
	for i, d := range ds {
		ss = append(ss, driver.Settlement{Receipt: d.Receipt, Close: ids[i%len(ids)]})
	}
	return ss
}

// TestCloseComesBehindTheAck: a message is acknowledged before a look at the dead letters, and if that look fails, the ack
// is still Applied: the record of the dead letter is completed, so the dead letter does no harm.
func TestCloseComesBehindTheAck(t *testing.T) {
	for _, op := range []string{"GetQueueAttributes", "ReceiveMessage"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, setup{})
			if err := b.q.PutDeadLetter(t.Context(), driver.DeadLetter{ID: "open", Message: driver.Message{ID: "m"}}); err != nil {
				t.Fatal(err)
			}
			b.send(make([]driver.Message, 3)...)
			left := -1
			dlq := b.q.dlq.(*DeadLetterQueue)
			hang := awstest.NewFaults(awstest.Plan{Operations: map[string]awstest.Rates{op: {Hang: 1}}})
			dlq.q.client = awssqs.NewFromConfig(awstest.Config(b.server, func(next http.RoundTripper) http.RoundTripper {
				return &around{next: hang.Wrap(next), op: op, before: func() { left = len(b.server.Messages("orders")) }}
			}))
			time.Sleep(2 * time.Minute) // the number of dead letters is not what this process wrote a moment ago
			ds := b.receive(3)
			began := time.Now()
			b.settle(driver.Applied, closing(ds, "open", "other")...)
			if left != 0 {
				t.Errorf("%s: %d messages were left when the dead letters were looked at", op, left)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("%s: it took %v", op, took)
			}
			if s := b.log.String(); !strings.Contains(s, "dead letters could not be closed") {
				t.Errorf("%s: the log says %q", op, s)
			}
		})
	}
}

// TestCloseIsCheap: without dead letters a call that closes some asks for their number once. Otherwise one look serves all
// of them, and dead letters that it did not find are not looked for again for a while.
func TestCloseIsCheap(t *testing.T) {
	kindsFrozen(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		asked := func() (receives, counts int) {
			return b.server.Calls("ReceiveMessage"), b.server.Calls("GetQueueAttributes")
		}
		settle := func(ids ...string) (receives, counts int) {
			b.send(make([]driver.Message, 10)...)
			ds := b.receive(10)
			r, c := asked()
			b.settle(driver.Applied, closing(ds, ids...)...)
			r2, c2 := asked()
			return r2 - r, c2 - c
		}
		if r, c := settle("a", "b", "c"); r != 0 || c != 1 {
			t.Errorf("without dead letters: %d receives, %d times asked for the number", r, c)
		}
		for _, id := range []string{"a", "b", "keep"} {
			if err := b.q.PutDeadLetter(t.Context(), driver.DeadLetter{ID: id, Message: driver.Message{ID: "m"}}); err != nil {
				t.Fatal(err)
			}
		}
		if r, _ := settle("a", "b", "c"); r == 0 || r > 3 {
			t.Errorf("three dead letters to close: %d receives", r)
		}
		if ls := b.listed(); len(ls) != 1 || ls[0].ID != "keep" {
			t.Errorf("dead letters %+v", ls)
		}
		if r, c := settle("a", "c"); r != 0 || c != 0 {
			t.Errorf("dead letters that did not exist a moment ago: %d receives, %d times asked for the number", r, c)
		}
		// A dead letter that was written since is found.
		if err := b.q.PutDeadLetter(t.Context(), driver.DeadLetter{ID: "c", Message: driver.Message{ID: "m"}}); err != nil {
			t.Fatal(err)
		}
		settle("c")
		b.clock.Advance(time.Hour)
		settle("keep")
		if ls := b.listed(); len(ls) != 0 {
			t.Errorf("dead letters %+v", ls)
		}
	})
}

// TestCloseTrustsNoFreshCount: SQS's numbers lag behind for a minute, so a process that has just written a dead letter does
// not trust a count of none.
func TestCloseTrustsNoFreshCount(t *testing.T) {
	b := newBench(t, setup{frozen: true})
	if err := b.q.PutDeadLetter(t.Context(), driver.DeadLetter{ID: "a", Message: driver.Message{ID: "m"}}); err != nil {
		t.Fatal(err)
	}
	dlq := b.q.dlq.(*DeadLetterQueue)
	dlq.q.client = noDeadLetters{dlq.q.client}
	b.send(driver.Message{ID: "m"})
	b.settle(driver.Applied, closing([]driver.Delivery{b.one()}, "a")...)
	if n := len(b.server.Messages("orders-dead")); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

// noDeadLetters reports that the queue is empty.
type noDeadLetters struct{ Client }

func (c noDeadLetters) GetQueueAttributes(ctx context.Context, in *awssqs.GetQueueAttributesInput, o ...func(*awssqs.Options)) (
	*awssqs.GetQueueAttributesOutput, error,
) {
	out, err := c.Client.GetQueueAttributes(ctx, in, o...)
	if err == nil {
		for k := range out.Attributes {
			if strings.HasPrefix(k, "ApproximateNumberOfMessages") {
				out.Attributes[k] = "0"
			}
		}
	}
	return out, err
}

// TestCloseOfANoResponseAck: an ack with an unknown outcome is settled again, and its dead letter is closed then.
func TestCloseOfANoResponseAck(t *testing.T) {
	b := newBench(t, setup{frozen: true})
	if err := b.q.PutDeadLetter(t.Context(), driver.DeadLetter{ID: "a", Message: driver.Message{ID: "m"}}); err != nil {
		t.Fatal(err)
	}
	b.send(driver.Message{ID: "m"})
	s := closing([]driver.Delivery{b.one()}, "a")
	f := awstest.NewFaults(awstest.Plan{Operations: map[string]awstest.Rates{"DeleteMessageBatch": {Throttled: 1}}})
	b.q.client = awssqs.NewFromConfig(awstest.Config(b.server, f.Wrap), func(o *awssqs.Options) { o.RetryMaxAttempts = 1 })
	if out, err := b.q.Settle(t.Context(), s...); err == nil || out[0] != driver.Unknown || len(b.listed()) != 1 {
		t.Errorf("got %v, %v; %d dead letters", out, err, len(b.listed()))
	}
	b.q.client = b.client
	b.settle(driver.Applied, s...)
	if len(b.listed()) != 0 {
		t.Error("the dead letter is left")
	}
}
