package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Creator is the part of *sqs.Client that [Create] uses.
type Creator interface {
	CreateQueue(ctx context.Context, in *awssqs.CreateQueueInput, o ...func(*awssqs.Options)) (*awssqs.CreateQueueOutput, error)
	GetQueueAttributes(ctx context.Context, in *awssqs.GetQueueAttributesInput, o ...func(*awssqs.Options)) (
		*awssqs.GetQueueAttributesOutput, error)
}

// CreateOptions of [Create]. The zero value is the documented default.
type CreateOptions struct {
	// FIFO creates a FIFO queue, and appends .fifo to its name if it is missing. Defaults to a standard queue.
	FIFO bool
	// Visibility is the queue's visibility timeout. Defaults to 30 s.
	Visibility time.Duration
	// MaxReceive is the number of receives after which SQS moves a message to the dead-letter queue, 1 to 1000; negative =
	// never: the queue gets no redrive policy, and Options.DeadLetterQueue must name the dead-letter queue. Defaults to 200:
	// deferrals of duplicates are receives too, and attempts × (1 + max-runtime / lease) of the defaults is 172.
	MaxReceive int
	// Retention is how long the queue keeps a message, 1 min to 14 days. Defaults to 4 days. Dead letters are kept for 14
	// days.
	Retention time.Duration
	// DeadLetterQueue is the name of the dead-letter queue. Defaults to the queue's name and -dead.
	DeadLetterQueue string
	// Tags are tags of both queues.
	Tags map[string]string
}

// Created names the queues that Create created.
type Created struct{ URL, DeadLetterURL string }

// Create creates a queue and its dead-letter queue, which is the target of its redrive policy. If both exist with the same
// attributes, it changes nothing. A new queue can be used after a second.
func Create(ctx context.Context, client Creator, name string, o CreateOptions) (c Created, err error) {
	name, o, err = o.withDefaults(name)
	if err != nil {
		return c, err
	}
	attrs := map[string]string{}
	if o.FIFO {
		attrs["FifoQueue"] = "true"
	}
	attrs["MessageRetentionPeriod"] = strconv.Itoa(14 * 24 * 3600)
	if c.DeadLetterURL, err = create(ctx, client, o.DeadLetterQueue, attrs, o.Tags); err != nil {
		return c, err
	}
	attrs["MessageRetentionPeriod"] = strconv.Itoa(int(seconds(o.Retention)))
	attrs["VisibilityTimeout"] = strconv.Itoa(int(seconds(o.Visibility)))
	if o.MaxReceive > 0 {
		out, err := client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{
			QueueUrl: &c.DeadLetterURL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
		})
		if err != nil {
			return c, explain("GetQueueAttributes", o.DeadLetterQueue, "", err)
		}
		policy, err := json.Marshal(map[string]string{
			"deadLetterTargetArn": out.Attributes["QueueArn"], "maxReceiveCount": strconv.Itoa(o.MaxReceive),
		})
		if err != nil {
			return c, fmt.Errorf("write the redrive policy: %w", err)
		}
		attrs["RedrivePolicy"] = string(policy)
	}
	c.URL, err = create(ctx, client, name, attrs, o.Tags)
	return c, err
}

func (o CreateOptions) withDefaults(name string) (string, CreateOptions, error) {
	base, fifo := strings.CutSuffix(name, ".fifo")
	o.FIFO = o.FIFO || fifo
	end := ""
	if o.FIFO {
		end = ".fifo"
	}
	if base == "" {
		return "", o, errors.New("sqs: create: no name given")
	}
	if o.DeadLetterQueue == "" {
		o.DeadLetterQueue = base + "-dead" + end
	}
	if o.Visibility == 0 {
		o.Visibility = 30 * time.Second
	}
	if o.Retention == 0 {
		o.Retention = 4 * 24 * time.Hour
	}
	if o.MaxReceive == 0 {
		o.MaxReceive = 200
	}
	switch {
	case o.Visibility < 0 || o.Visibility > maxVisible:
		return "", o, fmt.Errorf("sqs: CreateOptions.Visibility is %v, must be at most %v", o.Visibility, maxVisible)
	case o.Retention < time.Minute || o.Retention > 14*24*time.Hour:
		return "", o, fmt.Errorf("sqs: CreateOptions.Retention is %v, must be 1 min to 14 days", o.Retention)
	case o.MaxReceive > 1000:
		return "", o, fmt.Errorf("sqs: CreateOptions.MaxReceive is %d, must be at most 1000", o.MaxReceive)
	case strings.HasSuffix(o.DeadLetterQueue, ".fifo") != o.FIFO:
		return "", o, fmt.Errorf("sqs: CreateOptions.DeadLetterQueue is %q: the dead-letter queue of a FIFO queue is FIFO, "+
			"and of a standard queue standard", o.DeadLetterQueue)
	}
	return base + end, o, nil
}

func create(ctx context.Context, client Creator, name string, attrs, tags map[string]string) (string, error) {
	out, err := client.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &name, Attributes: attrs, Tags: tags})
	switch codeOf(err) {
	case "":
	case "QueueNameExists", "QueueAlreadyExists":
		return "", fmt.Errorf("sqs: create queue %q: it exists with other attributes: change them there, or choose another name: %w",
			name, err)
	case "QueueDeletedRecently":
		return "", fmt.Errorf("sqs: create queue %q: one of this name was deleted less than 60 s ago: wait: %w", name, err)
	}
	if err != nil {
		return "", explain("CreateQueue", name, "", err)
	}
	return deref(out.QueueUrl), nil
}
