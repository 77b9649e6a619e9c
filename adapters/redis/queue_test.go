package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

var (
	_ driver.Queue           = (*Queue)(nil)
	_ driver.Sender          = (*Queue)(nil)
	_ driver.QueueInspector  = (*Queue)(nil)
	_ driver.Purger          = (*Queue)(nil)
	_ driver.DeadLetterQueue = (*Queue)(nil)
	_ driver.DeadLetterPager = (*Queue)(nil)
)

// queueOf makes and opens a queue.
func queueOf(t testing.TB, s *Store, visible time.Duration) *Queue {
	t.Helper()
	if err := s.CreateQueue(t.Context(), "orders", visible); err != nil {
		t.Fatal(err)
	}
	q, err := s.Queue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// another is the same queue of another process, with connections of its own.
func another(t testing.TB, c goredis.UniversalClient, q *Queue) *Queue {
	t.Helper()
	s, err := Open(t.Context(), c, Options{Prefix: q.s.prefix})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Queue(t.Context(), q.name)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func TestQueueSuite(t *testing.T) { testQueue(t, "redis") }

func TestS1_45_QueueSuiteOnValkey(t *testing.T) { testQueue(t, "valkey") }

func testQueue(t *testing.T, kind string) {
	url := server.Shared(t, kind)
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		visible := semeltest.Longer(t, time.Second)
		q := queueOf(t, openFor(t, connect(t, url), Options{}), visible)
		return semeltest.QueueSetup{
			Queue: q, Visibility: visible, MaxBody: 4 << 20,
			Restart: func(t testing.TB) driver.Queue { return another(t, connect(t, url), q) },
		}
	})
}
