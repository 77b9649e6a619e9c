package peers

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// inboxMark is new or changes nothing. $1 = id of the message.
const inboxMark = "INSERT INTO inbox (id) VALUES ($1) ON CONFLICT DO NOTHING"

// inbox is the pattern of the books, B2: one transaction per message with its inbox row and its effect.
func inbox() harness.Measure {
	return harness.Measure{
		Name: "b2", Title: "B2: hand-written inbox, one transaction per message", Kind: harness.Peer, Unit: "effects",
		N: 20000, Settings: "32 workers, 32 connections; BEGIN, INSERT inbox ON CONFLICT DO NOTHING, INSERT ledger, COMMIT: " +
			"four round trips, statements prepared by pgx",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) { return each(ctx, e, 32, inboxOne) },
	}
}

// statement is the same as one statement, which few write.
func statement() harness.Measure {
	return harness.Measure{
		Name: "cte", Title: "the same as one statement", Kind: harness.Peer, Unit: "effects", N: 40000,
		Settings: "32 workers, 32 connections; one autocommitted WITH … INSERT inbox … INSERT ledger: one round trip",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return each(ctx, e, 32, func(ctx context.Context, pool *pgxpool.Pool, m *load.Message) error {
				_, err := pool.Exec(ctx, load.GuardedEffect, m.ID, len(m.Body))
				return err
			})
		},
	}
}

// each processes the deliveries with the given number of workers, and as many connections.
func each(
	ctx context.Context, e *harness.Env, workers int, do func(context.Context, *pgxpool.Pool, *load.Message) error,
) (harness.Sample, error) {
	return run(ctx, e, workers, nil, func(ctx context.Context, pool *pgxpool.Pool, w load.Work) (harness.Usage, error) {
		stop := e.Watch()
		err := w.Each(ctx, workers, func(ctx context.Context, m *load.Message) error { return do(ctx, pool, m) })
		return stop(), err
	})
}

func inboxOne(ctx context.Context, pool *pgxpool.Pool, m *load.Message) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, inboxMark, m.ID)
		if err != nil {
			return fmt.Errorf("mark the message: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return nil // it took effect before
		}
		if _, err := tx.Exec(ctx, load.Effect, m.ID, len(m.Body)); err != nil {
			return fmt.Errorf("write the effect: %w", err)
		}
		return nil
	})
}
