package limits

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/bench/internal/harness"
)

// redisSet is the fastest conditional insert on Redis. It loses up to a second of confirmed writes when the machine dies.
func redisSet(n int) harness.Measure {
	const batch = 100
	return harness.Measure{
		Name: "redis-setnx", Title: "Redis, SET NX EX, pipelined by 100", Kind: harness.Limit, Unit: "rows", N: n,
		Settings: "one connection; appendonly yes, appendfsync everysec; 36-byte keys",
		Run: func(ctx context.Context, e *harness.Env) (s harness.Sample, err error) {
			c := redis.NewClient(&redis.Options{Addr: e.Redis(), PoolSize: 1})
			defer func() { err = errors.Join(err, c.Close()) }()
			ids := make([]string, e.N)
			for i := range ids {
				ids[i] = text(key())
			}
			stop := e.Watch()
			for from := 0; from < e.N; from += batch {
				_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
					for _, id := range ids[from:min(from+batch, e.N)] {
						p.SetArgs(ctx, id, 1, redis.SetArgs{Mode: "NX", TTL: time.Hour})
					}
					return nil
				})
				if err != nil {
					return s, err
				}
			}
			return harness.Sample{Done: e.N, Usage: stop()}, nil
		},
	}
}
