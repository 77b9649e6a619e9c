package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// Queue is a queue of SQS. Open it with [Open]; there is nothing to close.
type Queue struct {
	client  Client
	url     string
	name    string
	region  string
	o       Options
	is      attributes
	visible time.Duration
	wait    int32 // 0 = none
	dlq     driver.DeadLetterQueue
	// movedKept is how long the queue of the redrive policy keeps messages; 0 = there is none.
	movedKept time.Duration

	mu      sync.Mutex
	attempt attempt
}

// attributes are the attributes of a queue on the server.
type attributes struct {
	arn           string
	fifo          bool
	visible       time.Duration
	wait          time.Duration
	retention     time.Duration
	maxSize       int
	deadLetterARN string
	maxReceive    int
}

// Open looks up a queue by its name or URL and reads its attributes. The client stays the caller's.
func Open(ctx context.Context, client Client, queue string, o Options) (*Queue, error) {
	q, err := open(ctx, client, queue, o)
	if err != nil {
		return nil, err
	}
	if err := q.openDeadLetters(ctx); err != nil {
		return nil, err
	}
	q.readMoved(ctx)
	return q, nil
}

func open(ctx context.Context, client Client, queue string, o Options) (*Queue, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if queue == "" {
		return nil, errors.New("sqs: no queue given: use its name or its URL")
	}
	q := &Queue{client: client, o: o, name: queue}
	var missing bool
	if q.region, missing = regionOf(client); missing {
		return nil, fmt.Errorf("sqs: open queue %q: no region: set AWS_REGION, or region= in the queue's URL", queue)
	}
	if strings.Contains(queue, "://") {
		q.url, q.name = queue, queue[strings.LastIndexByte(queue, '/')+1:]
	} else if q.url, err = q.find(ctx, queue, ""); err != nil {
		return nil, err
	}
	if q.is, err = q.read(ctx); err != nil {
		return nil, err
	}
	q.plan()
	return q, nil
}

// plan sets visibility and wait.
func (q *Queue) plan() {
	q.visible = time.Duration(seconds(q.o.Visibility)) * time.Second
	if q.visible == 0 {
		q.visible = q.is.visible
	}
	if q.visible == 0 {
		// With 0 every message would be delivered to all receivers at once, and the SDK cannot ask for 0 either.
		q.visible = 30 * time.Second
	}
	switch {
	case q.o.Wait > 0:
		q.wait = seconds(q.o.Wait)
	case q.is.wait > 0:
		q.wait = 1
		q.o.Logger.Warn("the queue waits by itself, which a call cannot turn off: each receive waits 1 s",
			"queue", q.name, "receive_message_wait", q.is.wait)
	}
}

func (q *Queue) find(ctx context.Context, name, account string) (string, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	in := &awssqs.GetQueueUrlInput{QueueName: &name}
	if account != "" {
		in.QueueOwnerAWSAccountId = &account
	}
	out, err := q.client.GetQueueUrl(ctx, in)
	if err != nil {
		return "", explain("GetQueueUrl", name, q.region, err)
	}
	return deref(out.QueueUrl), nil
}

func (q *Queue) get(ctx context.Context, names ...types.QueueAttributeName) (map[string]string, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	out, err := q.client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: names})
	if err != nil {
		return nil, q.failed("GetQueueAttributes", err)
	}
	return out.Attributes, nil
}

func (q *Queue) read(ctx context.Context) (a attributes, err error) {
	m, err := q.get(ctx, types.QueueAttributeNameAll)
	if err != nil {
		return a, err
	}
	secs := func(name types.QueueAttributeName) time.Duration {
		n, _ := strconv.Atoi(m[string(name)]) // absent = 0
		return time.Duration(n) * time.Second
	}
	a = attributes{
		arn: m["QueueArn"], fifo: strings.HasSuffix(q.name, ".fifo"),
		visible: secs(types.QueueAttributeNameVisibilityTimeout),
		wait:    secs(types.QueueAttributeNameReceiveMessageWaitTimeSeconds), maxSize: maxSize,
		retention: secs(types.QueueAttributeNameMessageRetentionPeriod),
	}
	if n, err := strconv.Atoi(m["MaximumMessageSize"]); err == nil && n > 0 {
		a.maxSize = n
	}
	if p := m["RedrivePolicy"]; p != "" {
		var policy struct {
			ARN string          `json:"deadLetterTargetArn"`
			Max json.RawMessage `json:"maxReceiveCount"` // a number, or a number in quotes
		}
		if err := json.Unmarshal([]byte(p), &policy); err != nil {
			return a, fmt.Errorf("sqs: queue %q: read its redrive policy %q: %w", q.name, p, err)
		}
		a.deadLetterARN = policy.ARN
		a.maxReceive, _ = strconv.Atoi(strings.Trim(string(policy.Max), `"`))
	}
	return a, nil
}

