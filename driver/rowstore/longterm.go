package rowstore

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
)

const sqlPeriods = "SELECT consumer, period FROM semel_long_term"

// addPeriod reads a row of sqlPeriods.
func addPeriod(all map[string]time.Duration) func(Row) error {
	return func(r Row) error { all[r.Text(0)] = time.Duration(r.Int(1)) * time.Microsecond; return nil }
}

// LongTerms returns the registered periods by consumer. See [driver.LongTerm].
func (s *Store) LongTerms(ctx context.Context) (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	if err := s.db.Read(ctx, addPeriod(all), sqlPeriods); err != nil {
		return nil, fmt.Errorf("read the long-term periods: %w", err)
	}
	return all, nil
}

// Periods is LongTerms in the transaction of a sweep.
func Periods(tx SQL) (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	return all, tx.Query(addPeriod(all), sqlPeriods)
}

// SetLongTerm registers the long-term period of a consumer. It writes nothing if the period is already registered. Otherwise it
// waits for steps of sweeps in progress (see [Layout.LockPeriods]). See [driver.LongTerm].
func (s *Store) SetLongTerm(ctx context.Context, consumer string, period time.Duration) error {
	all, err := s.LongTerms(ctx)
	if have, there := all[consumer]; err == nil && (period > have || there && period <= 0) {
		err = s.db.Atomic(ctx, 1, func(tx Tx) error { return s.setPeriod(tx, consumer, period) })
	}
	return Wrap(err, "set the long-term period of %q", consumer)
}

func (s *Store) setPeriod(tx Tx, consumer string, period time.Duration) error {
	if s.layout.LockPeriods != "" {
		if err := tx.Exec(s.layout.LockPeriods); err != nil {
			return err
		}
	}
	all, err := Periods(tx)
	if err != nil || period > 0 && all[consumer] >= period { // the longest counts
		return err
	}
	if err := tx.Exec("DELETE FROM semel_long_term WHERE consumer = ?", consumer); err != nil || period <= 0 {
		return err
	}
	return tx.Exec("INSERT INTO semel_long_term (consumer, period) VALUES (?, ?)", consumer, (period + time.Microsecond - 1).Microseconds())
}

// expire makes a record EXPIRED and removes its rows in other tables.
func expire(tx Tx, l *Locked, after *driver.Record) error {
	for _, table := range [...]string{"semel_step", "semel_audit", "semel_duplicate"} {
		if err := tx.Exec("DELETE FROM "+table+" WHERE place = ?", PlaceOf(&after.Key)); err != nil {
			return err
		}
	}
	return tx.Put(l, after)
}
