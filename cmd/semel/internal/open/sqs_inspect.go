package open

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// examineTimeout bounds the inspection of a queue or a table.
const examineTimeout = 30 * time.Second

// sqsQueue is what the service says of a queue, and of the one that its redrive policy names.
type sqsQueue struct {
	name string
	live ops.LiveQueue
	// deadLetters is the name of the queue that the policy names; deadLettersErr is why nothing is known of it.
	deadLetters    string
	deadLettersErr error
	// deadLetterQueue is where semel's own dead letters go, as the URL says; "" = to the queue of the policy.
	deadLetterQueue string
	// short: this worker's receives do not wait.
	short bool
}

// Live is how the queue is set now.
func (d *sqsDB) Live(ctx context.Context, queue string) (*ops.LiveQueue, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	q, err := d.look(ctx, queue)
	if err != nil {
		return nil, err
	}
	return &q.live, nil
}

// Examine tells how the queue of the URL is set, as far as that is good or bad whatever the worker does.
func (d *sqsDB) Examine(ctx context.Context, _ Options) ([]ops.Check, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	q, err := d.look(ctx, d.t.QueueName())
	if err != nil {
		return nil, err
	}
	return q.facts(), nil
}

func (d *sqsDB) look(ctx context.Context, name string) (q sqsQueue, err error) {
	q.name = name
	at := d.t
	at.Shown = d.shown(name)
	address := d.address(name)
	if !httpURL(address) {
		out, err := d.client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &address})
		if err != nil {
			return q, awsError(at, "examine", err, noSuchQueue)
		}
		address = aws.ToString(out.QueueUrl)
	}
	m, err := d.attributes(ctx, address)
	if err != nil {
		return q, awsError(at, "examine", err, noSuchQueue)
	}
	arn, err := q.read(m)
	if err != nil {
		return q, fmt.Errorf("examine %s: %w", at.Shown, err)
	}
	q.deadLetterQueue = d.t.aws.params.Get("dead_letters")
	wait, err := d.t.aws.wait("queue")
	if err != nil {
		return q, err
	}
	q.short = wait < 0
	if arn == "" {
		return q, nil
	}
	if q.live.DeadLetterRetention, q.deadLettersErr = d.retention(ctx, arn); errors.Is(q.deadLettersErr, context.Canceled) {
		return q, q.deadLettersErr
	}
	return q, nil
}

func (d *sqsDB) attributes(ctx context.Context, address string) (map[string]string, error) {
	out, err := d.client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{
		QueueUrl: &address, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return nil, err
	}
	return out.Attributes, nil
}

// retention is how long the queue of an ARN keeps its messages.
func (d *sqsDB) retention(ctx context.Context, arn string) (time.Duration, error) {
	part := strings.Split(arn, ":") // arn:aws:sqs:region:account:name
	if len(part) != 6 {
		return 0, fmt.Errorf("%q is no ARN of a queue", arn)
	}
	out, err := d.client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &part[5], QueueOwnerAWSAccountId: &part[4]})
	if err != nil {
		return 0, err
	}
	m, err := d.attributes(ctx, aws.ToString(out.QueueUrl))
	if err != nil {
		return 0, err
	}
	return secondsOf(m, types.QueueAttributeNameMessageRetentionPeriod)
}

// read parses the attributes and returns the ARN of the dead-letter queue.
func (q *sqsQueue) read(m map[string]string) (deadLetters string, err error) {
	q.live.FIFO, q.live.ContentDedup = m["FifoQueue"] == "true", m["ContentBasedDeduplication"] == "true"
	for name, to := range map[types.QueueAttributeName]*time.Duration{
		types.QueueAttributeNameVisibilityTimeout:             &q.live.Visibility,
		types.QueueAttributeNameMessageRetentionPeriod:        &q.live.Retention,
		types.QueueAttributeNameReceiveMessageWaitTimeSeconds: &q.live.Wait,
	} {
		if *to, err = secondsOf(m, name); err != nil {
			return "", err
		}
	}
	raw := m[string(types.QueueAttributeNameRedrivePolicy)]
	if raw == "" {
		return "", nil
	}
	var policy struct {
		ARN string          `json:"deadLetterTargetArn"`
		Max json.RawMessage `json:"maxReceiveCount"` // a number, or a number in quotes
	}
	if err := json.Unmarshal([]byte(raw), &policy); err != nil {
		return "", fmt.Errorf("read the redrive policy %q: %w", raw, err)
	}
	if q.live.MaxReceives, err = strconv.Atoi(strings.Trim(string(policy.Max), `"`)); err != nil {
		return "", fmt.Errorf("read the redrive policy %q: %w", raw, err)
	}
	q.deadLetters = policy.ARN[strings.LastIndexByte(policy.ARN, ':')+1:]
	return policy.ARN, nil
}

