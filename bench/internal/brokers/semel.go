package brokers

import (
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	amqp "github.com/rabbitmq/amqp091-go"
	goredis "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/kafka"
	"github.com/semel-dev/semel/adapters/nats"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
)

// ours is semel's client of a broker: it makes a queue and opens it.
type ours struct {
	settings string
	open     func(ctx context.Context, url, topic string) (queue driver.Queue, leave func() error, err error)
}

// run sends the deliveries, and has a consumer settle them.
func (o ours) run(ctx context.Context, j *job) (u harness.Usage, err error) {
	q, leave, err := o.open(ctx, j.url, j.topic)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	sender, _ := driver.As[driver.Sender](q)
	for from := 0; from < len(j.work.Deliveries); from += 1000 {
		var list []driver.Message
		for _, m := range j.work.Deliveries[from:min(from+1000, len(j.work.Deliveries))] {
			list = append(list, driver.Message{ID: m.ID, Body: m.Body})
		}
		if err := sender.Send(ctx, list...); err != nil {
			return u, fmt.Errorf("send: %w", err)
		}
	}
	db, err := postgres.Open(ctx, j.db.URL, postgres.Options{Create: true})
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	c, err := semel.New(semel.Config{
		Queue: deadletter.With(q, db.Store().DeadLetterQueue(j.topic)), Store: db.Store(), Concurrency: 1000, Batch: 100, Committers: 2,
		Handler: semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
			tx.Exec(load.Effect, a.Message.ID, len(a.Message.Body))
			return nil
		}),
	})
	if err != nil {
		return u, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	watch := j.env.Watch()
	go func() {
		defer stop()
		_ = harness.Until(running, func(context.Context) (bool, error) {
			n := c.Summary()
			if n.Effects+n.Replayed < int64(len(j.work.Deliveries)) && n.Dead+n.Mismatched+n.Uncertain == 0 {
				return false, nil
			}
			u = watch()
			return true, nil
		})
	}()
	err = c.Run(running)
	return u, errors.Join(err, ctx.Err())
}

var ourKafka = ours{settings: "8 partitions", open: func(ctx context.Context, url, topic string) (driver.Queue, func() error, error) {
	o := kafka.Options{Client: []kgo.Opt{kgo.SeedBrokers(url)}}
	if err := kafka.Create(ctx, topic, kafka.CreateOptions{Options: o, Partitions: partitions}); err != nil {
		return nil, nil, err
	}
	q, err := kafka.Open(ctx, topic, o)
	if err != nil {
		return nil, nil, err
	}
	return q, q.Close, nil
}}

var ourRabbitMQ = ours{settings: "quorum queue, prefetch 1000", open: func(ctx context.Context, url, topic string) (driver.Queue, func() error, error) {
	dial := func() (*amqp.Connection, error) { return amqp.Dial(url) }
	if err := rabbitmq.Create(ctx, dial, topic, rabbitmq.CreateOptions{}); err != nil {
		return nil, nil, err
	}
	q, err := rabbitmq.Open(ctx, dial, topic, rabbitmq.Options{Prefetch: 1000})
	if err != nil {
		return nil, nil, err
	}
	return q, q.Close, nil
}}

var ourRedis = ours{settings: "one group", open: func(ctx context.Context, url, topic string) (driver.Queue, func() error, error) {
	client := goredis.NewClient(&goredis.Options{Addr: url, ContextTimeoutEnabled: true})
	store, err := redis.Open(ctx, client, redis.Options{})
	if err == nil {
		err = store.CreateQueue(ctx, topic, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	q, err := store.Queue(ctx, topic)
	return q, client.Close, err
}}

var ourNATS = ours{settings: "JetStream work queue", open: func(ctx context.Context, url, topic string) (driver.Queue, func() error, error) {
	nc, err := natsgo.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	if err := nats.Create(ctx, nc, topic, nats.CreateOptions{}); err != nil {
		nc.Close()
		return nil, nil, err
	}
	q, err := nats.Open(ctx, nc, topic, nats.Options{})
	return q, func() error { nc.Close(); return nil }, err
}}
