package sqs

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
)

// redrive lets the provider move all messages from the dead-letter queue back to its source.
func (b *bench) redrive() {
	b.t.Helper()
	dlq := b.q.dlq.(*DeadLetterQueue)
	_, err := b.client.StartMessageMoveTask(b.t.Context(), &awssqs.StartMessageMoveTaskInput{
		SourceArn: &dlq.q.is.arn, DestinationArn: &b.q.is.arn, // a dead letter was sent there, and has no source of its own
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.clock.Advance(time.Minute)
}

func (b *bench) listed() []driver.DeadLetter {
	b.t.Helper()
	ls, err := b.q.DeadLetters(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return ls
}

func deadLetterOf(d driver.Delivery, id string) *driver.DeadLetter {
	return &driver.DeadLetter{ID: id, Kind: driver.DeadLetterFailed, Reason: "no", Key: driver.Key{Consumer: "c", Raw: "k"}, Token: 7, Message: d.Message}
}

// TestProviderRedriveKeepsTheID: a dead letter that the provider moves back is delivered as the original message. Without
// the attribute semel-id the message would have another ID.
func TestProviderRedriveKeepsTheID(t *testing.T) {
	b := newBench(t, setup{frozen: true})
	b.send(driver.Message{ID: "order-1", Group: "g", Body: []byte("x\x00y"), Headers: map[string]string{"h": "v", "bad name": "w"}})
	foreign := b.raw(awssqs.SendMessageInput{MessageBody: aws.String("plain")})
	for _, d := range b.receive(2) {
		b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: deadLetterOf(d, "l-"+d.ID)})
	}
	b.redrive()
	for _, d := range b.receive(2) {
		switch d.ID {
		case "order-1":
			if string(d.Body) != "x\x00y" || d.Header("h") != "v" || d.Header("bad name") != "w" || d.Group != "g" || len(d.Headers) != 2 {
				t.Errorf("redelivered as %+v", d.Message)
			}
		case foreign:
			if string(d.Body) != "plain" || len(d.Headers) != 0 {
				t.Errorf("redelivered as %+v", d.Message)
			}
		default:
			t.Errorf("redelivered with the ID %q", d.ID)
		}
		if ids := b.server.Messages("orders"); len(ids) != 2 {
			t.Errorf("%d messages in the queue", len(ids))
		}
	}
	if ls := b.listed(); len(ls) != 0 {
		t.Errorf("dead letters %v", ls)
	}
}

// TestS3_08_TwoReceives: with maxReceiveCount 2 the third receive never happens, and the message is a dead letter with an
// unknown key. Its default key survives. The provider's own redrive of such a message changes its MessageId.
func TestS3_08_FM84_TwoReceives(t *testing.T) {
	kindsFrozen(t, func(t *testing.T, s setup) {
		s.create.MaxReceive = 2
		b := newBench(t, s)
		in := awssqs.SendMessageInput{MessageBody: aws.String("plain")}
		if b.q.is.fifo {
			in.MessageGroupId, in.MessageDeduplicationId = aws.String("g"), aws.String("dedup-1")
		}
		id := b.raw(in)
		for range 2 {
			if d := b.one(); d.ID != id {
				t.Fatalf("received %q", d.ID)
			}
			b.clock.Advance(31 * time.Second)
		}
		b.q.wait = 0
		if ds, err := b.q.Receive(t.Context(), 1); err != nil || len(ds) != 0 {
			t.Fatalf("a third receive got %v, %v", ds, err)
		}
		ls := b.listed()
		if len(ls) != 1 {
			t.Fatalf("%d dead letters", len(ls))
		}
		l := ls[0]
		if l.Kind != driver.DeadLetterFailed || l.Key.Raw != "" || l.Message.ID != id || !strings.Contains(l.Reason, "received too often") ||
			l.Message.Header("idempotency-key") != id || string(l.Message.Body) != "plain" {
			t.Errorf("dead letter %+v", l)
		}
		if !b.q.Features().Redrives || b.q.MaxReceive() != 2 {
			t.Errorf("redrives %v after %d", b.q.Features().Redrives, b.q.MaxReceive())
		}
		b.redrive()
		b.q.wait = 1
		if d := b.one(); d.ID == id {
			t.Error("the fake keeps the MessageId over a redrive by the provider: SQS does not")
		}
	})
}

// TestFM61_DeadLetterBeforeDelete: the dead letter is written before the message is deleted. If the deletion gets no
// response, the message still exists, and the repetition writes no second copy.
func TestFM61_DeadLetterBeforeDelete(t *testing.T) {
	plan := awstest.Plan{}
	for call := 1; call <= 3; call++ {
		plan.Schedule = append(plan.Schedule, awstest.Fault{Operation: "DeleteMessageBatch", Call: call, Kind: awstest.Before})
	}
	b := newBench(t, setup{frozen: true, wrap: wrapOf(awstest.NewFaults(plan))})
	b.send(driver.Message{ID: "m"})
	d := b.one()
	s := driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: deadLetterOf(d, "l")}
	if out, err := b.q.Settle(t.Context(), s); err == nil || out[0] != driver.Unknown {
		t.Fatalf("got %v, %v", out, err)
	}
	if n := len(b.server.Messages("orders-dead")); n != 1 || len(b.server.Messages("orders")) != 1 {
		t.Fatalf("%d dead letters, %d messages", n, len(b.server.Messages("orders")))
	}
	b.settle(driver.Applied, s)
	if n := len(b.server.Messages("orders-dead")); n != 1 {
		t.Errorf("%d copies of one dead letter", n)
	}
}

