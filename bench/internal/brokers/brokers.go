// Package brokers does the standard work from brokers, with one effect a message in PostgreSQL: semel's queues beside
// watermill's subscribers with the deduplication that its users write, an inbox row in the statement of the effect.
package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/semeltest/server"
)

const (
	messages   = 12_000
	partitions = 8
	// subscriptions is how many messages watermill handles at once where partitions do not say it: each of its subscriptions
	// waits for the ack of a message before the next.
	subscriptions = 16
)

// broker is one with a client of both kinds.
type broker struct {
	name, title string
	// start returns the address of the broker: a server of this run, or one in this process.
	start func(ctx context.Context, e *harness.Env) (string, error)
	theirs
	ours
}

var brokers = []broker{
	{"kafka", "Kafka (the fake of franz-go, in this process)", startKafka, theirKafka, ourKafka},
	{"rabbitmq", "RabbitMQ", shared(server.RabbitMQ), theirRabbitMQ, ourRabbitMQ},
	{"redis", "Redis streams", func(_ context.Context, e *harness.Env) (string, error) { return e.Redis(), nil }, theirRedis, ourRedis},
	{"nats", "NATS JetStream", shared(server.NATS), theirNATS, ourNATS},
}

// All are the measures, in the order of the table.
func All() (list []harness.Measure) {
	for _, b := range brokers {
		list = append(list,
			b.measure("watermill-"+b.name, b.title+": watermill with an inbox row", b.theirs.settings+"; inbox row and effect as one statement, 32 connections",
				b.theirs.run),
			b.measure("semel-"+b.name, b.title+": semel, records in PostgreSQL", b.ours.settings+"; InTx with *Statements; Concurrency 1000, Batch 100, Committers 2",
				b.ours.run))
	}
	return list
}

// job is what a measure works on. topic is new for each.
type job struct {
	url, topic string
	db         *harness.Database
	pool       *pgxpool.Pool
	work       load.Work
	env        *harness.Env
}

func (b *broker) measure(name, title, settings string, do func(context.Context, *job) (harness.Usage, error)) harness.Measure {
	return harness.Measure{
		Name: name, Title: title, Settings: settings, Kind: harness.Broker, Unit: "effects", N: messages,
		Run: func(ctx context.Context, e *harness.Env) (s harness.Sample, err error) {
			j := &job{topic: fmt.Sprintf("%s-%d", name, e.Round), work: e.Work(), env: e}
			if j.url, err = b.start(ctx, e); err != nil {
				return s, err
			}
			if j.db, err = e.Database(ctx, load.LedgerTable, load.InboxTable); err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, j.db.Close()) }()
			if j.pool, err = j.db.Pool(ctx, 32); err != nil {
				return s, err
			}
			if s.Usage, err = do(ctx, j); err != nil {
				return s, err
			}
			l, err := load.ReadLedger(ctx, j.pool)
			s.Done, s.Deliveries, s.Ledger = l.IDs, len(j.work.Deliveries), &l
			return s, err
		},
	}
}

// shared starts a server once; it ends with this process.
func shared(start func(context.Context, server.Options) (*server.Server, error)) func(context.Context, *harness.Env) (string, error) {
	once := sync.OnceValues(func() (string, error) {
		s, err := start(context.Background(), server.Options{})
		if err != nil {
			return "", fmt.Errorf("%w: %w", harness.ErrLeftOut, err)
		}
		return s.URL(), nil
	})
	return func(context.Context, *harness.Env) (string, error) { return once() }
}

var kafkaOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "semel-bench-kafka-")
	if err != nil {
		return "", err
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(dir))
	if err != nil {
		return "", err
	}
	return c.ListenAddrs()[0], nil
})

func startKafka(context.Context, *harness.Env) (string, error) { return kafkaOnce() }
