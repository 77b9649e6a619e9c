package place

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// configure finds out how to talk to the service of a URL. The fakes take any credentials, and nothing of the user's
// configuration is for them.
func (p URLs) configure(ctx context.Context, flag, raw string) (aws.Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return aws.Config{}, fmt.Errorf("--%s is not a URL", flag)
	}
	if p.Fakes == "" || u.Query().Get("endpoint") != p.Fakes {
		return open.AWS(ctx, flag, raw)
	}
	return aws.Config{
		Region: fakeRegion, BaseEndpoint: aws.String(p.Fakes),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "semel", SecretAccessKey: "semel"}, nil
		}),
		HTTPClient: awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) { tr.MaxIdleConnsPerHost = 64 }),
	}, nil
}

// named is what the URL of a run has after the service: the name of a queue or table, and its parameters.
func named(raw string) (name string, q url.Values) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", url.Values{}
	}
	return u.Host, u.Query()
}

// deadLetterEnd and the ends of the tables are those of the names of what a run has on AWS.
const (
	deadLetterEnd = "-dead"
	ledgerEnd     = "-ledger"
	marksEnd      = "-marks"
)

// makeQueue makes the queue of a run, and one for its dead letters. It has no redrive policy: the lab counts the attempts.
func (s *Setup) makeQueue(ctx context.Context, p URLs, run string, visibility time.Duration) (string, error) {
	name := s.name(s.queue, run)
	raw := fmt.Sprintf("sqs://%s?dead_letters=%s&wait=1&%s", name, name+deadLetterEnd, s.rest(s.queue))
	cfg, err := p.configure(ctx, "queue", raw)
	if err != nil {
		return "", err
	}
	client := awssqs.NewFromConfig(cfg)
	if !s.queue.fake() {
		// A service that does not respond has nothing to clean up.
		_, err := client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &name})
		if err != nil && !open.MissingQueue(err) {
			return "", open.Explain("queue", raw, "create", err)
		}
		for _, one := range []string{name + deadLetterEnd, name} {
			s.removes = append(s.removes, func(ctx context.Context) error { return removeQueue(ctx, client, one) })
		}
	}
	if _, err = sqs.Create(ctx, client, name, sqs.CreateOptions{Visibility: visibility, MaxReceive: -1, DeadLetterQueue: name + deadLetterEnd}); err != nil {
		return "", open.Explain("queue", raw, "create", err)
	}
	return raw, nil
}

func removeQueue(ctx context.Context, client *awssqs.Client, name string) error {
	at, err := client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &name})
	if err == nil {
		_, err = client.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: at.QueueUrl})
	}
	if open.MissingQueue(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete the queue %s: %w", name, err)
	}
	return nil
}

// makeTables makes the tables of a run: records, ledger and marks.
func (s *Setup) makeTables(ctx context.Context, p URLs, run string) (string, error) {
	name := s.name(s.store, run)
	raw := fmt.Sprintf("dynamodb://%s?skew=0s&%s", name, s.rest(s.store))
	cfg, err := p.configure(ctx, "store", raw)
	if err != nil {
		return "", err
	}
	client := awsdynamodb.NewFromConfig(cfg)
	if !s.store.fake() {
		_, err := client.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &name})
		if missing := (*types.ResourceNotFoundException)(nil); err != nil && !errors.As(err, &missing) {
			return "", open.Explain("store", raw, "make the tables of", err)
		}
		for _, end := range []string{"", ledgerEnd, marksEnd} {
			s.removes = append(s.removes, func(ctx context.Context) error { return removeTable(ctx, client, name+end) })
		}
	}
	if err := dynamodb.Create(ctx, client, name, dynamodb.CreateOptions{}); err != nil {
		return "", open.Explain("store", raw, "make the tables of", err)
	}
	for _, end := range []string{ledgerEnd, marksEnd} {
		if err := makeTable(ctx, client, name+end); err != nil {
			return "", open.Explain("store", raw, "make the tables of", err)
		}
	}
	return raw, nil
}

// tableTimeout is how long a new table may take to be there, and tablePause how long to wait between two looks.
const (
	tableTimeout = 2 * time.Minute
	tablePause   = time.Second
)

// makeTable makes a table with the key id, and waits until it can be used.
func makeTable(ctx context.Context, client *awsdynamodb.Client, name string) error {
	_, err := client.CreateTable(ctx, &awsdynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		return fmt.Errorf("create the table %s: %w", name, err)
	}
	waiter := awsdynamodb.NewTableExistsWaiter(client, func(o *awsdynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = tablePause, 2*tablePause
	})
	if err := waiter.Wait(ctx, &awsdynamodb.DescribeTableInput{TableName: &name}, tableTimeout); err != nil {
		return fmt.Errorf("wait for the table %s: %w", name, err)
	}
	return nil
}

// removeTable deletes a table; one that is just being made is waited for.
func removeTable(ctx context.Context, client *awsdynamodb.Client, name string) error {
	for {
		_, err := client.DeleteTable(ctx, &awsdynamodb.DeleteTableInput{TableName: &name})
		missing, busy := (*types.ResourceNotFoundException)(nil), (*types.ResourceInUseException)(nil)
		switch {
		case err == nil || errors.As(err, &missing):
			return nil
		case !errors.As(err, &busy):
			return fmt.Errorf("delete the table %s: %w", name, err)
		}
		pause := time.NewTimer(tablePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("delete the table %s: %w", name, err)
		}
	}
}

// sqs opens the queue of the run.
func (o *opening) sqs(ctx context.Context) error {
	cfg, err := o.urls.configure(ctx, "queue", o.urls.Queue)
	if err != nil {
		return err
	}
	name, q := named(o.urls.Queue)
	queue, err := sqs.Open(ctx, awssqs.NewFromConfig(cfg), name, sqs.Options{
		Visibility: o.visibility, Wait: time.Second, DeadLetterQueue: q.Get("dead_letters"),
	})
	if err != nil {
		return open.Explain("queue", o.urls.Queue, "open", err)
	}
	o.place.Queue = queue
	if !o.away(q) {
		o.place.Quiet = farQuiet
	}
	return nil
}

// dynamodb opens the tables of the run. All processes of a run go by one machine's clock.
func (o *opening) dynamodb(ctx context.Context) error {
	cfg, err := o.urls.configure(ctx, "store", o.urls.Store)
	if err != nil {
		return err
	}
	name, q := named(o.urls.Store)
	client := awsdynamodb.NewFromConfig(cfg)
	store, err := dynamodb.Open(ctx, client, name, dynamodb.Options{MaxClockSkew: -1})
	if err != nil {
		return open.Explain("store", o.urls.Store, "open", err)
	}
	o.place.Store = store
	o.place.Ledger, o.place.marks = itemLedger{client, name + ledgerEnd}, itemMarks{client, name + marksEnd}
	o.away(q)
	return nil
}

// away sets the poll interval for a service, and reports whether it is one of the fakes. They count exactly, and cost
// nothing.
func (o *opening) away(q url.Values) (fake bool) {
	interval := remoteInterval
	if fake = o.urls.Fakes != "" && q.Get("endpoint") == o.urls.Fakes; fake {
		interval = fakeInterval
	}
	o.place.PollInterval = max(o.place.PollInterval, interval)
	return fake
}
