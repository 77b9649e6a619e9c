package rabbitmq

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

var names atomic.Int64

// shared is the server of the machine, or an installed one that is started.
func shared(t testing.TB) Dial {
	t.Helper()
	return dialer(server.Shared(t, "rabbitmq"))
}

func dialer(url string) Dial { return func() (*amqp.Connection, error) { return amqp.Dial(url) } }

// fresh declares a queue, which is deleted when the test ends.
func fresh(t testing.TB, dial Dial, o CreateOptions) string {
	t.Helper()
	name := fmt.Sprintf("semel-test-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), names.Add(1))
	if err := Create(t.Context(), dial, name, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Delete(context.Background(), dial, name); err != nil {
			t.Logf("delete queue %s: %v", name, err)
		}
	})
	return name
}

// open opens a queue, which is closed when the test ends.
func openQueue(t testing.TB, dial Dial, name string, o Options) *Queue {
	t.Helper()
	q, err := Open(t.Context(), dial, name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// both runs a test on a quorum queue and on a classic one.
func both(t *testing.T, f func(t *testing.T, o CreateOptions)) {
	t.Run("quorum", func(t *testing.T) { f(t, CreateOptions{}) })
	t.Run("classic", func(t *testing.T) { f(t, CreateOptions{Classic: true}) })
}

func TestQueue(t *testing.T) {
	dial := shared(t)
	both(t, func(t *testing.T, o CreateOptions) {
		semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
			name, box := fresh(t, dial, o), memory.NewQueue("dead letters")
			q := openQueue(t, dial, name, Options{})
			return semeltest.QueueSetup{
				Queue: deadletter.With(q, box), OwnDelays: true,
				Restart: func(t testing.TB) driver.Queue {
					cut(q)
					return deadletter.With(openQueue(t, dial, name, Options{}), box)
				},
			}
		})
	})
}

// cut ends the connections of a queue as the end of its process does, and lets it make no others.
func cut(q *Queue) {
	for _, l := range []*link{&q.in, &q.out.link} {
		l.mu.Lock()
		l.closed = true
		if l.conn != nil {
			_ = l.conn.Close()
		}
		l.mu.Unlock()
	}
}

func TestPair(t *testing.T) {
	dial := shared(t)
	both(t, func(t *testing.T, o CreateOptions) {
		semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
			q := openQueue(t, dial, fresh(t, dial, o), Options{})
			return semeltest.PairSetup{Queue: deadletter.With(q, memory.NewQueue("dead letters")), Store: memory.NewStore()}
		})
	})
}