// openDeadLetters opens the dead-letter queue.
func (q *Queue) openDeadLetters(ctx context.Context) error {
	if q.o.DeadLetters != nil {
		q.dlq = q.o.DeadLetters
		return nil
	}
	name := q.o.DeadLetterQueue
	if name == "" && q.is.deadLetterARN != "" {
		part := strings.Split(q.is.deadLetterARN, ":") // arn:aws:sqs:region:account:name
		if len(part) != 6 {
			return fmt.Errorf("sqs: queue %q: its redrive policy names %q, which is not the ARN of a queue", q.name, q.is.deadLetterARN)
		}
		url, err := q.find(ctx, part[5], part[4])
		if err != nil {
			return fmt.Errorf("the queue of the redrive policy of %q: %w", q.name, err)
		}
		name = url
	}
	if name == "" {
		return nil
	}
	dlq, err := openDeadLetterQueue(ctx, q, name)
	if err != nil {
		return fmt.Errorf("dead letters of queue %q: %w", q.name, err)
	}
	if dlq.q.is.arn != "" && dlq.q.is.arn == q.is.arn {
		return fmt.Errorf("sqs: queue %q is its own dead-letter queue: name another in Options.DeadLetterQueue", q.name)
	}
	q.dlq = dlq
	return nil
}

// Features describes the queue as it was when it was opened.
func (q *Queue) Features() driver.QueueFeatures {
	f := driver.QueueFeatures{
		Name: q.name, Kind: "sqs", MaxBatch: maxBatch, MaxVisible: maxVisible, Retention: q.is.retention, Horizon: q.horizon(), Durable: true,
		Extends: true, Delays: true, DelaysSend: true, Counts: true, Orders: q.is.fifo, DeadLetters: q.dlq != nil, Redrives: q.is.deadLetterARN != "",
		Runs: q.is.fifo,
	}
	if dlq, ok := q.dlq.(*DeadLetterQueue); ok && dlq.q.is.retention > 0 {
		f.Caveats = append(f.Caveats,
			fmt.Sprintf("dead letters are kept in queue %s, which drops them after %s", dlq.q.name,
				driver.DurationText(dlq.q.is.retention)))
	}
	return f
}

// MaxReceive returns the number of receives after which the redrive policy moves a message; 0 = there is no policy.
func (q *Queue) MaxReceive() int { return q.is.maxReceive }

// URL returns the queue's URL.
func (q *Queue) URL() string { return q.url }

// DeadLetterQueue returns the dead-letter queue; nil if there is none.
func (q *Queue) DeadLetterQueue() driver.DeadLetterQueue { return q.dlq }

// Stats returns the approximate number of messages: SQS's numbers may lag behind by a minute. The age of the oldest message
// is not known.
func (q *Queue) Stats(ctx context.Context) (s driver.QueueStats, err error) {
	if s, err = q.counts(ctx); err != nil {
		return s, err
	}
	s.Approximate = true
	if dlq, ok := q.dlq.(*DeadLetterQueue); ok {
		l, err := dlq.q.counts(ctx)
		if err != nil {
			return s, err
		}
		s.DeadLetters = l.Visible + l.InFlight + l.Delayed
	}
	return s, nil
}

func (q *Queue) counts(ctx context.Context) (s driver.QueueStats, err error) {
	m, err := q.get(ctx, types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible, types.QueueAttributeNameApproximateNumberOfMessagesDelayed)
	if err != nil {
		return s, err
	}
	for name, n := range map[types.QueueAttributeName]*int64{
		types.QueueAttributeNameApproximateNumberOfMessages:           &s.Visible,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible: &s.InFlight,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed:    &s.Delayed,
	} {
		if *n, err = strconv.ParseInt(m[string(name)], 10, 64); err != nil {
			return s, fmt.Errorf("sqs: queue %q: attribute %s: %w", q.name, name, err)
		}
	}
	return s, nil
}

// Peek returns an error that wraps driver.ErrUnsupported: SQS shows a message only to its receiver, and every receive hides
// it from the workers and counts towards the redrive policy.
func (q *Queue) Peek(context.Context, int) ([]driver.Delivery, error) {
	return nil, fmt.Errorf("sqs: peek into queue %q: SQS shows a message only by a receive, which hides it from the workers and "+
		"counts towards the redrive policy: %w", q.name, driver.ErrUnsupported)
}

// Purge removes all messages except dead letters, which are in another queue. It returns SQS's approximate count from
// before. A purge takes up to a minute, and SQS allows one in 60 s.
func (q *Queue) Purge(ctx context.Context) (int64, error) {
	s, err := q.counts(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	if _, err := q.client.PurgeQueue(ctx, &awssqs.PurgeQueueInput{QueueUrl: aws.String(q.url)}); err != nil {
		return 0, q.failed("PurgeQueue", err)
	}
	return s.Visible + s.InFlight + s.Delayed, nil
}
