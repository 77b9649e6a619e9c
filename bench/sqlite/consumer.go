package main

import (
	"context"
	"errors"
	"time"

	"github.com/semel-dev/semel"
)

// consumer works the queue off with one semel consumer whose handler queues its effect (mode A2): the whole engine
// around the adapter. Concurrency is ten batches, so that some can be received and some committed while others run; four
// committers let the group commit of the adapter carry more than one batch, as eight callers do in the adapter shape.
func consumer(ctx context.Context, c config, path string) (n int, u usage, err error) {
	db, total, err := open(ctx, c, path)
	if err != nil {
		return 0, u, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worker, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(),
		Concurrency: 10 * c.batch, Batch: c.batch, Committers: 4,
		Handler: semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
			tx.Exec("INSERT INTO ledger (id, at) VALUES ($1, $2)", a.Message.ID, int64(1))
			return nil
		}),
	})
	if err != nil {
		return 0, u, err
	}
	watch := stopwatch()
	go func() { // an observer would be part of what is measured
		for ctx.Err() == nil {
			if n := worker.Summary(); n.Effects+n.Replayed >= int64(total) {
				stop()
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	if err := worker.Run(ctx); err != nil {
		return 0, u, err
	}
	u = watch()
	return c.n, u, check(context.WithoutCancel(ctx), db.SQL(), "ledger", c.n)
}