func secondsOf(m map[string]string, name types.QueueAttributeName) (time.Duration, error) {
	n, err := strconv.Atoi(m[string(name)])
	if m[string(name)] == "" {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("attribute %s: %w", name, err)
	}
	return time.Duration(n) * time.Second, nil
}

func (q *sqsQueue) facts() []ops.Check {
	kind := "standard"
	if q.live.FIFO {
		kind = "FIFO"
	}
	f := Facts{fact(ops.LevelOK, "queue", "", "%s is a %s queue: visibility %s, messages are kept for %s", q.name, kind, words.About(q.live.Visibility),
		words.About(q.live.Retention)), q.redrive()}
	switch {
	case q.short:
		f.Add(ops.LevelWarning, "polling", "wait=20s in the URL",
			"receives do not wait (wait=0): an idle worker pays for calls without end, and one may find nothing although messages are there")
	case q.live.Wait == 0:
		f.Add(ops.LevelOK, "polling", "", "receives of semel wait for messages; those of others do not, because the queue's own wait is 0")
	default:
		f.Add(ops.LevelOK, "polling", "", "receives wait for messages")
	}
	// What the service calls exactly-once processing.
	f.When(q.live.FIFO && q.live.ContentDedup, ops.LevelWarning, "dedup", "ContentBasedDeduplication false, and a MessageDeduplicationId of each producer's own",
		"by content, within 5 minutes: two orders with equal bodies are one to the queue, whatever their attributes say, and the second is "+
			"never delivered")
	f.When(q.live.FIFO && !q.live.ContentDedup, ops.LevelOK, "dedup", "",
		"the queue drops what is sent again within 5 minutes; that is no guarantee about deliveries, redrives and later retries: the record is")
	return f
}

// redrive is about the queue that the service moves messages to. Of its limit the worker's settings decide.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html
func (q *sqsQueue) redrive() ops.Check {
	const check = "redrive"
	have, deadLetters := words.About(q.live.Retention), words.About(q.live.DeadLetterRetention)
	longer := fmt.Sprintf("aws sqs set-queue-attributes: MessageRetentionPeriod 1209600 (14d) on %s", q.deadLetters)
	switch {
	case q.live.MaxReceives == 0:
		return fact(ops.LevelOK, check, "", "there is no redrive policy: semel alone decides what is a dead letter (%s)",
			cmp.Or(q.deadLetterQueue, "kept in the store, where that can"))
	case q.deadLettersErr != nil:
		return fact(ops.LevelWarning, check, "allow sqs:GetQueueUrl and sqs:GetQueueAttributes on it, and check that it exists",
			"nothing is known of the dead-letter queue %s: %v", q.deadLetters, q.deadLettersErr)
	case q.live.DeadLetterRetention < q.live.Retention && !q.live.FIFO:
		return DeadLettersExpire(q.deadLetters, q.live.DeadLetterRetention, q.live.Retention)
	case q.live.DeadLetterRetention <= q.live.Retention:
		return fact(ops.LevelWarning, check, longer+", or less on the queue, or dead_letters=dynamodb:TABLE, which has no limit",
			"%s keeps messages for %s, no longer than the queue (%s): one that failed late has little time left", q.deadLetters, deadLetters, have)
	}
	return fact(ops.LevelOK, check, "", "%s keeps messages for %s, longer than the queue (%s)", q.deadLetters, deadLetters, have)
}

// DeadLettersExpire is the finding about a dead-letter queue of SQS that keeps messages for less than their queue.
func DeadLettersExpire(name string, kept, queue time.Duration) ops.Check {
	return fact(ops.LevelDanger, "redrive", "a longer MessageRetentionPeriod on the dead-letter queue, such as 1209600 (14d)",
		"%s keeps messages for %s, the queue for %s, and a message's age goes on counting when it is moved: one that failed late is deleted at once",
		name, words.About(kept), words.About(queue))
}
