package shapes

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
)

func windowMeasure(name, title string, keys int, run func(context.Context, *harness.Env) (harness.Sample, error)) harness.Measure {
	return harness.Measure{
		Name: name, Title: title, Kind: harness.Window, Unit: "expired keys", Long: true, N: keys, Run: run,
		Settings: "records claimed, completed and swept; LongTerm 400 days; Concurrency 1000, " +
			"Batch 100, Committers 2; queue, records and effects in one database",
	}
}

func sqliteWindow() harness.Measure {
	return windowMeasure("semel-sqlite-window", "SQLite", 19_000_000, func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
		return withSQLite(ctx, e, func(large *sqlite.DB) (harness.Sample, error) {
			return withSQLiteFile(ctx, e, "empty.db", func(empty *sqlite.DB) (s harness.Sample, err error) {
				for _, db := range []*sqlite.DB{large, empty} {
					if _, err := db.SQL().ExecContext(ctx, sqliteLedger); err != nil {
						return s, err
					}
				}
				return measureWindow(ctx, e, windowOfSQLite(large), windowOfSQLite(empty))
			})
		})
	})
}

func windowOfSQLite(db *sqlite.DB) *window {
	return &window{
		queue: db.Queue("orders"), store: db.Store(), effect: sqliteEffect,
		ledger: func(ctx context.Context) (rows, ids, late int, err error) {
			err = db.SQL().QueryRowContext(ctx, "SELECT count(*), count(DISTINCT id), coalesce(sum(id LIKE 'old-%'), 0) FROM ledger").
				Scan(&rows, &ids, &late)
			return rows, ids, late, err
		},
		sizes: func(ctx context.Context) (disk, live int64, err error) {
			err = db.SQL().QueryRowContext(ctx, `SELECT sum(pgsize), sum(pgsize - unused) FROM dbstat
  WHERE aggregate = 1 AND name GLOB 'semel_record*'`).Scan(&disk, &live)
			return disk, live, err
		},
	}
}

func postgresWindow() harness.Measure {
	return windowMeasure("semel-pg-window", "PostgreSQL", 5_000_000, func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
		return withPostgres(ctx, e, func(d1 *harness.Database, large *postgres.DB) (harness.Sample, error) {
			return withPostgres(ctx, e, func(d2 *harness.Database, empty *postgres.DB) (s harness.Sample, err error) {
				var of [2]*window
				for i, one := range []struct {
					d  *harness.Database
					db *postgres.DB
				}{{d1, large}, {d2, empty}} {
					pool, err := one.d.Pool(ctx, 1)
					if err != nil {
						return s, err
					}
					// Late duplicates have ids that are no uuids.
					if _, err := pool.Exec(ctx, "ALTER TABLE ledger ALTER COLUMN id TYPE text"); err != nil {
						return s, fmt.Errorf("prepare the ledger: %w", err)
					}
					of[i] = windowOfPostgres(pool, one.db)
				}
				return measureWindow(ctx, e, of[0], of[1])
			})
		})
	})
}

func windowOfPostgres(pool *pgxpool.Pool, db *postgres.DB) *window {
	return &window{
		queue: db.Queue("orders"), store: db.Store(), effect: load.Effect,
		ledger: func(ctx context.Context) (rows, ids, late int, err error) {
			err = pool.QueryRow(ctx, "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE id LIKE 'old-%') FROM ledger").
				Scan(&rows, &ids, &late)
			return rows, ids, late, err
		},
		sizes: func(ctx context.Context) (disk, live int64, err error) {
			if _, err := pool.Exec(ctx, "VACUUM (ANALYZE) semel_record"); err != nil {
				return 0, 0, err
			}
			// A row takes its bytes, rounded up to 8, and a pointer of 4 in its page.
			err = pool.QueryRow(ctx, `SELECT pg_total_relation_size('semel_record'), pg_indexes_size('semel_record')
  + (SELECT sum((pg_column_size(r.*) + 7) / 8 * 8 + 4) FROM semel_record r)`).Scan(&disk, &live)
			return disk, live, err
		},
	}
}
