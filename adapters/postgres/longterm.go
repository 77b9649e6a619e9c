package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// sqlLongTermThere reports whether a period is registered already. 1 consumer 2 period
	sqlLongTermThere = "SELECT EXISTS (SELECT FROM semel_long_term WHERE consumer = $1 AND period >= $2)"
	// sqlLongTermLock waits for the steps of sweeps that are under way: they may have read the periods before.
	sqlLongTermLock = "LOCK TABLE semel_long_term IN ACCESS EXCLUSIVE MODE"
	// sqlLongTermSet registers a period; the longest counts. 1 consumer 2 period
	sqlLongTermSet = `INSERT INTO semel_long_term AS m (consumer, period) VALUES ($1, $2)
  ON CONFLICT (consumer) DO UPDATE SET period = greatest(m.period, excluded.period)`
	sqlLongTermEnd = "DELETE FROM semel_long_term WHERE consumer = $1"
	sqlLongTerms   = "SELECT consumer, period FROM semel_long_term"
)

// SetLongTerm registers the long-term period of a consumer. The first time it waits for the steps of sweeps that are under
// way, some milliseconds; it writes nothing when the period is registered already. See [driver.LongTerm].
func (s *Store) SetLongTerm(ctx context.Context, consumer string, period time.Duration) error {
	err := s.db.with(ctx, func(conn *pgxpool.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if period <= 0 {
				_, err := tx.Exec(ctx, sqlLongTermEnd, []byte(consumer))
				return err
			}
			there := false
			err := tx.QueryRow(ctx, sqlLongTermThere, []byte(consumer), micros(period)).Scan(&there)
			if err != nil || there {
				return err
			}
			if _, err := tx.Exec(ctx, sqlLongTermLock); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, sqlLongTermSet, []byte(consumer), micros(period))
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("set the long-term period of %q: %w", consumer, err)
	}
	return nil
}

// LongTerms returns the registered periods by consumer.
func (s *Store) LongTerms(ctx context.Context) (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	err := s.db.with(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sqlLongTerms)
		if err != nil {
			return err
		}
		var consumer []byte
		var period int64
		_, err = pgx.ForEachRow(rows, []any{&consumer, &period}, func() error {
			all[string(consumer)] = time.Duration(period) * time.Microsecond
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the long-term periods: %w", err)
	}
	return all, nil
}
