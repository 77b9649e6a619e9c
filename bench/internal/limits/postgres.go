package limits

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

// The statements of the limits on PostgreSQL.
const (
	// $1 = key
	insertOne = "INSERT INTO inbox (id) VALUES ($1)"
	// $1 = array of keys
	insertMany = "INSERT INTO inbox (id) SELECT unnest($1::uuid[]) ON CONFLICT DO NOTHING"
	claimTable = "CREATE TABLE claims (id uuid PRIMARY KEY, state smallint NOT NULL, lease timestamptz, done timestamptz)"
	// $1 = key
	claimOne = "INSERT INTO claims (id, state, lease) VALUES ($1, 1, now() + interval '30 seconds') ON CONFLICT DO NOTHING"
	// $1 = key
	completeOne = "UPDATE claims SET state = 2, done = now() WHERE id = $1 AND state = 1"
)

// commits is one autocommitted row per statement.
func commits(conns, n int) harness.Measure {
	return harness.Measure{
		Name: fmt.Sprintf("commits-%d", conns), Title: "PostgreSQL, single-row commits, " + harness.Count(conns, "connection"),
		Kind: harness.Limit, Unit: "commits", N: n, Settings: "one INSERT of a 16-byte key, prepared",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return callers(ctx, e, conns, conns, load.InboxTable, func(ctx context.Context, pool *pgxpool.Pool) error {
				_, err := pool.Exec(ctx, insertOne, key())
				return err
			})
		},
	}
}

// twoCommits is the least that claims a key before the effect and completes it after: two statements.
func twoCommits(n, units int) harness.Measure {
	conns := min(n, 32)
	return harness.Measure{
		Name: fmt.Sprintf("two-commits-%d", n), Kind: harness.Limit, Unit: "pairs", N: units,
		Title:    "PostgreSQL, claim and completion as two plain statements, " + harness.Count(n, "caller"),
		Settings: harness.Count(conns, "connection") + "; INSERT ON CONFLICT DO NOTHING, UPDATE: autocommitted, key-only row",
		Run: func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
			return callers(ctx, e, n, conns, claimTable, func(ctx context.Context, pool *pgxpool.Pool) error {
				k := key()
				if _, err := pool.Exec(ctx, claimOne, k); err != nil {
					return err
				}
				_, err := pool.Exec(ctx, completeOne, k)
				return err
			})
		},
	}
}

// callers has n goroutines share e.N calls of do. P50 is the median time of one call.
func callers(
	ctx context.Context, e *harness.Env, n, conns int, table string, do func(context.Context, *pgxpool.Pool) error,
) (s harness.Sample, err error) {
	db, err := e.Database(ctx, table)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	pool, err := db.Pool(ctx, conns)
	if err != nil {
		return s, err
	}
	return e.Callers(ctx, n, func(ctx context.Context) error { return do(ctx, pool) })
}

// unnest is the fastest conditional insert of a batch: one statement, one transaction, one connection.
func unnest(batch, n int) harness.Measure {
	return harness.Measure{
		Name: fmt.Sprintf("unnest-%d", batch), Title: fmt.Sprintf("PostgreSQL, INSERT … unnest … ON CONFLICT, batch %d", batch),
		Kind: harness.Limit, Unit: "rows", N: n, Settings: "one connection; 16-byte keys and a time, key-only row",
		Run: func(ctx context.Context, e *harness.Env) (s harness.Sample, err error) {
			db, err := e.Database(ctx, load.InboxTable)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			conn, err := pgx.Connect(ctx, db.URL)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, conn.Close(ctx)) }()
			batches := make([][][16]byte, e.N/batch)
			for i := range batches {
				batches[i] = make([][16]byte, batch)
				for k := range batches[i] {
					batches[i][k] = key()
				}
			}
			stop := e.Watch()
			for _, keys := range batches {
				if _, err := conn.Exec(ctx, insertMany, keys); err != nil {
					return s, err
				}
			}
			return harness.Sample{Done: len(batches) * batch, Usage: stop()}, nil
		},
	}
}
