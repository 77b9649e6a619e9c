package redis

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func (s *Store) longTerms() string { return "{" + s.prefix + "}:longterm" }

// SetLongTerm registers the long-term period of a consumer. See [driver.LongTerm].
func (s *Store) SetLongTerm(ctx context.Context, consumer string, period time.Duration) (err error) {
	if period > 0 { // the longest counts
		err = s.client.ZAddGT(ctx, s.longTerms(), goredis.Z{Score: float64(period.Microseconds()), Member: consumer}).Err()
	} else {
		err = s.client.ZRem(ctx, s.longTerms(), consumer).Err()
	}
	if err != nil {
		return fmt.Errorf("set the long-term period of %q: %w", consumer, explain(err))
	}
	return nil
}

// LongTerms returns the registered periods by consumer.
func (s *Store) LongTerms(ctx context.Context) (map[string]time.Duration, error) {
	found, err := s.client.ZRangeByScoreWithScores(ctx, s.longTerms(), &goredis.ZRangeBy{Min: "0", Max: "+inf"}).Result()
	if err != nil {
		return nil, fmt.Errorf("read the long-term periods: %w", explain(err))
	}
	periods := make(map[string]time.Duration, len(found))
	for _, z := range found {
		periods[z.Member.(string)] = time.Duration(z.Score) * time.Microsecond
	}
	return periods, nil
}
