package sqs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// outgoing is one message to send.
type outgoing struct {
	packed
	what         string // for errors
	group, dedup string // FIFO
	delay        int32
}

// Send sends messages in batches of 10 and 1 MiB. It returns nil when all are accepted. Messages that SQS refuses
// temporarily are sent again until ctx ends, a few times at most. A message that no queue would accept is a
// *[driver.ItemError], and nothing is sent.
//
// ID, headers, group and body arrive unchanged, whatever characters they have; headers and IDs must be UTF-8. Headers become
// attributes, which other consumers see, as far as SQS accepts them. A delay of more than 900 s, and any delay on a FIFO
// queue, is stored in the message: receivers hide it until it is due, which counts as a receive, and on a FIFO queue blocks
// its group.
//
// On a FIFO queue Message.Group is the MessageGroupId and Message.ID the MessageDeduplicationId, both hashed if SQS would
// refuse them: for five minutes SQS drops a message with the ID of another. A batch has at most one message of a group,
// because SQS may refuse a message and accept the next one of the same group.
func (q *Queue) Send(ctx context.Context, m ...driver.Message) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqs: send to queue %q: %w", q.name, err)
	}
	list := make([]outgoing, len(m))
	for i := range m {
		var err error
		if list[i], err = q.outgoing(&m[i]); err != nil {
			culprit := &driver.ItemError{Index: i, Err: fmt.Errorf("message %q: %w", m[i].ID, err)}
			return fmt.Errorf("sqs: send to queue %q: %w", q.name, culprit)
		}
		list[i].what = fmt.Sprintf("message %d (%q)", i, m[i].ID)
	}
	return q.post(ctx, list)
}

func (q *Queue) outgoing(m *driver.Message) (o outgoing, err error) {
	sent := *m
	random := sent.ID == ""
	if random {
		sent.ID = driver.NewMessageID()
	}
	extra := map[string]string{}
	now := q.o.clock()
	if m.Delay > 0 {
		due := now.Add(m.Delay)
		if !m.SentAt.IsZero() {
			due = m.SentAt.Add(m.Delay)
		}
		left := due.Sub(now)
		if left > 0 && (q.is.fifo || left > maxDelay) {
			extra[attrDue] = strconv.FormatInt(due.Add(time.Millisecond-1).UnixMilli(), 10)
		}
		if !q.is.fifo {
			o.delay = seconds(min(left, maxDelay))
		}
	}
	if q.is.fifo {
		switch {
		case m.Group != "":
			o.group = legalID(m.Group)
		case q.o.Ungrouped:
			o.group = ungrouped + driver.NewMessageID()
		default:
			return o, errors.New("it has no group, and the queue is FIFO; Try: set Message.Group (--group), " +
				"or Options.Ungrouped (ungrouped=on in the URL) where order does not matter")
		}
		if o.dedup = legalID(sent.ID); random {
			o.dedup = sent.ID
		}
	}
	named := o.group == m.Group && !strings.HasPrefix(m.Group, ungrouped) // the MessageGroupId has it
	if o.packed, err = pack(&sent, !named, extra); err != nil {
		return o, err
	}
	if n := o.size(); n > q.is.maxSize {
		return o, fmt.Errorf("it has %d bytes with headers and encoding, and the queue takes %d; Try: put the body elsewhere (S3) and "+
			"send its address, or raise the queue's MaximumMessageSize (at most %d)", n, q.is.maxSize, maxSize)
	}
	return o, nil
}

// post sends checked messages.
func (q *Queue) post(ctx context.Context, list []outgoing) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		slots = make(chan struct{}, parallel)
	)
	if q.is.fifo {
		slots = make(chan struct{}, 1) // in order
	}
	stopped := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(errs) > 0
	}
	for len(list) > 0 {
		n := q.cut(list)
		batch := list[:n]
		list = list[n:]
		slots <- struct{}{}
		if stopped() {
			<-slots
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := q.postBatch(ctx, batch); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// cut returns how many messages the next batch takes.
func (q *Queue) cut(list []outgoing) int {
	size := 0
	for i := range list {
		size += list[i].size()
		again := q.is.fifo && slices.ContainsFunc(list[:i], func(o outgoing) bool { return o.group == list[i].group })
		if i == maxBatch || i > 0 && (size > maxSize || again) {
			return i
		}
	}
	return len(list)
}

// The pauses between the tries of a batch.
const (
	sendTries    = 8
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// postBatch sends one batch, and repeats the messages that failed temporarily.
func (q *Queue) postBatch(ctx context.Context, batch []outgoing) error {
	pause := firstPause
	for try := 1; ; try++ {
		rest, err := q.postOnce(ctx, batch)
		if err == nil {
			return nil
		}
		if codeOf(err) == "BatchRequestTooLong" && len(batch) > 1 {
			// Emulators, and SQS until 2025, accept 256 KiB. Nothing of the batch was accepted.
			if err := q.postBatch(ctx, batch[:len(batch)/2]); err != nil {
				return err
			}
			return q.postBatch(ctx, batch[len(batch)/2:])
		}
		if len(rest) == 0 || try == sendTries || ctx.Err() != nil {
			return err
		}
		t := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		batch, pause = rest, min(2*pause, longestPause)
	}
}

// postOnce makes one call. rest are the messages that may be sent again: none after a permanent error.
func (q *Queue) postOnce(ctx context.Context, batch []outgoing) (rest []outgoing, err error) {
	entries := make([]types.SendMessageBatchRequestEntry, len(batch))
	for i := range batch {
		o := &batch[i]
		e := types.SendMessageBatchRequestEntry{
			Id: entryID(i), MessageBody: &o.body, DelaySeconds: o.delay, MessageAttributes: o.attributes(),
		}
		if o.group != "" {
			e.MessageGroupId, e.MessageDeduplicationId = &o.group, &o.dedup
		}
		entries[i] = e
	}
	call, cancel := q.bounded(ctx)
	defer cancel()
	res, err := q.client.SendMessageBatch(call, &awssqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: entries}, once)
	if err != nil {
		if q.lasting(err) {
			return nil, q.failed("SendMessageBatch", err)
		}
		return batch, q.failed("SendMessageBatch", err)
	}
	left := slices.Clone(batch)
	done := make([]bool, len(batch))
	for i := range res.Successful {
		if n, ok := entryOf(res.Successful[i].Id, len(done)); ok {
			done[n] = true
		}
	}
	var errs []error
	lasting := false
	for i := range res.Failed {
		e := &res.Failed[i]
		what := "a message"
		if n, ok := entryOf(e.Id, len(batch)); ok {
			what = batch[n].what
		}
		lasting = lasting || refusedEntry(e)
		errs = append(errs, fmt.Errorf("sqs: send to queue %q: %s: %s: %s", q.name, what, deref(e.Code), deref(e.Message)))
	}
	n := 0
	for i := range left {
		if !done[i] {
			left[n] = left[i]
			n++
		}
	}
	switch {
	case n == 0:
		return nil, nil
	case lasting:
		return nil, errors.Join(errs...)
	case len(errs) == 0:
		errs = append(errs, fmt.Errorf("sqs: send to queue %q: SQS reported on %d messages of %d", q.name, len(batch)-n, len(batch)))
	}
	return left[:n], errors.Join(errs...)
}

// lasting reports an error of a call that a repetition would get again.
func (q *Queue) lasting(err error) bool {
	switch codeOf(err) {
	case "", "RequestThrottled", "ThrottlingException", "Throttling", "TooManyRequestsException", "SlowDown", "KmsThrottled",
		"RequestLimitExceeded", "ServiceUnavailable":
		return false
	}
	return certain(err)
}
