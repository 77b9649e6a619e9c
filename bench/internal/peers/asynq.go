package peers

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// asynqEffect needs the unique constraint: Redis and PostgreSQL share no transaction, so nothing else keeps a task that
// runs twice from its second effect. $1 = id of the message, $2 = size of its body.
const (
	asynqUniqueID = "ALTER TABLE ledger ADD UNIQUE (id)"
	asynqEffect   = "INSERT INTO ledger (id, size) VALUES ($1, $2) ON CONFLICT DO NOTHING"
)

// asynqUnique takes tasks from Redis and writes effects that refuse a second one by a unique constraint.
func asynqUnique() harness.Measure {
	return harness.Measure{
		Name: "asynq", Title: "asynq 0.26 (Redis) with a unique ledger row", Kind: harness.Peer, Unit: "effects", N: 12000,
		Settings: "Concurrency 32, 32 connections; appendonly yes, appendfsync everysec; effect autocommitted into a ledger " +
			"with a unique constraint, which only effects in a database can have",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return run(ctx, e, 32, []string{asynqUniqueID}, asynqWork(e))
		},
	}
}

func asynqWork(e *harness.Env) func(context.Context, *pgxpool.Pool, load.Work) (harness.Usage, error) {
	return func(ctx context.Context, pool *pgxpool.Pool, w load.Work) (u harness.Usage, err error) {
		redis := asynq.RedisClientOpt{Addr: e.Redis(), PoolSize: 64}
		client := asynq.NewClient(redis)
		err = w.Each(ctx, 16, func(ctx context.Context, m *load.Message) error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("effect", m.Body))
			return err
		})
		if err != nil {
			return u, fmt.Errorf("enqueue tasks: %w", err)
		}
		if err := client.Close(); err != nil {
			return u, err
		}
		done, left := newCountdown(ctx, len(w.Deliveries))
		defer left.stop(nil)
		srv := asynq.NewServer(redis, asynq.Config{Concurrency: 32, LogLevel: asynq.FatalLevel})
		stop := e.Watch()
		err = srv.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			id, err := load.IDOf(t.Payload())
			if err == nil {
				_, err = pool.Exec(ctx, asynqEffect, id, len(t.Payload()))
			}
			left.handled(err)
			return err
		}))
		if err != nil {
			return u, fmt.Errorf("start asynq: %w", err)
		}
		err = left.wait(done)
		u = stop()
		srv.Shutdown()
		return u, err
	}
}
