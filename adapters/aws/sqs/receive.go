package sqs

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

// receipt is a delivery's handle; its address is the Receipt of the driver.Delivery. The queue keeps no other state of a
// delivery, so nothing grows with the number of messages.
type receipt struct {
	q        *Queue
	id       string // of the message, for the log
	handle   string
	received time.Time // the return of Receive
	redeliver.Receipt
}

// attempt is a receive of a FIFO queue whose response was lost. Repeated with its ID, SQS returns the same messages instead
// of hiding them until their visibility ends.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-receiverequestattemptid-request-parameter.html
type attempt struct {
	id    string
	until time.Time
}

const (
	// slack is how long the rest of a response may take after its caller has gone.
	slack = 2 * time.Second
	// grace is how long a receive goes on after its ctx has ended.
	grace = 200 * time.Millisecond
	// idle is the pause after a short poll that found nothing.
	idle = 200 * time.Millisecond
)

// Receive returns up to limit messages, at most 10. It waits for a message for Options.Wait, then returns none.
//
// A delivery is ours until its visibility ends by our own clock, less a guard for the response time, counted from the return
// of Receive. Several messages of one group may be delivered at once, in order. The group is blocked until all of them are
// settled.
//
// A message that was not sent by this package keeps its MessageId as ID, and its attributes become headers, binary ones in
// base64. On a FIFO queue it gets the header sqs-message-deduplication-id, which may be its key. A message that was traced
// by X-Ray gets x-amzn-trace-id.
//
// With Options.Unwrap the body is the content of the envelope, and the envelope's fields become headers: ce-source and ce-id
// are the identity of the innermost event, so that the default key does not depend on the route. The envelopes of SNS,
// EventBridge (except around S3's events, which need it) and structured CloudEvents are unwrapped, also when nested. An S3
// notification with one record keeps its body and gets the identity of the record.
//
// When ctx ends, Receive waits a fifth of a second for a response that is on its way, reads a response that has begun to its
// end, and returns the messages. Messages that SQS delivers later become visible again when their visibility timeout ends.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("sqs: receive from queue %q: max is %d, must be at least 1", q.name, limit)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := &awssqs.ReceiveMessageInput{
		QueueUrl: &q.url, MaxNumberOfMessages: int32(min(limit, maxBatch)), VisibilityTimeout: seconds(q.visible),
		WaitTimeSeconds: q.wait, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	msgs, until, err := q.ask(ctx, in)
	if err != nil {
		return nil, err
	}
	out := q.accept(ctx, msgs, until)
	if len(msgs) == 0 && q.wait == 0 {
		t := time.NewTimer(idle) // a short poll must not be repeated without a pause
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return out, nil
}

// ask makes one call. After until the messages may be delivered to others.
func (q *Queue) ask(ctx context.Context, in *awssqs.ReceiveMessageInput) (msgs []types.Message, until time.Time, err error) {
	if q.is.fifo {
		id := q.takeAttempt()
		in.ReceiveRequestAttemptId = &id
	}
	wait := time.Duration(in.WaitTimeSeconds) * time.Second
	call, cancel := q.arriving(ctx, wait+q.o.CallTimeout)
	defer cancel()
	visible := time.Duration(in.VisibilityTimeout) * time.Second
	sent := q.o.clock()
	out, err := q.client.ReceiveMessage(call, in, once)
	back := q.o.clock()
	if err != nil {
		if q.is.fifo && !certain(err) {
			q.keepAttempt(*in.ReceiveRequestAttemptId, sent.Add(min(visible/2, 4*time.Minute)))
		}
		if ctx.Err() != nil {
			return nil, until, ctx.Err()
		}
		return nil, until, q.failed("ReceiveMessage", err)
	}
	return out.Messages, redeliver.Deadline(sent, back, wait, visible), nil
}

