package open

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/ops"
	testserver "github.com/semel-dev/semel/semeltest/server"
)

func TestParseRedis(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://":             "redis://127.0.0.1:6379/0",
		"redis://cache":        "redis://cache:6379/0",
		"REDIS://cache:7000/3": "redis://cache:7000/3",
		"rediss://shop:hushhush@cache?prefix=shop":            "rediss://shop@cache:6379/0?prefix=shop",
		"redis://:hush%2Fhush@[::1]:7000/0?shards=4":          "redis://[::1]:7000/0?shards=4",
		"redis://a:7000,b?cluster=on":                         "redis://a:7000,b:6379?cluster=on",
		"redis+sentinel://u@a,b:7/1?master=main&prefix=p":     "redis+sentinel://u@a:26379,b:7/1?master=main&prefix=p",
		"rediss+sentinel://a?master=main":                     "rediss+sentinel://a:26379/0?master=main",
		"redis://u:p%40ss@cache:6379/0?prefix=semel&shards=1": "redis://u@cache:6379/0?prefix=semel&shards=1",
	} {
		got, err := Parse("store", raw)
		if err != nil || got.Shown != want || got.Scheme != "redis" {
			t.Errorf("%s: %q %v, want %q", raw, got.Shown, err, want)
		}
		if again, err := Parse("store", want); err != nil || again.Shown != want || again.place != got.place {
			t.Errorf("%s does not lead to the same place: %v", want, err)
		}
		if shown := Redact(raw); strings.Contains(shown, "hush") || strings.Contains(shown, "p%40ss") {
			t.Errorf("%s is shown as %s", raw, shown)
		}
	}
	for raw, says := range map[string]string{
		"redis:cache": "not a URL of the form", "redis://cache#x": "not a URL of the form", "redis://cache/x": "number of a database",
		"redis://ca che": "not a URL of the form", "redis://cache?queue=": "must be given once", "redis://cache?password=hushhush": "REDISCLI_AUTH",
		"redis://cache?shards=0": "shards is", "redis://cache?prefix=": "must be given once", "redis://cache?prefix=a{b": "brace",
		"redis://cache?cluster=yes": "on or off", "redis://a,b": "several hosts", "redis+sentinel://a": "belong together",
		"redis://a?master=m": "belong together", "redis://a/1?cluster=on": "neither", "redis://cache?prefx=a": "unknown query parameter",
		"redis://u:hush/hush@a": "not a URL of the form",
	} {
		_, err := Parse("store", raw)
		if err == nil || !strings.Contains(err.Error()+output.As(err).Hint, says) || output.As(err).Code != output.CodeUsage {
			t.Errorf("%s: %v, want %q", raw, err, says)
		} else if strings.Contains(err.Error()+output.As(err).Hint, "hush") {
			t.Errorf("%s: %v shows a password", raw, err)
		}
	}
	if got, err := Parse("queue", "redis://cache?queue=orders"); err != nil || got.Queue != "orders" || got.Shown != "redis://cache:6379/0?queue=orders" {
		t.Errorf("a queue in Redis: %+v, %v", got, err)
	}
	if !SamePlace("redis://cache?queue=orders", "redis://cache/0?shards=2") || SamePlace("redis://cache?queue=orders", "redis://cache?prefix=b") {
		t.Error("queue and records are in one place if their server, number of a database and prefix are the same")
	}
	_, err := New(Options{}).Queue(context.Background(), "redis://cache")
	if err == nil || !strings.Contains(err.Error(), "names no queue") || !strings.Contains(output.As(err).Hint, "?queue=orders") {
		t.Errorf("a URL without a queue: %v", err)
	}
}

