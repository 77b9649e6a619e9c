package peers

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// The statements of the naive pattern. $1 = id of the message.
const (
	naiveSeen  = "SELECT true FROM inbox WHERE id = $1"
	naiveMark  = "INSERT INTO inbox (id) VALUES ($1)"
	naiveState = "ALTER TABLE inbox ADD done boolean NOT NULL DEFAULT false"
	naiveDone  = "UPDATE inbox SET done = true WHERE id = $1"
)

// naive is what is written first: look, mark, do, mark as done. A crash between its commits loses or repeats an effect.
func naive() harness.Measure {
	const workers = 32
	return harness.Measure{
		Name: "naive", Title: "naive: SELECT, INSERT, effect, UPDATE", Kind: harness.Peer, Unit: "effects", N: 12000,
		Settings: "32 workers, 32 connections; four autocommitted statements; not exactly once when a process dies",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return run(ctx, e, workers, []string{naiveState},
				func(ctx context.Context, pool *pgxpool.Pool, w load.Work) (harness.Usage, error) {
					stop := e.Watch()
					err := w.Each(ctx, workers, func(ctx context.Context, m *load.Message) error { return naiveOne(ctx, pool, m) })
					return stop(), err
				})
		},
	}
}

func naiveOne(ctx context.Context, pool *pgxpool.Pool, m *load.Message) error {
	var seen bool
	switch err := pool.QueryRow(ctx, naiveSeen, m.ID).Scan(&seen); {
	case err == nil:
		return nil
	case !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("look the message up: %w", err)
	}
	switch _, err := pool.Exec(ctx, naiveMark, m.ID); {
	case isDuplicate(err):
		return nil // another worker was between the two statements
	case err != nil:
		return fmt.Errorf("mark the message: %w", err)
	}
	if _, err := pool.Exec(ctx, load.Effect, m.ID, len(m.Body)); err != nil {
		return fmt.Errorf("write the effect: %w", err)
	}
	if _, err := pool.Exec(ctx, naiveDone, m.ID); err != nil {
		return fmt.Errorf("mark the message as done: %w", err)
	}
	return nil
}

// isDuplicate reports SQLSTATE 23505, unique_violation.
func isDuplicate(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "23505"
}
