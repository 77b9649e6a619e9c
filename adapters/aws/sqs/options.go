package sqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/driver"
)

// Limits of the service.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
const (
	maxBatch      = 10
	maxSize       = 1 << 20 // of a message with its attributes, and of a batch
	maxAttributes = 10
	maxVisible    = 12 * time.Hour // from the delivery, however often it is extended
	maxWait       = 20 * time.Second
	maxDelay      = 900 * time.Second
)

// ShortPoll is the value of [Options.Wait] for no wait at all.
const ShortPoll = time.Duration(-1)

// Client is the part of *sqs.Client that a queue uses.
type Client interface {
	GetQueueUrl(ctx context.Context, in *awssqs.GetQueueUrlInput, o ...func(*awssqs.Options)) (*awssqs.GetQueueUrlOutput, error)
	GetQueueAttributes(ctx context.Context, in *awssqs.GetQueueAttributesInput, o ...func(*awssqs.Options)) (
		*awssqs.GetQueueAttributesOutput, error)
	ReceiveMessage(ctx context.Context, in *awssqs.ReceiveMessageInput, o ...func(*awssqs.Options)) (*awssqs.ReceiveMessageOutput, error)
	SendMessageBatch(ctx context.Context, in *awssqs.SendMessageBatchInput, o ...func(*awssqs.Options)) (
		*awssqs.SendMessageBatchOutput, error)
	DeleteMessageBatch(ctx context.Context, in *awssqs.DeleteMessageBatchInput, o ...func(*awssqs.Options)) (
		*awssqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(ctx context.Context, in *awssqs.ChangeMessageVisibilityBatchInput, o ...func(*awssqs.Options)) (
		*awssqs.ChangeMessageVisibilityBatchOutput, error)
	PurgeQueue(ctx context.Context, in *awssqs.PurgeQueueInput, o ...func(*awssqs.Options)) (*awssqs.PurgeQueueOutput, error)
}

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// Visibility is how long Receive hides a message from others, rounded up to whole seconds, at most 12 h. Defaults to the
	// queue's own; to 30 s if that is 0.
	Visibility time.Duration
	// Wait is how long one call waits for a message (long polling), in whole seconds up to 20 s. Defaults to 10 s.
	// [ShortPoll] does not wait. The SDK cannot ask for that, so a queue that has its own wait then waits for 1 s.
	Wait time.Duration
	// DeadLetters keeps the dead letters. Defaults to a [DeadLetterQueue] on DeadLetterQueue.
	DeadLetters driver.DeadLetterQueue
	// DeadLetterQueue is the name or the URL of the dead-letter queue. Defaults to the queue that the redrive policy names.
	// A queue with neither has no dead letters.
	DeadLetterQueue string
	// Ungrouped lets a FIFO queue accept messages without a group, each in its own group and so in no order. Defaults to
	// refusing them.
	Ungrouped bool
	// Unwrap takes messages out of the envelopes of SNS, EventBridge and structured CloudEvents; see [Queue.Receive].
	// Defaults to false.
	Unwrap bool
	// CallTimeout bounds one call to SQS; a receive takes up to Wait in addition. Defaults to 10 s.
	CallTimeout time.Duration
	// Logger gets warnings. Defaults to slog.Default().
	Logger *slog.Logger

	clock           func() time.Time // tests; defaults to time.Now, whose monotonic part decides
	grace           time.Duration    // tests; defaults to the constant
	deadLetterShort bool             // tests on a frozen clock: the dead-letter queue is not polled long
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Visibility < 0 || o.Visibility > maxVisible:
		return o, fmt.Errorf("sqs: Options.Visibility is %v, must be at most %v (0 = the queue's own)", o.Visibility, maxVisible)
	case o.Wait > maxWait || o.Wait < 0 && o.Wait != ShortPoll:
		return o, fmt.Errorf("sqs: Options.Wait is %v, must be 1 s to %v, 0 for 10 s, or ShortPoll", o.Wait, maxWait)
	case o.CallTimeout < 0:
		return o, fmt.Errorf("sqs: Options.CallTimeout is %v, must not be negative", o.CallTimeout)
	case o.DeadLetters != nil && o.DeadLetterQueue != "":
		return o, errors.New("sqs: Options.DeadLetters and Options.DeadLetterQueue are both set: choose one of them")
	}
	if o.Wait == 0 {
		o.Wait = 10 * time.Second
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.grace == 0 {
		o.grace = grace
	}
	if o.clock == nil {
		o.clock = time.Now
	}
	return o, nil
}

// seconds rounds up to whole seconds, as SQS counts.
func seconds(d time.Duration) int32 {
	if d <= 0 {
		return 0
	}
	return int32((d + time.Second - 1) / time.Second)
}

// once turns the SDK's retries off except for requests that were not sent: a repeated receive hides the messages of the
// first, and a repeated change of visibility affects whoever holds the message by then.
func once(o *awssqs.Options) { o.Retryer = unsentOnly }

var unsentOnly = retry.NewStandard(func(o *retry.StandardOptions) {
	o.MaxAttempts = 3
	o.RateLimiter = ratelimit.None
	o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	o.Retryables = []retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
		return aws.BoolTernary(brokeWriting(err))
	})}
})
