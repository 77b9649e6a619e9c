package place

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/wait"
)

// configure finds out how to talk to the service of a URL. The fakes take any credentials, and nothing of the user's
// configuration is for them.
func (p URLs) configure(ctx context.Context, flag, raw string) (aws.Config, error) {
	if _, q := named(raw); !p.fake(q) {
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

// fake reports whether a URL with these parameters leads to the fakes.
func (p URLs) fake(q url.Values) bool { return p.Fakes != "" && q.Get("endpoint") == p.Fakes }

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
		s.made = append(s.made, made{"queue", raw})
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
		s.made = append(s.made, made{"store", raw})
	}
	err = dynamodb.Create(ctx, client, name, dynamodb.CreateOptions{})
	for _, end := range []string{ledgerEnd, marksEnd} {
		if err == nil {
			err = dynamodb.Create(ctx, client, name+end, dynamodb.CreateOptions{Options: dynamodb.Options{Layout: dynamodb.Layout{PartitionKey: "id"}}})
		}
	}
	if err != nil {
		return "", open.Explain("store", raw, "make the tables of", err)
	}
	return raw, nil
}

// tablePause is how long to wait between two looks at a table that is being made.
const tablePause = time.Second

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
		if wait.Until(ctx, time.Now().Add(tablePause)) != nil {
			return fmt.Errorf("delete the table %s: %w", name, err)
		}
	}
}

// sqs opens the queue of the run.
func (o *opening) sqs(ctx context.Context) (driver.Queue, error) {
	cfg, err := o.urls.configure(ctx, "queue", o.urls.Queue)
	if err != nil {
		return nil, err
	}
	name, q := named(o.urls.Queue)
	queue, err := sqs.Open(ctx, awssqs.NewFromConfig(cfg), name, sqs.Options{
		Visibility: o.visibility, Wait: time.Second, DeadLetterQueue: q.Get("dead_letters"),
	})
	if err != nil {
		return nil, open.Explain("queue", o.urls.Queue, "open", err)
	}
	if !o.away(q) {
		o.place.Quiet = farQuiet
	}
	return queue, nil
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
	o.place.tables(itemTable{client, name + ledgerEnd}, itemTable{client, name + marksEnd})
	o.away(q)
	return nil
}

// away sets the poll interval for a service, and reports whether it is one of the fakes. They count exactly, and cost
// nothing.
func (o *opening) away(q url.Values) (fake bool) {
	interval := remoteInterval
	if fake = o.urls.fake(q); fake {
		interval = fakeInterval
	}
	o.place.PollInterval = max(o.place.PollInterval, interval)
	return fake
}

// removeAWS removes the queue and its dead letters, or the tables of a store.
func removeAWS(ctx context.Context, m made) error {
	cfg, err := open.AWS(ctx, m.flag, m.raw)
	if err != nil {
		return err
	}
	name, q := named(m.raw)
	if strings.HasPrefix(m.raw, "sqs:") {
		client := awssqs.NewFromConfig(cfg)
		return errors.Join(removeQueue(ctx, client, name), removeQueue(ctx, client, name+deadLetterEnd))
	}
	client := awsdynamodb.NewFromConfig(cfg)
	tables := []string{name, name + ledgerEnd, name + marksEnd}
	if gate := q.Get("gate"); strings.Contains(gate, ours) {
		tables = append(tables, gate)
	}
	var errs []error
	for _, table := range tables {
		errs = append(errs, removeTable(ctx, client, table))
	}
	return errors.Join(errs...)
}
