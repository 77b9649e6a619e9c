package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// completedEnd ends the name of the second table: the gate, which has an item for everything that is done.
const completedEnd = "-completed"

// fakeKey is good enough for the fakes.
const fakeKey = "semel"

// maxReceives is after how many receives SQS itself gives up on a message: deferred duplicates count, so it is not how often
// work may fail, which is the worker's own --max-attempts.
const maxReceives = 200

// dress adds to the place what workers elsewhere need, and writes their settings down.
func (s *sandbox) dress(ctx context.Context) error {
	s.credentials()
	p := &s.state.URLs
	set := func(name, value string) { s.state.Vars = append(s.state.Vars, Var{name, value}) }
	region := ""
	if open.OnAWS(p.Queue) {
		at, dead, where, err := s.queueURL(ctx)
		if err != nil {
			return err
		}
		region = where
		set("QUEUE_URL", at)
		set("DLQ_ARN", dead)
	} else {
		set("QUEUE_URL", p.Queue)
	}
	var status, completed string
	if open.OnAWS(p.Store) {
		cfg, err := open.AWS(ctx, "store", p.Store)
		if err != nil {
			return err
		}
		region = cfg.Region
		if status, completed, err = s.gate(ctx); err != nil {
			return err
		}
	}
	if region != "" {
		set("AWS_REGION", region)
	}
	if status != "" {
		set("MESSAGE_STATUS_TABLE", status)
		set("MESSAGE_COMPLETED_TABLE", completed)
	} else if !strings.HasPrefix(p.Queue, p.Store) {
		set("SEMEL_OPT_STORE", p.Store)
	}
	set("SQS_VISIBILITY_TIMEOUT", strconv.FormatFloat(s.spec.Visibility.Seconds(), 'f', -1, 64))
	if p.Fakes != "" {
		set("AWS_ENDPOINT_URL", p.Fakes)
		set("AWS_ACCESS_KEY_ID", fakeKey)
		set("AWS_SECRET_ACCESS_KEY", fakeKey)
	}
	return nil
}

// credentials are those of the fakes, which take any: nothing of the user's is for them.
func (s *sandbox) credentials() {
	if s.state.URLs.Fakes == "" {
		return
	}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": fakeKey, "AWS_SECRET_ACCESS_KEY": fakeKey} {
		_ = os.Setenv(name, value)
	}
	_ = os.Unsetenv("AWS_PROFILE")
	_ = os.Unsetenv("AWS_SESSION_TOKEN")
}

// queueURL finds the queue as other programs name it, and sets its dead-letter queue, so that they find that as well.
func (s *sandbox) queueURL(ctx context.Context) (at, dead, region string, err error) {
	raw := s.state.URLs.Queue
	u, err := url.Parse(raw)
	if err != nil {
		return "", "", "", fmt.Errorf("--queue is not a URL")
	}
	cfg, err := open.AWS(ctx, "queue", raw)
	if err != nil {
		return "", "", "", err
	}
	client := awssqs.NewFromConfig(cfg)
	find := func(name string) (string, error) {
		out, err := client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &name})
		if err != nil {
			return "", open.Explain("queue", raw, "find", err)
		}
		return aws.ToString(out.QueueUrl), nil
	}
	if at, err = find(u.Host); err != nil {
		return "", "", "", err
	}
	deadLetters, err := find(u.Query().Get("dead_letters"))
	if err != nil {
		return "", "", "", err
	}
	out, err := client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{
		QueueUrl: &deadLetters, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return "", "", "", open.Explain("queue", raw, "look at the dead letters of", err)
	}
	dead = out.Attributes[string(types.QueueAttributeNameQueueArn)]
	policy, err := json.Marshal(map[string]string{"deadLetterTargetArn": dead, "maxReceiveCount": strconv.Itoa(maxReceives)})
	if err != nil {
		return "", "", "", fmt.Errorf("write the redrive policy: %w", err)
	}
	_, err = client.SetQueueAttributes(ctx, &awssqs.SetQueueAttributesInput{
		QueueUrl: &at, Attributes: map[string]string{string(types.QueueAttributeNameRedrivePolicy): string(policy)},
	})
	if err != nil {
		return "", "", "", open.Explain("queue", raw, "set the redrive policy of", err)
	}
	return at, dead, cfg.Region, nil
}

// tables bounds the wait for a new table.
const tables = 3 * time.Minute

// gate makes the second table, and the store one that has both.
func (s *sandbox) gate(ctx context.Context) (status, completed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, tables)
	defer cancel()
	u, err := url.Parse(s.state.URLs.Store)
	if err != nil {
		return "", "", fmt.Errorf("--store is not a URL")
	}
	status, completed = u.Host, u.Host+completedEnd
	raw, err := open.AddParam(s.state.URLs.Store, "gate", completed)
	if err != nil {
		return "", "", err
	}
	s.state.URLs.Store = raw
	_, _, _, err = open.Migrate(ctx, raw)
	return status, completed, err
}
