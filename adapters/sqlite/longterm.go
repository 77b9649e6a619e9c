package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"time"
)

const (
	// sqlLongTermSet registers a period; the longest counts. 1 consumer 2 period
	sqlLongTermSet = `INSERT INTO semel_long_term (consumer, period) VALUES (?, ?)
  ON CONFLICT (consumer) DO UPDATE SET period = max(period, excluded.period)`
	sqlLongTermEnd = "DELETE FROM semel_long_term WHERE consumer = ?"
	sqlLongTerms   = "SELECT consumer, period FROM semel_long_term"
)

// SetLongTerm registers the long-term period of a consumer. It writes nothing when the period is registered already. See
// [driver.LongTerm].
func (s *Store) SetLongTerm(ctx context.Context, consumer string, period time.Duration) error {
	all, err := s.LongTerms(ctx)
	if err == nil && all[consumer] < period {
		err = s.db.write(ctx, 1, func(t *txn) error {
			_, err := t.s.exec(sqlLongTermSet, consumer, (period + time.Microsecond - 1).Microseconds())
			return err
		})
	}
	if _, there := all[consumer]; err == nil && there && period <= 0 {
		err = s.db.write(ctx, 1, func(t *txn) error { _, err := t.s.exec(sqlLongTermEnd, consumer); return err })
	}
	if err != nil {
		return fmt.Errorf("set the long-term period of %q: %w", consumer, explain(s.db.path, err))
	}
	return nil
}

// LongTerms returns the registered periods by consumer.
func (s *Store) LongTerms(ctx context.Context) (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	err := s.db.read(ctx, "read the long-term periods", func(v []any) error {
		all[text(v[0])] = time.Duration(integer(v[1])) * time.Microsecond
		return nil
	}, sqlLongTerms)
	return all, err
}

// longTerms reads the registered periods in the transaction of a sweep.
func (t *txn) longTerms() (map[string]time.Duration, error) {
	var all map[string]time.Duration
	err := t.s.query(func(v []sqldriver.Value) error {
		if all == nil {
			all = map[string]time.Duration{}
		}
		all[text(v[0])] = time.Duration(integer(v[1])) * time.Microsecond
		return nil
	}, sqlLongTerms)
	return all, err
}
