package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// own starts a node of its own, which may be killed. A node starts slowly, so these tests are nightly.
func own(t *testing.T, settings map[string]string) *server.Server {
	t.Helper()
	if !semeltest.Nightly() {
		t.Skip("nightly: it starts a node of its own")
	}
	return server.Own(t, "rabbitmq", settings)
}

// settled declares the queues, and restarts the node in order: a quorum queue of RabbitMQ 3.10 that was declared a second before
// the node is killed may have no leader afterwards.
func settled(t *testing.T, s *server.Server, q *Queue) {
	t.Helper()
	for _, b := range buckets {
		if err := q.declareDelay(t.Context(), &q.in, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(server.Fast); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, err := q.Stats(t.Context()); err != nil && t.Context().Err() == nil; _, err = q.Stats(t.Context()) {
		<-time.After(100 * time.Millisecond)
	}
}

// reopened opens a queue of a node that was just started: its queues take some time.
func reopened(t *testing.T, dial Dial, name string, o Options) *Queue {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		q, err := Open(ctx, dial, name, o)
		if err == nil {
			t.Cleanup(func() { _ = q.Close() })
			return q
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestFM35_NodeKilledInFlight: the node is killed while the engine has messages in flight, and while others wait in delay queues.
// Their acks are lost or unknown, what was delivered twice is replayed, and each message has its effect once.
func TestFM35_NodeKilledInFlight(t *testing.T) {
	s := own(t, nil)
	dial := dialer(s.URL())
	quiet := slog.New(slog.DiscardHandler)
	name := fresh(t, dial, CreateOptions{})
	q := openQueue(t, dial, name, Options{Prefetch: 1000, Logger: quiet, CallTimeout: 20 * time.Second})
	const n, delayed = 3000, 50
	settled(t, s, q)
	fill(t, q, n)
	ms := make([]driver.Message, delayed)
	for i := range ms {
		ms[i] = driver.Message{ID: fmt.Sprint("delayed-", i), Delay: 12 * time.Second}
	}
	if err := q.Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	effects, half, done := map[string]int{}, make(chan struct{}), make(chan struct{})
	c, err := semel.New(semel.Config{
		Queue: deadletter.With(q, memory.NewQueue("dead letters")), Store: memory.NewStore(), Consumer: "c", Grace: time.Minute, Logger: quiet,
		Key: func(m *semel.Message) (string, error) { return m.ID, nil },
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			if effects[a.Key.Raw]++; effects[a.Key.Raw] > 1 {
				return nil
			}
			switch len(effects) {
			case n / 2:
				close(half)
			case n + delayed:
				close(done)
			}
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	<-half
	server.Restart(t, s)
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		mu.Lock()
		t.Errorf("%d of %d messages arrived", len(effects), n+delayed)
		mu.Unlock()
	}
	for st, err := q.Stats(ctx); (err != nil || !st.Empty()) && ctx.Err() == nil; st, err = q.Stats(ctx) {
		<-time.After(50 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for k, e := range effects {
		if e != 1 {
			t.Errorf("message %s has %d effects", k, e)
		}
	}
	t.Logf("%+v", c.Summary())
}

// TestFM11_KillAfterSend: what Send returned for survives that the node is killed, also in a delay queue, and on a classic queue.
func TestFM11_KillAfterSend(t *testing.T) {
	s := own(t, nil)
	dial := dialer(s.URL())
	both(t, func(t *testing.T, o CreateOptions) {
		name := fresh(t, dial, o)
		q := openQueue(t, dial, name, Options{})
		settled(t, s, q)
		fill(t, q, 500)
		if err := q.Send(t.Context(), driver.Message{ID: "later", Delay: 11 * time.Second}); err != nil {
			t.Fatal(err)
		}
		server.Restart(t, s)
		if n := empty(t, reopened(t, dial, name, Options{Wait: time.Minute}), 501); n != 501 {
			t.Errorf("%d of 501 confirmed messages are left", n)
		}
	})
}

// TestFM33_ServerLacksMemory: while the server lacks memory it accepts no messages. Send ends with its context, and acks go on.
func TestFM33_ServerLacksMemory(t *testing.T) {
	s := own(t, map[string]string{"vm_memory_high_watermark.absolute": "1MB"})
	dial := dialer(s.URL())
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{Wait: 200 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	ms := make([]driver.Message, 200)
	for i := range ms {
		ms[i] = driver.Message{Body: make([]byte, 100<<10)}
	}
	if err := q.Send(ctx, ms...); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("send to a server without memory returned %v: this test takes no memory", err)
	}
	again, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := q.Send(again, driver.Message{ID: "m"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the next send returned %v", err)
	}
	if _, err := q.Receive(t.Context(), 1); err != nil {
		t.Errorf("receive: %v", err)
	}
	if _, err := q.Stats(t.Context()); err != nil {
		t.Errorf("stats: %v", err)
	}
}
