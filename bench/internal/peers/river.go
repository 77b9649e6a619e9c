package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// The fetch intervals are those of River's own benchmark. Workers and connections are the fastest of 100 to 1,000 and 20
// to 90 that were tried; with JobCompleteTx they make no difference.
const (
	riverConns    = 30
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
	riverFetch    = "FetchCooldown 2 ms, FetchPollInterval 20 ms (those of River's own benchmark)"
)

// riverArgs is a job: one delivery.
type riverArgs struct {
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload"`
}

func (riverArgs) Kind() string { return "effect" }

// riverTx completes the job in the transaction of its effect: River's way to exactly once. Duplicate jobs are kept out
// by an inbox row in the same transaction.
func riverTx() harness.Measure {
	return harness.Measure{
		Name: "river-tx", Title: "River 0.51, JobCompleteTx", Kind: harness.Peer, Unit: "effects", N: 8000,
		Settings: "100 workers, 30 connections, " + riverFetch + "; inbox row and effect as one statement and JobCompleteTx in one transaction",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return riverWork(ctx, e, 100, func(ctx context.Context, pool *pgxpool.Pool, job *river.Job[riverArgs]) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, load.GuardedEffect, job.Args.ID, len(job.Args.Payload)); err != nil {
						return err
					}
					_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
					return err
				})
			})
		},
	}
}

// riverDefault completes jobs asynchronously, in batches of River's own: a crash between effect and completion repeats
// the effect. Nothing keeps duplicate jobs out, as in most programs.
func riverDefault() harness.Measure {
	return harness.Measure{
		Name: "river", Title: "River 0.51 as it is (not exactly once)", Kind: harness.Peer, Unit: "effects", N: 16000,
		Inexact:  true,
		Settings: "1,000 workers, 30 connections, " + riverFetch + "; effect autocommitted, job completed asynchronously; every redelivery is another effect, and only distinct ones are counted",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return riverWork(ctx, e, 1000, func(ctx context.Context, pool *pgxpool.Pool, job *river.Job[riverArgs]) error {
				_, err := pool.Exec(ctx, load.Effect, job.Args.ID, len(job.Args.Payload))
				return err
			})
		},
	}
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	pool *pgxpool.Pool
	left *countdown
	do   func(ctx context.Context, pool *pgxpool.Pool, job *river.Job[riverArgs]) error
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	err := w.do(ctx, w.pool, job)
	w.left.handled(err)
	return err
}

// riverWork inserts all jobs, then measures how a client works them off.
func riverWork(
	ctx context.Context, e *harness.Env, count int, do func(context.Context, *pgxpool.Pool, *river.Job[riverArgs]) error,
) (harness.Sample, error) {
	return run(ctx, e, riverConns, nil, func(ctx context.Context, pool *pgxpool.Pool, w load.Work) (u harness.Usage, err error) {
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return u, fmt.Errorf("make River's tables: %w", err)
		}
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return u, fmt.Errorf("make River's tables: %w", err)
		}
		done, left := newCountdown(ctx, len(w.Deliveries))
		defer left.stop(nil)
		workers := river.NewWorkers()
		river.AddWorker(workers, &riverWorker{pool: pool, left: left, do: do})
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
			FetchCooldown: riverCooldown, FetchPollInterval: riverPoll,
			Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: count}},
			Workers: workers, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return u, fmt.Errorf("make a River client: %w", err)
		}
		if err := riverInsert(ctx, client, w); err != nil {
			return u, err
		}
		if _, err := pool.Exec(ctx, "ANALYZE river_job"); err != nil {
			return u, err
		}
		stop := e.Watch()
		if err := client.Start(ctx); err != nil {
			return u, fmt.Errorf("start River: %w", err)
		}
		err = left.wait(done)
		u = stop()
		return u, errors.Join(err, client.Stop(ctx))
	})
}

func riverInsert(ctx context.Context, client *river.Client[pgx.Tx], w load.Work) error {
	const chunk = 2000
	for from := 0; from < len(w.Deliveries); from += chunk {
		var jobs []river.InsertManyParams
		for _, m := range w.Deliveries[from:min(from+chunk, len(w.Deliveries))] {
			jobs = append(jobs, river.InsertManyParams{Args: riverArgs{ID: m.ID, Payload: m.Body}})
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
	}
	return nil
}