// TestFM61_DeadLetterNotWritten: a message is not deleted without its dead letter, and the others of the call are settled.
func TestFM61_DeadLetterNotWritten(t *testing.T) {
	f := awstest.NewFaults(awstest.Plan{Operations: map[string]awstest.Rates{"SendMessageBatch": {Throttled: 1}}})
	b := newBench(t, setup{frozen: true})
	b.send(driver.Message{ID: "m"}, driver.Message{ID: "n"})
	dlq := b.q.dlq.(*DeadLetterQueue)
	dlq.q.client = awssqs.NewFromConfig(awstest.Config(b.server, f.Wrap))
	ds := b.receive(2)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ss := []driver.Settlement{
		{Receipt: ds[0].Receipt, Action: driver.Dead, DeadLetter: deadLetterOf(ds[0], "l")}, {Receipt: ds[1].Receipt, Action: driver.Ack},
	}
	_, err := b.q.Settle(ctx, ss...)
	if err == nil || len(b.server.Messages("orders")) == 0 || len(b.listed()) != 0 {
		t.Errorf("got %v; %d messages, %d dead letters", err, len(b.server.Messages("orders")), len(b.listed()))
	}
	dlq.q.client = b.client
	b.settle(driver.Applied, ss...)
	if len(b.server.Messages("orders")) != 0 || len(b.listed()) != 1 {
		t.Errorf("%d messages, %d dead letters", len(b.server.Messages("orders")), len(b.listed()))
	}
}

// TestDeadLetterQueueThatHangs: a call that cannot write a dead letter still settles its other items, and at once.
func TestDeadLetterQueueThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, setup{})
		b.send(make([]driver.Message, 3)...)
		f := awstest.NewFaults(awstest.Plan{Operations: map[string]awstest.Rates{"SendMessageBatch": {Hang: 1}}})
		b.q.dlq.(*DeadLetterQueue).q.client = awssqs.NewFromConfig(awstest.Config(b.server, f.Wrap))
		ds := b.receive(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out, err := b.q.Settle(ctx,
			driver.Settlement{Receipt: ds[0].Receipt, Action: driver.Dead, DeadLetter: deadLetterOf(ds[0], "l")},
			driver.Settlement{Receipt: ds[1].Receipt}, driver.Settlement{Receipt: ds[2].Receipt, Action: driver.Retry})
		if err == nil || !slices.Equal(out, []driver.Outcome{driver.Unknown, driver.Applied, driver.Applied}) {
			t.Errorf("got %v, %v", out, err)
		}
		if visible, flying, _ := b.server.Count("orders"); visible != 1 || flying != 1 {
			t.Errorf("%d visible, %d in flight; wanted the one to repeat, and the one without its dead letter", visible, flying)
		}
	})
}

