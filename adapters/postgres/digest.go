package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semel-dev/semel/driver"
)

// This file is the long-term tier (driver.LongTerm): what semel_sweep_digests leaves of records in semel_digest. All of it
// is asked of the server that is written to.

const (
	// sqlRemembers tells whether a registration is there already. 1 consumer 2 keep
	sqlRemembers = "SELECT EXISTS (SELECT FROM semel_remember WHERE consumer = $1 AND keep >= $2)"
	// sqlRememberLock waits for the steps of sweeps that are under way: they looked before who is remembered.
	sqlRememberLock = "LOCK TABLE semel_remember IN ACCESS EXCLUSIVE MODE"
	// sqlRemember registers; the longest keep counts. 1 consumer 2 keep
	sqlRemember = `INSERT INTO semel_remember AS m (consumer, keep) VALUES ($1, $2)
  ON CONFLICT (consumer) DO UPDATE SET keep = greatest(m.keep, excluded.keep)`
	sqlForget = "DELETE FROM semel_remember WHERE consumer = $1"

	sqlRemembered = "SELECT of, ended, day FROM semel_remembered($1)"

	sqlDigestKeep = "SELECT consumer, keep FROM semel_remember"
	// sqlDigestCount estimates from the size where there are many, and counts where there are few.
	sqlDigestCount = `SELECT CASE WHEN c.reltuples < 0 OR c.relpages < 1000 THEN (SELECT count(*) FROM semel_digest)
    ELSE (c.reltuples * (pg_relation_size(c.oid) / current_setting('block_size')::int / c.relpages::float8))::bigint END,
  pg_total_relation_size(c.oid) FROM pg_class c WHERE c.oid = 'semel_digest'::regclass`

	// sqlDigestRecent and sqlDigestScan read a page in the order of the primary key.
	// 1 behind this hash, as an array (empty = from the beginning) 2 limit
	sqlDigestRecent = `SELECT hash, day FROM semel_digest_young
  WHERE cardinality($1::uuid[]) = 0 OR hash > $1[1] ORDER BY hash LIMIT $2::bigint`
	sqlDigestScan = `SELECT hash, day FROM semel_digest
  WHERE cardinality($1::uuid[]) = 0 OR hash > $1[1] ORDER BY hash LIMIT $2::bigint`

	sqlDigestPurge = "SELECT semel_digest_purge($1)"
)

const (
	// digestPage is how many digests one statement of a scan reads.
	digestPage = 10_000
	// digestPages is how many pages of digests each sweep looks at to find those that are over: some 5,000 digests, all of
	// 20 million in three days of one worker.
	digestPages = 32
)

// Remember keeps digests of a consumer's records. See [driver.LongTerm]. The first time it waits for the steps of sweeps
// that are under way, some milliseconds.
func (s *Store) Remember(ctx context.Context, consumer string, keep time.Duration) error {
	err := s.db.with(ctx, func(conn *pgxpool.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if keep <= 0 {
				_, err := tx.Exec(ctx, sqlForget, []byte(consumer))
				return err
			}
			there := false
			if err := tx.QueryRow(ctx, sqlRemembers, []byte(consumer), keep).Scan(&there); err != nil || there {
				return err
			}
			if _, err := tx.Exec(ctx, sqlRememberLock); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sqlRemember, []byte(consumer), keep)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("remember %q: %w", consumer, err)
	}
	return nil
}

// Remembered looks keys up among those whose records are gone, in one round trip. See [driver.LongTerm].
func (s *Store) Remembered(ctx context.Context, keys ...driver.Key) ([]driver.Digest, error) {
	out := make([]driver.Digest, len(keys))
	part := sortKeys(len(keys), func(i int) *driver.Key { return &keys[i] })
	err := s.db.with(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sqlRemembered, part.hashes)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var hash [16]byte
			var ended, day int32
			if err := rows.Scan(&hash, &ended, &day); err != nil {
				return err
			}
			for at := part.find(hash, 0); at < len(part.hashes) && part.hashes[at] == hash; at++ {
				out[part.index[at]] = driver.UnpackDigest(int64(ended)<<16 | int64(day))
			}
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("look up %d digests: %w", len(keys), err)
	}
	return out, nil
}

// DigestStats counts the digests, and estimates where there are many. See [driver.LongTerm].
func (s *Store) DigestStats(ctx context.Context) (driver.DigestStats, error) {
	st := driver.DigestStats{Keep: map[string]time.Duration{}}
	err := s.db.with(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sqlDigestKeep)
		if err != nil {
			return err
		}
		var consumer []byte
		var keep time.Duration
		_, err = pgx.ForEachRow(rows, []any{&consumer, &keep}, func() error {
			st.Keep[string(consumer)] = keep
			return nil
		})
		if err != nil {
			return err
		}
		return conn.QueryRow(ctx, sqlDigestCount).Scan(&st.Count, &st.Bytes)
	})
	if err != nil {
		return st, fmt.Errorf("count digests: %w", err)
	}
	return st, nil
}

// ScanDigests reads announcements, and without recent the digests behind them. See [driver.DigestScanner].
func (s *Store) ScanDigests(ctx context.Context, recent bool, each func(h driver.DigestHash, until time.Time) error) error {
	// The announcements first: what departs meanwhile is among the digests then.
	if err := s.scanDigests(ctx, sqlDigestRecent, each); err != nil || recent {
		return err
	}
	return s.scanDigests(ctx, sqlDigestScan, each)
}

func (s *Store) scanDigests(ctx context.Context, sql string, each func(h driver.DigestHash, until time.Time) error) error {
	type row struct {
		hash [16]byte
		day  int32
	}
	page := make([]row, 0, digestPage)
	for after := (uuids{}); ; after = (uuids{page[len(page)-1].hash}) {
		page = page[:0]
		err := s.db.with(ctx, func(conn *pgxpool.Conn) error {
			rows, err := conn.Query(ctx, sql, after, int64(digestPage))
			if err != nil {
				return err
			}
			var r row
			_, err = pgx.ForEachRow(rows, []any{&r.hash, &r.day}, func() error {
				page = append(page, r)
				return nil
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("scan digests: %w", err)
		}
		for i := range page {
			if err := each(page[i].hash, driver.UnpackDigest(int64(page[i].day)).Until); err != nil {
				return err
			}
		}
		if len(page) < digestPage {
			return nil
		}
	}
}

// purgeDigests removes digests that are over, of the next pages, and announcements that are nobody's.
func (s *Store) purgeDigests(ctx context.Context) error {
	return s.db.with(ctx, func(conn *pgxpool.Conn) error {
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sqlDigestPurge, int32(digestPages))
			return err
		})
		if err != nil {
			return fmt.Errorf("remove digests that are over: %w", err)
		}
		return nil
	})
}