// TestRedisFacts is what doctor says of servers that nobody starts for a test.
func TestRedisFacts(t *testing.T) {
	sound := redis.Server{
		Product: "Redis 7.0.15", Role: "master", AppendOnly: true, Fsync: "always", Policy: "noeviction", MaxMemory: 1 << 30, UsedMemory: 1 << 20,
	}
	with := func(change func(s *redis.Server)) redis.Server {
		s := sound
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		s     redis.Server
		fact  func(redis.Server) ops.Check
		level string
		says  string
	}{
		"sound":          {sound, redisDisk, ops.LevelOK, "on the disk"},
		"no log":         {with(func(s *redis.Server) { s.AppendOnly = false }), redisDisk, ops.LevelDanger, "appendonly is no"},
		"every second":   {with(func(s *redis.Server) { s.Fsync = "everysec" }), redisDisk, ops.LevelWarning, "two seconds"},
		"no fsync":       {with(func(s *redis.Server) { s.Fsync = "no" }), redisDisk, ops.LevelDanger, "half a minute"},
		"rewrite":        {with(func(s *redis.Server) { s.OnRewrite = true }), redisDisk, ops.LevelWarning, "no-appendfsync-on-rewrite"},
		"hidden":         {with(func(s *redis.Server) { s.Hidden, s.Fsync = true, "" }), redisDisk, ops.LevelWarning, "does not show"},
		"keeps":          {sound, redisEviction, ops.LevelOK, "noeviction"},
		"evicts":         {with(func(s *redis.Server) { s.Policy = "allkeys-lfu" }), redisEviction, ops.LevelDanger, "allkeys-lfu"},
		"evicts others":  {with(func(s *redis.Server) { s.Policy = "volatile-ttl" }), redisEviction, ops.LevelWarning, "volatile-ttl"},
		"unknown policy": {with(func(s *redis.Server) { s.Policy = "" }), redisEviction, ops.LevelWarning, "does not show"},
		"alone":          {sound, redisReplicas, ops.LevelOK, "no replicas"},
		"replicas":       {with(func(s *redis.Server) { s.Replicas = 2 }), redisReplicas, ops.LevelWarning, "min-replicas-to-write is 0"},
		"bounded":        {with(func(s *redis.Server) { s.Replicas, s.MinReplicas = 2, 1 }), redisReplicas, ops.LevelWarning, "a failover can lose"},
		"cluster":        {with(func(s *redis.Server) { s.Cluster = true }), redisReplicas, ops.LevelWarning, "asynchronous"},
		"a replica":      {with(func(s *redis.Server) { s.Role = "replica" }), redisServer, ops.LevelDanger, "nothing can be written"},
		"room":           {sound, redisMemory, ops.LevelOK, "more records fit"},
		"full":           {with(func(s *redis.Server) { s.UsedMemory = 1000 << 20 }), redisMemory, ops.LevelWarning, "when the rest is full"},
		"no limit":       {with(func(s *redis.Server) { s.MaxMemory = 0 }), redisMemory, ops.LevelWarning, "maxmemory is not set"},
	} {
		f := c.fact(c.s)
		if f.Level != c.level || !strings.Contains(f.Detail, c.says) || f.Level == ops.LevelDanger && f.Try == "" {
			t.Errorf("%s: %+v, want %s with %q", name, f, c.level, c.says)
		}
	}
}

// TestRedisStreamFacts is what doctor says of the stream of a queue.
func TestRedisStreamFacts(t *testing.T) {
	sound := func() redisStream {
		return redisStream{
			name: "{semel:0}:q:orders", visible: time.Minute, oldest: "5-0",
			info:    goredis.XInfoStream{Length: 4, EntriesAdded: 10, FirstEntry: goredis.XMessage{ID: "5-0"}},
			groups:  []goredis.XInfoGroup{{Name: redis.Group, Pending: 1, EntriesRead: 7}},
			workers: []goredis.XInfoConsumer{{Name: "semel-host-1-abc", Pending: 1}},
		}
	}
	for name, c := range map[string]struct {
		change       func(s *redisStream)
		level, check string
		says         string
	}{
		"sound":           {func(*redisStream) {}, "", "", ""},
		"no count":        {func(s *redisStream) { s.groups[0].EntriesRead, s.info.Length = 0, 2 }, "", "", ""},
		"another group":   {func(s *redisStream) { s.groups = append(s.groups, goredis.XInfoGroup{Name: "mails"}) }, ops.LevelDanger, "stream", `group "mails" also reads`},
		"trimmed":         {func(s *redisStream) { s.info.Length = 2 }, ops.LevelDanger, "trimming", "before they were handled: about 2"},
		"trimmed flight":  {func(s *redisStream) { s.info.FirstEntry.ID = "12-0" }, ops.LevelDanger, "trimming", "about 1"},
		"nothing is left": {func(s *redisStream) { s.info.Length = 0 }, ops.LevelDanger, "trimming", "about 4"},
		"not a worker": {
			func(s *redisStream) { s.workers = append(s.workers, goredis.XInfoConsumer{Name: "cron", Pending: 3}) },
			ops.LevelWarning, "consumers", `consumer "cron" of group semel is no worker of semel, and has 3 messages`,
		},
	} {
		s := sound()
		c.change(&s)
		facts := s.facts()
		if facts[0].Level != ops.LevelOK || !strings.Contains(facts[0].Detail, "visibility 1m") {
			t.Errorf("%s: the first fact is %+v", name, facts[0])
		}
		if c.level == "" {
			if len(facts) > 1 {
				t.Errorf("%s: %+v", name, facts[1:])
			}
			continue
		}
		if len(facts) != 2 || facts[1].Level != c.level || facts[1].Check != c.check || !strings.Contains(facts[1].Detail, c.says) || facts[1].Try == "" {
			t.Errorf("%s: %+v, want %s of %s with %q", name, facts[1:], c.level, c.check, c.says)
		}
	}
}

