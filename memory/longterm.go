package memory

import (
	"context"
	"fmt"
	"maps"
	"time"
)

// SetLongTerm registers the long-term period of a consumer. See [driver.LongTerm].
func (s *Store) SetLongTerm(ctx context.Context, consumer string, period time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("set the long-term period of %q: %w", consumer, err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if period <= 0 {
		delete(s.longTerm, consumer)
		return nil
	}
	s.longTerm[consumer] = max(s.longTerm[consumer], period)
	return nil
}

// LongTerms returns the registered periods by consumer.
func (s *Store) LongTerms(ctx context.Context) (map[string]time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the long-term periods: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return maps.Clone(s.longTerm), nil
}
