package kafka

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// CreateOptions of [Create]. The zero value is the documented default, except for Client.
type CreateOptions struct {
	// Options have the Client.
	Options
	// Partitions of a topic that is made: at most one worker receives from each. Defaults to the brokers' num.partitions.
	Partitions int
	// Replicas of each partition. With 3 or more, messages are acknowledged when 2 brokers have them (min.insync.replicas).
	// Defaults to the brokers' default.replication.factor.
	Replicas int
	// Retention is how long messages are kept. Defaults to the brokers' log.retention.
	Retention time.Duration
}

// Create makes a topic if it does not exist. It leaves a topic that exists as it is.
func Create(ctx context.Context, topic string, o CreateOptions) error {
	q, err := connect(topic, o.Options)
	if err != nil {
		return err
	}
	defer q.client.Close()
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	config := map[string]*string{}
	if o.Retention > 0 {
		ms := strconv.FormatInt(o.Retention.Milliseconds(), 10)
		config["retention.ms"] = &ms
	}
	if two := "2"; o.Replicas >= 3 {
		config["min.insync.replicas"] = &two
	}
	partitions, replicas := int32(-1), int16(-1)
	if o.Partitions > 0 {
		partitions = int32(o.Partitions) //nolint:gosec // Kafka refuses far fewer
	}
	if o.Replicas > 0 {
		replicas = int16(o.Replicas) //nolint:gosec // as above
	}
	if _, err := q.admin.CreateTopic(ctx, partitions, replicas, config, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return q.explain("create", err)
	}
	return nil
}
