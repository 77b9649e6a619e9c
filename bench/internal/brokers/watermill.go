package brokers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	natspub "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// theirs is watermill's client of a broker.
type theirs struct {
	settings string
	// subscriptions of one topic at once.
	subscriptions int
	open          func(url, topic string) (message.Publisher, message.Subscriber, error)
}

var silent = watermill.NopLogger{}

// run publishes the deliveries, and handles them: every message is acked after its effect.
func (t theirs) run(ctx context.Context, j *job) (u harness.Usage, err error) {
	pub, sub, err := t.open(j.url, j.topic)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, pub.Close(), sub.Close()) }()
	if s, ok := sub.(message.SubscribeInitializer); ok {
		if err := s.SubscribeInitialize(j.topic); err != nil {
			return u, fmt.Errorf("make the topic: %w", err)
		}
	}
	err = j.work.Each(ctx, 16, func(_ context.Context, m *load.Message) error {
		return pub.Publish(j.topic, message.NewMessage(m.ID, m.Body))
	})
	if err != nil {
		return u, fmt.Errorf("publish: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var left atomic.Int64
	left.Store(int64(len(j.work.Deliveries)))
	watch := j.env.Watch()
	for range t.subscriptions {
		list, err := sub.Subscribe(ctx, j.topic)
		if err != nil {
			return u, fmt.Errorf("subscribe: %w", err)
		}
		go func() {
			for m := range list {
				go func() {
					if _, err := j.pool.Exec(m.Context(), load.GuardedEffect, m.UUID, len(m.Payload)); err != nil {
						m.Nack()
						stop(err)
						return
					}
					m.Ack()
					if left.Add(-1) == 0 {
						stop(errDone)
					}
				}()
			}
		}()
	}
	<-ctx.Done()
	u = watch()
	if err := context.Cause(ctx); !errors.Is(err, errDone) {
		return u, fmt.Errorf("with %d deliveries left: %w", left.Load(), err)
	}
	return u, nil
}

var errDone = errors.New("all deliveries are handled")

var theirKafka = theirs{
	settings: "watermill-kafka 3.0, 8 partitions, one consumer group", subscriptions: 1,
	open: func(url, _ string) (message.Publisher, message.Subscriber, error) {
		pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: []string{url}, Marshaler: kafka.DefaultMarshaler{}}, silent)
		if err != nil {
			return nil, nil, err
		}
		cfg := kafka.DefaultSaramaSubscriberConfig()
		cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
		sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
			Brokers: []string{url}, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg, ConsumerGroup: "bench",
			InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1},
		}, silent)
		return pub, sub, err
	},
}

var theirRabbitMQ = theirs{
	settings: "watermill-amqp 1.1 (the newest that the Go proxy has), durable queue, 16 subscriptions, prefetch 100", subscriptions: subscriptions,
	open: func(url, _ string) (message.Publisher, message.Subscriber, error) {
		cfg := amqp.NewDurableQueueConfig(url)
		cfg.Consume.Qos.PrefetchCount = 100
		pub, err := amqp.NewPublisher(cfg, silent)
		if err != nil {
			return nil, nil, err
		}
		sub, err := amqp.NewSubscriber(cfg, silent)
		return pub, sub, err
	},
}

var theirRedis = theirs{
	settings: "watermill-redisstream 1.4, 16 subscriptions in one group", subscriptions: subscriptions,
	open: func(url, _ string) (message.Publisher, message.Subscriber, error) {
		client := func() *redis.Client { return redis.NewClient(&redis.Options{Addr: url}) } // each closes its own
		pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client()}, silent)
		if err != nil {
			return nil, nil, err
		}
		sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: client(), ConsumerGroup: "bench", OldestId: "0"}, silent)
		return pub, sub, err
	},
}

var theirNATS = theirs{
	settings: "watermill-nats 2.1, JetStream, SubscribersCount 16 in one queue group", subscriptions: 1,
	open: func(url, topic string) (message.Publisher, message.Subscriber, error) {
		js := natspub.JetStreamConfig{
			AutoProvision: true, DurablePrefix: "bench-" + topic,
			SubscribeOptions: []nats.SubOpt{nats.DeliverAll(), nats.AckExplicit()},
		}
		pub, err := natspub.NewPublisher(natspub.PublisherConfig{URL: url, Marshaler: &natspub.NATSMarshaler{}, JetStream: js}, silent)
		if err != nil {
			return nil, nil, err
		}
		sub, err := natspub.NewSubscriber(natspub.SubscriberConfig{
			URL: url, Unmarshaler: &natspub.NATSMarshaler{}, JetStream: js, QueueGroupPrefix: "bench", SubscribersCount: subscriptions,
			AckWaitTimeout: 30 * time.Second, CloseTimeout: 10 * time.Second,
		}, silent)
		return pub, sub, err
	},
}
