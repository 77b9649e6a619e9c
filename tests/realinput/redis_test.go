package realinput

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest/server"
)

// queues are those whose messages find their records in Redis, whose URL they get.
var queues = map[string]func(t *testing.T, redis string) func(dir string) string{
	"SQLite": func(*testing.T, string) func(dir string) string {
		return func(dir string) string { return "sqlite://" + filepath.Join(dir, "hooks.db") + "?queue=hooks" }
	},
	"NATS": func(t *testing.T, _ string) func(dir string) string { return natsQueue(t) },
	"the same Redis": func(t *testing.T, redis string) func(dir string) string {
		return created(t, redis+"&queue=hooks")
	},
}

// natsQueue makes a stream on a NATS server of its own.
func natsQueue(t *testing.T) func(dir string) string {
	return created(t, server.Own(t, "nats", nil).URL()+"?queue=HOOKS&wait=1s")
}

// created makes a queue.
func created(t *testing.T, url string) func(dir string) string {
	t.Helper()
	semel, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(semel, "queue", "create", "--queue", url, "--default-visibility", "4s").CombinedOutput(); err != nil {
		t.Fatalf("make the queue: %v: %s", err, out)
	}
	return func(string) string { return url }
}

// TestS1_45_RecordsInRedis: the queue is in one place and the records are in a Redis of its own, which keeps what it
// confirmed. Two workers are killed while they work, and the Redis as well. Every payload has one effect, none is lost.
func TestS1_45_RecordsInRedis(t *testing.T) {
	lines := payloads(t)
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			redis := server.Own(t, "redis", nil)
			store := redis.URL() + "?prefix=hooks"
			s := newFixtureOn(t, lines, queue(t, store), store)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			h := s.keyed()
			first, second, third := s.start(ctx, h), s.start(ctx, h), s.start(ctx, h)
			s.await(ctx, s.files, s.distinct/5)
			s.kill(first)
			fourth := s.start(ctx, h)
			s.await(ctx, s.files, 2*s.distinct/5)
			s.started(ctx, third, fourth)
			server.Restart(t, redis)
			s.await(ctx, s.files, 3*s.distinct/5)
			s.kill(second)
			s.ended(third, fourth)
			s.settled()
			s.once()
		})
	}
}
