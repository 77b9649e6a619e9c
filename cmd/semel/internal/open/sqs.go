package open

import (
	"context"
	"errors"
	"sort"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var sqsKind = &kind{
	schemes: []string{"sqs"}, match: httpURL, parse: parseSQS, open: openSQS, namesQueue: true, form: sqsForm,
	noRecords: "SQS keeps no records", params: sqsParams, create: createSQS,
}

var sqsParams = append([]string{"dead_letters", "wait", "unwrap", "ungrouped"}, commonParams...)

const noSuchQueue = "make it with semel queue create, or fix its name, the region or the endpoint"

// sqsDB is the queues of an account in a region.
type sqsDB struct {
	t      Target
	cfg    aws.Config
	client *awssqs.Client
}

func openSQS(ctx context.Context, t Target, _ Options) (Database, error) {
	cfg, err := t.aws.load(ctx, t)
	if err != nil {
		return nil, err
	}
	return &sqsDB{t, cfg, awssqs.NewFromConfig(cfg)}, nil
}

// Queue opens a queue that has to exist: its URL is asked for, and its attributes.
func (d *sqsDB) Queue(ctx context.Context, name string, visible time.Duration) (driver.Queue, error) {
	o, err := d.options(ctx, name)
	if err != nil {
		return nil, err
	}
	if o.Visibility = visible; visible > 12*time.Hour {
		return nil, output.Usage("--visibility is longer than the 12 hours for which SQS keeps a delivery").WithHint("--visibility 12h")
	}
	at := d.t
	at.Shown = d.shown(name)
	q, err := sqs.Open(ctx, d.client, d.address(name), o)
	if err != nil {
		return nil, awsError(at, "open", err, noSuchQueue)
	}
	return q, nil
}

// createSQS makes a queue and one for its dead letters.
func createSQS(ctx context.Context, t Target, how NewQueue) error {
	switch {
	case how.Visibility > 12*time.Hour:
		return output.Usage("--default-visibility is longer than the 12 hours that SQS allows").WithHint("--default-visibility 30s")
	case how.Retention != 0 && (how.Retention < time.Minute || how.Retention > 14*24*time.Hour):
		return output.Usage("--message-retention is out of range").WithHint("SQS keeps messages for 1m to 14d")
	}
	cfg, err := t.aws.load(ctx, t)
	if err != nil {
		return err
	}
	deadLetters, _, err := t.aws.deadLetters("queue")
	if err != nil || httpURL(deadLetters) {
		return errors.Join(err, output.Usage("--queue: dead_letters= has to be a name for a queue that is made").WithHint("dead_letters=orders-dead"))
	}
	_, err = sqs.Create(ctx, awssqs.NewFromConfig(cfg), t.aws.name, sqs.CreateOptions{
		Visibility: how.Visibility, Retention: how.Retention, MaxReceive: how.MaxReceives, DeadLetterQueue: deadLetters,
	})
	if err != nil {
		return awsError(t, "create", err, "")
	}
	return nil
}

// address is what the adapter finds the queue by: its own URL where that was given.
func (d *sqsDB) address(name string) string {
	if d.t.aws.own != "" && name == d.t.aws.name {
		return d.t.aws.own
	}
	return name
}

func (d *sqsDB) shown(name string) string {
	if name == d.t.aws.name {
		return d.t.Shown
	}
	return "sqs://" + name
}

func (d *sqsDB) options(ctx context.Context, name string) (o sqs.Options, err error) {
	if o.Wait, err = d.t.aws.wait("queue"); err != nil {
		return o, err
	}
	if o.Unwrap, err = d.t.aws.on("queue", "unwrap"); err != nil {
		return o, err
	}
	if o.Ungrouped, err = d.t.aws.on("queue", "ungrouped"); err != nil {
		return o, err
	}
	queue, table, err := d.t.aws.deadLetters("queue")
	if err != nil {
		return o, err
	}
	o.DeadLetterQueue = queue
	if table != "" {
		o.DeadLetters, err = openDeadLetterTable(ctx, d.cfg, d.t, name, table)
	}
	return o, err
}

// Store is not reached: a Set asks HasRecords before.
func (d *sqsDB) Store(context.Context) (driver.Store, error) { return nil, d.t.HasRecords() }

// Queues lists the queues of the account in this region.
func (d *sqsDB) Queues(ctx context.Context) (names []string, err error) {
	pages := awssqs.NewListQueuesPaginator(d.client, &awssqs.ListQueuesInput{MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, awsError(d.t, "list the queues of", err, "")
		}
		for _, u := range page.QueueUrls {
			names = append(names, u[strings.LastIndexByte(u, '/')+1:])
		}
	}
	sort.Strings(names)
	return names, nil
}

// Close has nothing to close: the SDK's connections end by themselves.
func (d *sqsDB) Close() error { return nil }
