package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// setLongTerm keeps the longest period of a consumer: a hash with µs by consumer. 0 removes it.
var setLongTerm = goredis.NewScript(`local period = tonumber(ARGV[2])
if period <= 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
elseif period > tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0') then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1`)

func (s *Store) longTerms() string { return "{" + s.prefix + "}:longterm" }

// SetLongTerm registers the long-term period of a consumer. See [driver.LongTerm].
func (s *Store) SetLongTerm(ctx context.Context, consumer string, period time.Duration) error {
	err := setLongTerm.Run(ctx, s.client, []string{s.longTerms()}, consumer, period.Microseconds()).Err()
	if err != nil {
		return fmt.Errorf("set the long-term period of %q: %w", consumer, explain(err))
	}
	return nil
}

// LongTerms returns the registered periods by consumer.
func (s *Store) LongTerms(ctx context.Context) (map[string]time.Duration, error) {
	found, err := s.client.HGetAll(ctx, s.longTerms()).Result()
	if err != nil {
		return nil, fmt.Errorf("read the long-term periods: %w", explain(err))
	}
	periods := make(map[string]time.Duration, len(found))
	for consumer, text := range found {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the long-term periods: that of %q is %q", consumer, text)
		}
		periods[consumer] = time.Duration(n) * time.Microsecond
	}
	return periods, nil
}
