package open

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

var redisKind = &kind{
	schemes: []string{"redis", "rediss", "redis+sentinel", "rediss+sentinel"}, parse: parseRedis, open: openRedis,
	noQueues: "semel keeps records in Redis, and no queues",
	// There is no schema: migrate shows that records could be kept there.
	migrate: func(ctx context.Context, t Target) (from, to int, err error) {
		db, err := openRedis(ctx, t, Options{})
		if err != nil {
			return 0, 0, err
		}
		_, err = db.Store(ctx)
		return 0, 0, errors.Join(err, db.Close())
	},
	schema: func(Target) (string, error) {
		return "", output.Usage("--store redis:// has no schema: there is nothing to create").WithHint("semel work makes the keys it needs")
	},
}

// redisDB is a Redis with records.
type redisDB struct {
	t      Target
	client goredis.UniversalClient
	o      redis.Options
}

func openRedis(_ context.Context, t Target, o Options) (Database, error) {
	p, err := splitRedis(*t.conn)
	if err != nil {
		return nil, err // not reached: it was parsed before
	}
	return &redisDB{
		t: t, client: p.client(o.Committers), o: redis.Options{Prefix: p.prefix, Shards: p.shards, ReadOnly: o.ReadOnly},
	}, nil
}

// Queue is not reached: a Set asks HasQueues before.
func (d *redisDB) Queue(context.Context, string, time.Duration) (driver.Queue, error) {
	return nil, d.t.HasQueues("queue")
}

// Queues is not reached: a Set asks HasQueues before.
func (d *redisDB) Queues(context.Context) ([]string, error) { return nil, d.t.HasQueues("queue") }

// openServer bounds the first look at a server.
const openServer = 5 * time.Second

// Store opens the records.
func (d *redisDB) Store(ctx context.Context) (driver.Store, error) {
	first, cancel := context.WithTimeout(ctx, openServer)
	defer cancel()
	st, err := redis.Open(first, d.client, d.o)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, redisError(d.t, "open", err)
	}
	return st, nil
}

// Close closes the connections.
func (d *redisDB) Close() error { return d.client.Close() }

// redisError says why a server could not be used, and what to do about it.
func redisError(t Target, doing string, err error) error {
	text := strings.TrimPrefix(err.Error(), "open redis: ")
	hint := "check that the server runs and listens there (redis-cli -h … ping), and host and port of the URL"
	switch {
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
		hint = "set REDISCLI_AUTH to the password, and the user in the URL (redis://user@host:6379)"
	case strings.Contains(text, "NOPERM"):
		hint = "the user needs the commands that docs/adapters.md lists (ACL SETUSER)"
	case strings.Contains(text, "unknown command"):
		hint = "semel needs EVALSHA, EVAL and SCRIPT under their own names (rename-command)"
	case strings.Contains(text, "READONLY"):
		hint = "this is a replica: name the master, or the sentinels (redis+sentinel://host:26379?master=NAME)"
	case strings.Contains(text, "cluster support disabled"):
		hint = "leave cluster=on away"
	case strings.Contains(text, "MOVED"):
		hint = "cluster=on"
	case strings.Contains(text, "Shards") || strings.Contains(text, "Prefix"):
		hint = "prefix= and shards= in the URL"
	}
	e := output.Unreachable("%s %s: %w", doing, t.Shown, &worded{text, err})
	return e.WithHint("%s", hint)
}

// Redis makes a client for the URL of a Redis. It connects with its first command.
func Redis(flag, raw string) (goredis.UniversalClient, error) {
	if _, err := Parse(flag, raw); err != nil {
		return nil, err
	}
	p, err := splitRedis(raw)
	return p.client(1), err
}

// RedisPrefix is how the keys begin of a URL of Redis.
func RedisPrefix(raw string) (string, error) {
	p, err := splitRedis(raw)
	return cmp.Or(p.prefix, "semel"), err
}

// WithRedisPrefix is the URL with another prefix.
func WithRedisPrefix(raw, prefix string) (string, error) {
	base, query, _ := strings.Cut(raw, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", err
	}
	q.Set("prefix", prefix)
	return base + "?" + q.Encode(), nil
}