// TestExamineRedisQueue looks at a stream that somebody has trimmed.
func TestExamineRedisQueue(t *testing.T) {
	testserver.Need(t, "redis")
	url := testserver.Shared(t, "redis") + fmt.Sprintf("?prefix=open-%d&queue=orders", os.Getpid())
	set := New(Options{})
	q, err := set.Create(t.Context(), "queue", url, NewQueue{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := Redis("queue", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		keys, err := client.Keys(ctx, fmt.Sprintf("{open-%d*", os.Getpid())).Result()
		if err := errors.Join(err, client.Del(ctx, keys...).Err(), client.Close(), set.Close()); err != nil {
			t.Error(err)
		}
	})
	trimming := func() bool {
		t.Helper()
		facts, err := set.Examine(t.Context(), "queue", url)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(facts, func(f ops.Check) bool { return f.Check == "trimming" })
	}
	for range 3 {
		if err := q.(driver.Sender).Send(t.Context(), driver.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	ds, err := q.Receive(t.Context(), 2)
	if err == nil {
		_, err = q.Settle(t.Context(), driver.Settlement{Receipt: ds[0].Receipt}, driver.Settlement{Receipt: ds[1].Receipt, Action: driver.Retry})
	}
	if err != nil || trimming() {
		t.Errorf("a stream that nobody has trimmed: %v", err)
	}
	if err := client.XTrimMaxLen(t.Context(), q.(*redis.Queue).Stream(), 1).Err(); err != nil || !trimming() {
		t.Errorf("a stream that somebody has trimmed: %v", err)
	}
}

// TestExamineRedis looks at a server that loses what it confirms, with its password and without, and where there is none.
func TestExamineRedis(t *testing.T) {
	srv := testserver.Own(t, "redis", map[string]string{"appendonly": "no"})
	client, err := Redis("store", srv.URL())
	if err == nil {
		err = errors.Join(client.ConfigSet(t.Context(), "requirepass", "hushhush").Err(), client.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	opened := func() *Set {
		s := New(Options{})
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	if _, err := opened().Examine(t.Context(), "store", srv.URL()); err == nil || !strings.Contains(output.As(err).Hint, "REDISCLI_AUTH") {
		t.Errorf("without a password: %v", err)
	}
	t.Setenv("REDISCLI_AUTH", "hushhush")
	set := opened()
	facts, err := set.Examine(t.Context(), "store", srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	dangers := slices.DeleteFunc(facts, func(f ops.Check) bool { return f.Level != ops.LevelDanger })
	if len(dangers) != 1 || dangers[0].Check != "persistence" {
		t.Errorf("dangers: %+v", dangers)
	}
	if st, err := set.Store(t.Context(), srv.URL()); err != nil || st.Features().Durable {
		t.Errorf("the store: %v", err)
	}
	if _, from, to, err := Migrate(t.Context(), srv.URL()); from != 0 || to != 0 || err != nil {
		t.Errorf("migrate: %d to %d, %v", from, to, err)
	}
	if _, _, err := Schema(srv.URL()); err == nil || !strings.Contains(err.Error(), "nothing to create") {
		t.Errorf("schema: %v", err)
	}
	port, err := testserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	_, err = opened().Store(t.Context(), fmt.Sprint("redis://127.0.0.1:", port))
	if err == nil || output.As(err).Code != output.CodeUnreachable || !strings.Contains(output.As(err).Hint, "listens there") {
		t.Errorf("nobody is there: %v", err)
	}
}
