package peers

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// watermillSQL writes inbox row and effect in the transaction in which the subscriber reads its batch.
func watermillSQL() harness.Measure {
	return harness.Measure{
		Name: "watermill", Title: "watermill-sql 4.0 with an inbox row in its transaction", Kind: harness.Peer, Unit: "effects",
		N: 16000, Settings: "DefaultPostgreSQLSchema, SubscribeBatchSize 100, one subscriber (a consumer group is read by one at " +
			"a time), pgx; inbox row and effect as one statement in the subscriber's transaction",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return run(ctx, e, 4, nil, watermillWork(e))
		},
	}
}

func watermillWork(e *harness.Env) func(context.Context, *pgxpool.Pool, load.Work) (harness.Usage, error) {
	const topic = "orders"
	return func(ctx context.Context, pool *pgxpool.Pool, w load.Work) (u harness.Usage, err error) {
		schema := wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 100}
		db := wsql.BeginnerFromPgx(pool)
		sub, err := wsql.NewSubscriber(db, wsql.SubscriberConfig{
			SchemaAdapter: schema, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		}, watermill.NopLogger{})
		if err != nil {
			return u, fmt.Errorf("make a subscriber: %w", err)
		}
		defer func() { err = errors.Join(err, sub.Close()) }()
		if err := sub.SubscribeInitialize(topic); err != nil {
			return u, fmt.Errorf("make Watermill's tables: %w", err)
		}
		if err := watermillPublish(db, schema, topic, w); err != nil {
			return u, err
		}
		if _, err := pool.Exec(ctx, "ANALYZE watermill_orders"); err != nil {
			return u, err
		}
		done, left := newCountdown(ctx, len(w.Deliveries))
		defer left.stop(nil)
		stop := e.Watch()
		messages, err := sub.Subscribe(ctx, topic)
		if err != nil {
			return u, fmt.Errorf("subscribe: %w", err)
		}
		go func() {
			for m := range messages {
				err := watermillOne(m)
				m.Ack()
				left.handled(err)
			}
		}()
		err = left.wait(done)
		return stop(), err
	}
}

func watermillOne(m *message.Message) error {
	tx, ok := wsql.TxFromContext(m.Context())
	if !ok {
		return errors.New("the message has no transaction")
	}
	_, err := tx.ExecContext(m.Context(), load.GuardedEffect, m.UUID, len(m.Payload))
	return err
}

func watermillPublish(db wsql.Beginner, schema wsql.SchemaAdapter, topic string, w load.Work) error {
	pub, err := wsql.NewPublisher(db, wsql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
	if err != nil {
		return fmt.Errorf("make a publisher: %w", err)
	}
	const chunk = 1000
	for from := 0; from < len(w.Deliveries); from += chunk {
		var list []*message.Message
		for _, m := range w.Deliveries[from:min(from+chunk, len(w.Deliveries))] {
			list = append(list, message.NewMessage(m.ID, m.Body))
		}
		if err := pub.Publish(topic, list...); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	return pub.Close()
}
