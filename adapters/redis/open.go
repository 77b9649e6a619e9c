package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
)

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// Prefix begins the names of all keys in Redis: {PREFIX:0}:… Defaults to "semel". It has no braces.
	Prefix string
	// Shards spreads the records over 1 to 1024 slots of a cluster. It is stored with the first Open and cannot be
	// changed: another number is an error. Defaults to what is stored; at first to 16 on a cluster, else to 1, which is the
	// fastest on one server.
	Shards int
	// ReadOnly stores nothing at Open: for inspection.
	ReadOnly bool

	clock string // the Lua expression for the time; "" = the server's
}

// Store keeps records in Redis. Make it with [Open]; it has nothing to close.
type Store struct {
	client  goredis.UniversalClient
	prefix  string
	shards  int
	script  *goredis.Script
	server  Server
	entries atomic.Uint32
	turn    atomic.Uint32 // the shard where the next sweep begins
	history history
	lanes   []lane // by shard
}

// maxShards bounds Options.Shards.
const maxShards = 1024

// Open opens the records behind a client, which stays the caller's. It asks the server how it is set up, for
// [driver.StoreFeatures], and stores one key: the number of shards. There is no schema. The client should have
// ContextTimeoutEnabled, else calls do not end with their ctx.
func Open(ctx context.Context, client goredis.UniversalClient, o Options) (*Store, error) {
	switch {
	case client == nil:
		return nil, errors.New("redis: Open needs a client (redis.NewUniversalClient)")
	case strings.ContainsAny(o.Prefix, "{}"):
		return nil, fmt.Errorf("redis: Options.Prefix %q has braces: leave them out", o.Prefix)
	case o.Shards < 0 || o.Shards > maxShards:
		return nil, fmt.Errorf("redis: Options.Shards is %d: use 1 to %d", o.Shards, maxShards)
	}
	const clock = "redis.call('TIME')"
	script := strings.Replace(luaRecords, clock, cmp.Or(o.clock, clock), 1)
	s := &Store{client: client, prefix: cmp.Or(o.Prefix, "semel"), script: goredis.NewScript(luaSettle + script)}
	s.history.watch(client)
	var err error
	if s.server, err = Inspect(ctx, client); err != nil {
		return nil, fmt.Errorf("open redis: %w", explain(err))
	}
	if s.shards, err = s.agree(ctx, o); err != nil {
		return nil, fmt.Errorf("open redis: %w", explain(err))
	}
	s.lanes = make([]lane, s.shards)
	return s, nil
}

// agree finds the number of shards that every process uses.
func (s *Store) agree(ctx context.Context, o Options) (int, error) {
	want := o.Shards
	if want == 0 {
		if want = 1; s.server.Cluster {
			want = 16
		}
	}
	name := "{" + s.prefix + "}:shards"
	if !o.ReadOnly {
		if err := s.client.SetNX(ctx, name, want, 0).Err(); err != nil {
			return 0, err
		}
	}
	text, err := s.client.Get(ctx, name).Result()
	if errors.Is(err, goredis.Nil) {
		return want, nil
	}
	if err != nil {
		return 0, err
	}
	have, err := strconv.Atoi(text)
	if err != nil || have < 1 || have > maxShards {
		return 0, fmt.Errorf("key %s is %q and no number of shards: another program uses the prefix %q; choose another Prefix",
			name, text, s.prefix)
	}
	if o.Shards != 0 && o.Shards != have {
		return 0, fmt.Errorf("the records with prefix %q have %d shards, Options.Shards is %d: leave Shards at 0, or choose "+
			"another Prefix", s.prefix, have, o.Shards)
	}
	return have, nil
}

// maxResult bounds a result: Redis serves nobody else while it copies one.
const maxResult = 1 << 20

// Features describes the store, with what Open found out about the server.
func (s *Store) Features() driver.StoreFeatures {
	return driver.StoreFeatures{
		Name: fmt.Sprintf("%s (keys %s)", s.server.Product, s.prefix), Kind: "redis", ServerClock: true,
		Durable: len(s.server.Losses()) == 0, Caveats: s.server.Losses(), MaxResult: maxResult, ListsUncertain: true,
	}
}

// Server is what Open found out about the server.
func (s *Store) Server() Server { return s.server }
