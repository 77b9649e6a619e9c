package open

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var sqsKind = &kind{
	schemes: []string{"sqs"}, match: httpURL, parse: parseSQS, open: openSQS, explain: awsExplain, namesQueue: true, form: sqsForm,
	noRecords: "SQS keeps no records", params: sqsParams, create: createSQS,
}

var sqsParams = append([]string{"dead_letters", "wait", "unwrap", "ungrouped"}, commonParams...)

const noSuchQueue = "make it with semel queue create, or fix its name, the region or the endpoint"

// sqsDB is the queues of an account in a region.
type sqsDB struct {
	noRecords
	cfg    aws.Config
	client *awssqs.Client
}

func openSQS(ctx context.Context, t Target, _ Options) (Database, error) {
	cfg, err := t.aws.load(ctx, t)
	if err != nil {
		return nil, err
	}
	return &sqsDB{noRecords{t}, cfg, awssqs.NewFromConfig(cfg)}, nil
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

const sqsForm = "sqs://orders?region=eu-west-1"

var (
	queueName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	accountID = regexp.MustCompile(`^[0-9]{12}$`)
	// awsHost is the service itself, whose endpoint the SDK finds from the region; other hosts are endpoints.
	awsHost  = regexp.MustCompile(`^(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.com(?:\.cn)?$`)
	hostWith = regexp.MustCompile(`(?:^|\.)sqs(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?(?:amazonaws\.com|api\.aws)`)
)

// httpURL reports a URL that can only be the one by which SQS itself names a queue.
func httpURL(raw string) bool { return output.IsHTTP(raw) }

func validQueueName(name string) bool {
	return len(name) <= 80 && queueName.MatchString(strings.TrimSuffix(name, ".fifo"))
}

func parseSQS(flag, raw string, t *Target) error {
	u, a, err := splitAWS(flag, raw, sqsForm, sqsParams)
	if err != nil {
		return err
	}
	if httpURL(raw) {
		if err := ownURL(flag, u, a); err != nil {
			return err
		}
	} else {
		if strings.Trim(u.Path, "/") != "" || u.Port() != "" || u.Opaque != "" {
			return output.Usage("--%s is not a URL of the form %s", flag, sqsForm).
				WithHint("a queue of another account is named by its own URL: https://sqs.eu-west-1.amazonaws.com/123456789012/orders")
		}
		if a.name = u.Host; a.name != "" && !validQueueName(a.name) {
			return output.Usage("--%s: %q is not the name of a queue of SQS", flag, a.name).
				WithHint("1 to 80 of a-z A-Z 0-9 - _; a FIFO queue's name ends in .fifo")
		}
	}
	if _, err := a.wait(flag); err != nil {
		return err
	}
	for _, name := range []string{"unwrap", "ungrouped"} {
		if _, err := a.on(flag, name); err != nil {
			return err
		}
	}
	if _, _, err := a.deadLetters(flag); err != nil {
		return err
	}
	t.Queue, t.aws, t.place = a.name, a, a.place("sqs")
	t.Shown = "sqs://" + a.name
	if a.own != "" {
		t.Shown = a.own
	} else if a.region != "" {
		t.Shown += "?region=" + a.region
	}
	return nil
}

// ownURL reads the URL by which SQS itself names a queue: https://sqs.REGION.amazonaws.com/ACCOUNT/NAME, or that of an
// endpoint elsewhere.
func ownURL(flag string, u *url.URL, a *awsPlace) error {
	const form = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
	part := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	if len(part) != 2 || !accountID.MatchString(part[0]) || !validQueueName(part[1]) || u.Host == "" {
		if flag == "store" {
			return output.Usage("--store is an address on the web, which can only be a queue's").WithHint("--store '%s'", dynamoForm)
		}
		return output.Usage("--%s is not the URL of a queue of SQS, like %s", flag, form).WithHint("--%s '%s', or --%s '%s'", flag, form, flag, sqsForm)
	}
	host := strings.ToLower(u.Host)
	region, service := "", false
	if m := awsHost.FindStringSubmatch(host); m != nil {
		region, service = m[1]+m[2], true
	} else if m := hostWith.FindStringSubmatch(host); m != nil {
		region = m[1]
	}
	if region != "" && a.region != "" && a.region != region {
		return output.Usage("--%s: its host is in region %s, its parameter says %s", flag, region, a.region).WithHint("leave region= away")
	}
	if region != "" {
		a.region = region
	}
	a.name = part[1]
	a.own = u.Scheme + "://" + u.Host + "/" + part[0] + "/" + part[1]
	if a.endpoint == "" && !service {
		a.endpoint = u.Scheme + "://" + u.Host
	}
	return nil
}

// wait is how long one receive waits: a duration, or a number of seconds. 0 is no wait, which the adapter knows as -1.
func (a *awsPlace) wait(flag string) (time.Duration, error) {
	raw := a.params.Get("wait")
	if raw == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(raw)
	if n, nerr := strconv.Atoi(raw); nerr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 || d > 20*time.Second || d%time.Second != 0 {
		return 0, output.Usage("--%s: wait=%s is out of range", flag, raw).WithHint("wait=10s: whole seconds, from 0 (no waiting) to 20s")
	}
	if d == 0 {
		return -1, nil
	}
	return d, nil
}

// on is a switch of the URL.
func (a *awsPlace) on(flag, name string) (bool, error) {
	switch raw := a.params.Get(name); raw {
	case "", "off", "false", "0":
		return false, nil
	case "on", "true", "1":
		return true, nil
	default:
		return false, output.Usage("--%s: %s=%s is unknown", flag, name, raw).WithHint("%s=on or %s=off", name, name)
	}
}

// deadLetters returns where dead letters go: another queue of SQS, by name or URL, or a table.
func (a *awsPlace) deadLetters(flag string) (queue, table string, err error) {
	raw := a.params.Get("dead_letters")
	if name, ok := strings.CutPrefix(raw, "dynamodb:"); ok {
		name = strings.TrimPrefix(name, "//")
		if !validTableName(name) {
			return "", "", output.Usage("--%s: dead_letters=%s does not name a table", flag, raw).WithHint("dead_letters=dynamodb:semel-dead-letters")
		}
		return "", name, nil
	}
	if raw != "" && !validQueueName(raw) && !httpURL(raw) {
		return "", "", output.Usage("--%s: dead_letters=%s names neither a queue nor a table", flag, raw).
			WithHint("dead_letters=orders-dlq, or dead_letters=dynamodb:semel-dead-letters")
	}
	return raw, "", nil
}
