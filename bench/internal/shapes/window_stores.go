package shapes

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/driver"
)

func windowMeasure(name, title string, run func(context.Context, *harness.Env) (harness.Sample, error)) harness.Measure {
	return harness.Measure{
		Name: name, Title: title, Kind: harness.Window, Unit: "digests", Long: true, N: windowDigests, Run: run,
		Settings: "digests inserted in bulk, a nineteenth as many records claimed and completed; LongTerm 400 days; Concurrency 1000, " +
			"Batch 100, Committers 2; queue, records and effects in one database",
	}
}

func sqliteWindow() harness.Measure {
	return windowMeasure("semel-sqlite-window", "SQLite", func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
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
		bulk: func(ctx context.Context, hashes []driver.DigestHash, d driver.Digest) error {
			return bulkSQLite(ctx, db.SQL(), hashes, d)
		},
		sizes: func(ctx context.Context) (digests, records int64, err error) {
			const size = "SELECT sum(pgsize) FROM dbstat WHERE aggregate = 1 AND name IN "
			err = errors.Join(
				db.SQL().QueryRowContext(ctx, size+"('semel_digest')").Scan(&digests),
				db.SQL().QueryRowContext(ctx, size+"('semel_record', 'semel_record_hash')").Scan(&records),
			)
			return digests, records, err
		},
	}
}

// bulkSQLite inserts digests, 100,000 a transaction, on a connection that does not wait for the disk.
func bulkSQLite(ctx context.Context, db *sql.DB, hashes []driver.DigestHash, d driver.Digest) (err error) {
	const perTx = 100_000
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	// The connection ends with this: what it was set to is nobody else's.
	defer func() {
		if bad := conn.Raw(func(any) error { return sqldriver.ErrBadConn }); !errors.Is(bad, sqldriver.ErrBadConn) {
			err = errors.Join(err, bad)
		}
	}()
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 20000"); err != nil {
		return err
	}
	for part := range slices.Chunk(hashes, perTx) {
		all := make([]byte, 0, 16*perTx)
		for _, h := range part {
			all = append(all, h[:]...)
		}
		_, err := conn.ExecContext(ctx, `INSERT INTO semel_digest (hash, meta)
  WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
  SELECT substr(?1, 1 + 16 * i, 16), ?3 FROM n`, all, len(part), d.Pack())
		if err != nil {
			return err
		}
	}
	return nil
}

func postgresWindow() harness.Measure {
	return windowMeasure("semel-pg-window", "PostgreSQL", func(ctx context.Context, e *harness.Env) (harness.Sample, error) {
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
		bulk: func(ctx context.Context, hashes []driver.DigestHash, d driver.Digest) error {
			meta := d.Pack()
			_, err := pool.CopyFrom(ctx, pgx.Identifier{"semel_digest"}, []string{"hash", "ended", "day"},
				pgx.CopyFromSlice(len(hashes), func(i int) ([]any, error) {
					return []any{[16]byte(hashes[i]), int32(meta >> 16), int32(meta & 0xffff)}, nil
				}))
			if err == nil {
				_, err = pool.Exec(ctx, "VACUUM (ANALYZE) semel_digest")
			}
			return err
		},
		sizes: func(ctx context.Context) (digests, records int64, err error) {
			err = pool.QueryRow(ctx, "SELECT pg_total_relation_size('semel_digest'), pg_total_relation_size('semel_record')").
				Scan(&digests, &records)
			return digests, records, err
		},
	}
}