// arriving returns a context for a receive. It ends a moment after ctx, and not in the middle of a response: on a busy queue
// a response is always on its way, and its messages would stay hidden until their visibility ends.
func (q *Queue) arriving(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	began := make(chan struct{})
	var first sync.Once // the SDK may repeat the request
	call = httptrace.WithClientTrace(call, &httptrace.ClientTrace{GotFirstResponseByte: func() { first.Do(func() { close(began) }) }})
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(q.o.grace)
		defer t.Stop()
		select {
		case <-began:
			t.Reset(slack)
		case <-t.C:
			cancel()
		case <-call.Done():
		}
		select {
		case <-t.C:
			cancel()
		case <-call.Done():
		}
	})
	return call, func() { stop(); cancel() }
}

func (q *Queue) takeAttempt() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.attempt
	q.attempt = attempt{}
	if a.id != "" && q.o.clock().Before(a.until) {
		return a.id
	}
	return driver.NewMessageID()
}

func (q *Queue) keepAttempt(id string, until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.attempt = attempt{id: id, until: until}
}

// accept makes deliveries of messages. It hides messages that are not due yet. In a FIFO queue it also returns the messages
// of the group behind such a message, and SQS holds them back. A message that can never become due goes to the dead-letter
// queue.
func (q *Queue) accept(ctx context.Context, msgs []types.Message, until time.Time) []driver.Delivery {
	now := q.o.clock()
	if len(msgs) > 0 && !now.Before(until) {
		q.tooLate(len(msgs))
		return nil
	}
	var out []driver.Delivery
	var parts []*types.Message
	var early []change
	behind := map[string]bool{}
	for i := range msgs {
		in := &msgs[i]
		if _, ok := readPart(in); ok {
			parts = append(parts, in)
			continue
		}
		rc := &receipt{q: q, id: deref(in.MessageId), handle: deref(in.ReceiptHandle), received: now, Receipt: redeliver.NewReceipt(until)}
		group := in.Attributes["MessageGroupId"]
		if due := millis(deref(in.MessageAttributes[attrDue].StringValue)); due.After(now) {
			if q.neverDue(in, due, now) && q.deadLetterNeverDue(ctx, in, rc, due) {
				continue
			}
			early = append(early, change{rc: rc, seconds: seconds(min(due.Sub(now), maxVisible-time.Minute))})
			behind[group] = q.is.fifo
			continue
		}
		if behind[group] {
			early = append(early, change{rc: rc, action: driver.Defer})
			continue
		}
		m := q.unpack(in)
		rc.id = m.ID
		count, _ := strconv.Atoi(in.Attributes["ApproximateReceiveCount"])
		out = append(out, driver.Delivery{Message: m, Receipt: rc, Count: count})
	}
	q.putAside(ctx, early, parts)
	left := until.Sub(q.o.clock())
	if left <= 0 && len(out) > 0 {
		q.tooLate(len(out))
		return nil
	}
	for i := range out {
		out[i].Visible = left
	}
	return out
}

// tooLate logs deliveries that are no longer ours when they arrive. They are delivered again.
func (q *Queue) tooLate(n int) {
	q.o.Logger.Warn("messages arrived after their visibility had ended: this machine stood still, or a call took very long",
		"queue", q.name, "messages", n, "visibility", q.visible)
}

// putAside hides messages that are not due, and returns pieces of dead letters. A cancelled receive does that too.
func (q *Queue) putAside(ctx context.Context, early []change, parts []*types.Message) {
	if len(early)+len(parts) == 0 {
		return
	}
	ctx, cancel := q.bounded(context.WithoutCancel(ctx))
	defer cancel()
	if err := q.changeAll(ctx, early); err != nil {
		// They are redelivered when their visibility ends, and checked again.
		q.o.Logger.Warn("messages that are not due could not be hidden", "queue", q.name, "messages", len(early), "err", err)
	}
	for _, in := range parts {
		q.returnPart(ctx, in)
	}
}