// TestDeadLettersInPieces: a message of the largest size that SQS accepts can still become a dead letter.
func TestDeadLettersInPieces(t *testing.T) {
	t.Parallel()
	kindsFrozen(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		r := rand.New(rand.NewPCG(1, 2))
		for _, size := range []int{maxSize - 200, maxSize} {
			body := make([]byte, size)
			for i := range body {
				body[i] = "abcdefgh"[r.IntN(8)]
			}
			in := awssqs.SendMessageInput{MessageBody: aws.String(string(body))}
			if b.q.is.fifo {
				in.MessageGroupId, in.MessageDeduplicationId = aws.String("g"), aws.String(driver.NewMessageID())
			}
			id := b.raw(in)
			d := b.one()
			b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: deadLetterOf(d, "big")})
			if n := len(b.server.Messages(b.q.dlq.(*DeadLetterQueue).q.name)); n < 2 {
				t.Errorf("%d messages: not in pieces", n)
			}
			ls := b.listed()
			if len(ls) != 1 || ls[0].ID != "big" || ls[0].Message.ID != id || !bytes.Equal(ls[0].Message.Body, body) || ls[0].Token != 7 {
				t.Fatalf("%d dead letters, %d bytes", len(ls), len(ls[0].Message.Body))
			}
			// The provider moves the pieces into the queue: they are returned, and no receiver sees them.
			b.redrive()
			b.q.wait = 0
			for range 4 {
				if ds, err := b.q.Receive(t.Context(), 10); err != nil || len(ds) > 0 {
					t.Fatalf("received %v, %v", ds, err)
				}
			}
			b.q.wait = 10
			if ls := b.listed(); len(ls) != 1 || !bytes.Equal(ls[0].Message.Body, body) {
				t.Fatalf("%d dead letters after a redrive by the provider", len(ls))
			}
			for range 2 {
				if err := b.q.DeleteDeadLetter(t.Context(), "big"); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(b.server.Messages(b.q.dlq.(*DeadLetterQueue).q.name)); n != 0 {
				t.Errorf("%d pieces are left", n)
			}
		}
	})
}

// TestHalfADeadLetterIsNone: pieces without the others are no dead letter, whichever are missing.
func TestHalfADeadLetterIsNone(t *testing.T) {
	b := newBench(t, setup{frozen: true})
	dlq := b.q.dlq.(*DeadLetterQueue)
	l := deadLetterOf(driver.Delivery{Message: driver.Message{ID: "m", Body: bytes.Repeat([]byte("body"), 800_000)}}, "big")
	pieces, err := dlq.write(l)
	if err != nil || len(pieces) < 4 {
		t.Fatalf("%d pieces, %v", len(pieces), err)
	}
	for missing := range pieces {
		var msgs []types.Message
		for i, p := range pieces {
			if i != missing {
				msgs = append(msgs, types.Message{Body: &p.body, MessageAttributes: p.attributes(), ReceiptHandle: aws.String("h")})
			}
		}
		for _, h := range dlq.sort(msgs) {
			if h.whole || h.ID != "big" || len(h.handles) != len(pieces)-1 {
				t.Errorf("without piece %d: whole %v, %d handles", missing, h.whole, len(h.handles))
			}
		}
	}
}

// TestDeadLettersAfterOthersLooked: a dead letter that another process has looked at since is found and deleted.
func TestDeadLettersAfterOthersLooked(t *testing.T) {
	kindsFrozen(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		for i := range 25 {
			if err := b.q.PutDeadLetter(t.Context(), driver.DeadLetter{ID: string(rune('a' + i)), Message: driver.Message{ID: "m"}}); err != nil {
				t.Fatal(err)
			}
			b.clock.Advance(time.Millisecond)
		}
		if n := len(b.listed()); n != 25 {
			t.Fatalf("%d dead letters", n)
		}
		other, err := Open(t.Context(), b.client, b.q.name, b.q.o)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.DeleteDeadLetter(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := b.q.DeadLetter(t.Context(), "d"); !ok || err != nil {
			t.Errorf("dead letter d: %v, %v", ok, err)
		}
		if err := b.q.DeleteDeadLetter(t.Context(), "d"); err != nil {
			t.Fatal(err)
		}
		if ls := b.listed(); len(ls) != 23 || ls[2].ID != "e" {
			t.Errorf("%d dead letters", len(ls))
		}
	})
}

// TestLooksWaitWithinTheirContext: while one look at the dead letters hangs, another waits no longer than its ctx.
func TestLooksWaitWithinTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := awstest.NewFaults(awstest.Plan{Schedule: []awstest.Fault{{Operation: "ReceiveMessage", Call: 1, Kind: awstest.Hang}}})
		b := newBench(t, setup{wrap: []func(http.RoundTripper) http.RoundTripper{f.Wrap}})
		ctx, cancel := context.WithCancel(t.Context())
		hung := make(chan error)
		go func() {
			_, err := b.q.DeadLetterQueue().DeadLetters(ctx, 0)
			hung <- err
		}()
		synctest.Wait()
		began := time.Now()
		short, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		err := b.q.DeadLetterQueue().DeleteDeadLetter(short, "none")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("a look behind one that hangs returned %v after %v, wanted its own deadline of a second", err, time.Since(began))
		}
		cancel()
		if err := <-hung; err == nil {
			t.Error("the look that hung returned without an error")
		}
	})
}
