package nats

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/semel-dev/semel/adapters/nats/natstest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

var names atomic.Int64

// fresh makes a queue on a stream of its own, which is removed when the test ends.
func fresh(t testing.TB, nc *nats.Conn, o CreateOptions) *Queue {
	t.Helper()
	stream := fmt.Sprintf("SEMEL_TEST_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), names.Add(1))
	if err := Create(t.Context(), nc, stream, o); err != nil {
		t.Fatal(err)
	}
	q, err := Open(t.Context(), nc, stream, o.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := q.js.DeleteStream(ctx, stream); err != nil {
			t.Logf("remove stream %s: %v", stream, err)
		}
	})
	return q
}

// reopen is the same queue for another process, on a connection of its own.
func reopen(t testing.TB, url string, q *Queue) *Queue {
	t.Helper()
	again, err := Open(t.Context(), natstest.Connect(t, url), q.stream, Options{Consumer: q.o.Consumer, Wait: q.o.Wait})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// servers runs a test on the server of this package and on the one of the machine, which may be another version.
func servers(t *testing.T, f func(t *testing.T, url string)) {
	t.Run("embedded", func(t *testing.T) {
		f(t, natstest.Start(t, natstest.Options{}).ClientURL())
	})
	t.Run("shared", func(t *testing.T) {
		f(t, sharedURL(t))
	})
}

func TestQueue(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
			nc, visible := natstest.Connect(t, url), semeltest.Longer(t, time.Second)
			q := fresh(t, natstest.Connect(t, url), CreateOptions{Visibility: visible})
			mine, err := Open(t.Context(), nc, q.stream, Options{})
			if err != nil {
				t.Fatal(err)
			}
			return semeltest.QueueSetup{
				Queue: mine, Visibility: visible, OwnDelays: true, MaxBody: 900 << 10,
				Restart: func(t testing.TB) driver.Queue {
					nc.Close()
					return reopen(t, url, q)
				},
			}
		})
	})
}

func TestPair(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
			visible := semeltest.Longer(t, 2*time.Second)
			q := fresh(t, natstest.Connect(t, url), CreateOptions{Visibility: visible})
			return semeltest.PairSetup{Queue: deadletter.With(q, memory.NewQueue("dead letters")), Store: memory.NewStore(), Visibility: visible}
		})
	})
}

// sharedURL is the server of the machine, or an installed one that is started.
func sharedURL(t testing.TB) string {
	t.Helper()
	return server.Shared(t, "nats")
}
