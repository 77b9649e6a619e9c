package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// gueTables is gue's schema, version 5.6.
var gueTables = []string{
	`CREATE TABLE gue_jobs (
		job_id text NOT NULL PRIMARY KEY, priority smallint NOT NULL, run_at timestamptz NOT NULL, job_type text NOT NULL,
		args bytea NOT NULL, error_count integer NOT NULL DEFAULT 0, last_error text, queue text NOT NULL,
		created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL)`,
	`CREATE INDEX idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority)`,
}

// gueJobs writes inbox row and effect in the transaction that holds the job and deletes it.
func gueJobs() harness.Measure {
	return harness.Measure{
		Name: "gue", Title: "gue 5.6, effect in the job's transaction", Kind: harness.Peer, Unit: "effects", N: 8000,
		Settings: "16 workers, 16 connections, RunAtPollStrategy (the one that its index serves); inbox row and effect as one " +
			"statement in the job's transaction",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return run(ctx, e, 16, gueTables, gueWork(e))
		},
	}
}

func gueWork(e *harness.Env) func(context.Context, *pgxpool.Pool, load.Work) (harness.Usage, error) {
	return func(ctx context.Context, pool *pgxpool.Pool, w load.Work) (u harness.Usage, err error) {
		client, err := gue.NewClient(pgxv5.NewConnPool(pool))
		if err != nil {
			return u, fmt.Errorf("make a gue client: %w", err)
		}
		if err := gueEnqueue(ctx, pool, client, w); err != nil {
			return u, err
		}
		done, left := newCountdown(ctx, len(w.Deliveries))
		defer left.stop(nil)
		effect := func(ctx context.Context, j *gue.Job) error {
			id, err := load.IDOf(j.Args)
			if err == nil {
				_, err = j.Tx().Exec(ctx, load.GuardedEffect, id, len(j.Args))
			}
			left.handled(err)
			return err
		}
		workers, err := gue.NewWorkerPool(client, gue.WorkMap{"effect": effect}, 16,
			gue.WithPoolPollInterval(10*time.Millisecond), gue.WithPoolPollStrategy(gue.RunAtPollStrategy),
			gue.WithPoolGracefulShutdown(nil))
		if err != nil {
			return u, fmt.Errorf("make a gue worker pool: %w", err)
		}
		stop := e.Watch()
		// The handler returns before its transaction commits: the pool ends, and with it the watch, after the last commit.
		err = errors.Join(workers.Run(done), left.wait(done))
		return stop(), err
	}
}

func gueEnqueue(ctx context.Context, pool *pgxpool.Pool, client *gue.Client, w load.Work) error {
	const chunk = 1000
	for from := 0; from < len(w.Deliveries); from += chunk {
		var jobs []*gue.Job
		for _, m := range w.Deliveries[from:min(from+chunk, len(w.Deliveries))] {
			jobs = append(jobs, &gue.Job{Type: "effect", Args: m.Body})
		}
		if err := client.EnqueueBatch(ctx, jobs); err != nil {
			return fmt.Errorf("enqueue jobs: %w", err)
		}
	}
	_, err := pool.Exec(ctx, "ANALYZE gue_jobs")
	return err
}
