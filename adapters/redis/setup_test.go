package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// stallLimit is how long clients wait for a server on a machine that stalls.
const stallLimit = time.Minute

// connect makes a client of a URL as programs should make them.
func connect(t testing.TB, url string) *goredis.Client {
	t.Helper()
	return connectWith(t, url, 0)
}

// connectWith makes a client with conns connections, opened in advance; 0 = the default.
func connectWith(t testing.TB, url string, conns int) *goredis.Client {
	t.Helper()
	o, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled, o.PoolSize, o.MinIdleConns = true, conns, conns
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = stallLimit, stallLimit, stallLimit
	c := goredis.NewClient(o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// shared connects to the server that tests share.
func shared(t testing.TB) *goredis.Client {
	t.Helper()
	return connect(t, server.Shared(t, "redis"))
}

// openFor opens an empty store, whose keys go when the test ends.
func openFor(t testing.TB, c goredis.UniversalClient, o Options) *Store {
	t.Helper()
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	o.Prefix = "test-" + hex.EncodeToString(random[:])
	s, err := Open(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, c, o.Prefix) })
	return s
}

// remove removes all keys of a prefix. A server that was stopped has none.
func remove(t testing.TB, c goredis.UniversalClient, prefix string) {
	ctx := context.Background()
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, "{"+prefix+"*", 5000).Result()
		if err != nil {
			t.Logf("the keys of %s were not removed: %v", prefix, err)
			return
		}
		if len(keys) > 0 {
			if err := c.Del(ctx, keys...).Err(); err != nil {
				t.Errorf("remove the keys of %s: %v", prefix, err)
			}
		}
		if cursor = next; cursor == 0 {
			return
		}
	}
}

// testClock is Lua that reads the time from a key of each shard.
const testClock = `(function()
  local c = redis.call('HMGET', KEYS[1] .. ':clock', 's', 'u')
  return {tonumber(c[1]), tonumber(c[2])}
end)()`

// clock is the time of a store that was opened with testClock.
type clock struct {
	s  *Store
	mu sync.Mutex
	at time.Time
}

func newClock(t testing.TB, s *Store) *clock {
	c := &clock{s: s, at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.advance(t, 0)
	return c
}

func (c *clock) advance(t testing.TB, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	for shard := range c.s.shards {
		err := c.s.client.HSet(context.Background(), c.s.slot(shard)+"floor:clock", "s", c.at.Unix(), "u", c.at.Nanosecond()/1000).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// damage makes the record of a key one of a newer program.
func damage(s *Store) func(t testing.TB, k driver.Key) {
	return func(t testing.TB, k driver.Key) {
		t.Helper()
		if err := s.client.SetRange(t.Context(), s.name("r", newItem(&k)), 0, "\x02").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func nonce() (n driver.Nonce) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

func keyOf(n int) driver.Key { return driver.Key{Consumer: "test", Raw: fmt.Sprint("key-", n)} }
