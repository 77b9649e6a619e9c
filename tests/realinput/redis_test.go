package realinput

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// queues are those whose messages find their records in Redis.
var queues = map[string]func(dir string) string{
	"SQLite": func(dir string) string { return "sqlite://" + filepath.Join(dir, "hooks.db") + "?queue=hooks" },
}

// TestS1_45_RecordsInRedis: the queue is in one place and the records are in a Redis of its own, which keeps what it
// confirmed. Two workers are killed while they work, and the Redis as well. Every payload has one effect, none is lost.
func TestS1_45_RecordsInRedis(t *testing.T) {
	lines := payloads(t)
	if !semeltest.Nightly() {
		lines = lines[:100]
	}
	server.Need(t, "redis")
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			redis, err := server.Redis(t.Context(), server.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := redis.Close(); err != nil {
					t.Error(err)
				}
			})
			s := newSceneOn(t, lines, queue, redis.URL()+"?prefix=hooks")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			h := s.keyed()
			first, second, third := s.start(ctx, h), s.start(ctx, h), s.start(ctx, h)
			s.await(ctx, s.files, s.distinct/5)
			s.kill(first)
			fourth := s.start(ctx, h)
			s.await(ctx, s.files, 2*s.distinct/5)
			if err := redis.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := redis.Start(ctx); err != nil {
				t.Fatal(err)
			}
			s.await(ctx, s.files, 3*s.distinct/5)
			s.kill(second)
			s.ended(third, fourth)
			s.settled()
			s.once()
		})
	}
}
