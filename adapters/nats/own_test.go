package nats

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/nats/natstest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/driver/redeliver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// count is how many messages of n are short of a nightly run.
func count(nightly, otherwise int) int {
	if semeltest.Nightly() {
		return nightly
	}
	return otherwise
}

// TestFM11_KillAfterSend: what Send returned for survives that the server's process is killed.
func TestFM11_KillAfterSend(t *testing.T) {
	s := server.Own(t, "nats", nil)
	q := fresh(t, natstest.Connect(t, s.URL()), CreateOptions{Options: Options{CallTimeout: time.Minute}})
	sent := 0
	for range count(10, 2) {
		ms := make([]driver.Message, 500)
		for i := range ms {
			ms[i] = driver.Message{ID: fmt.Sprint("m-", sent), Body: []byte("x")}
			sent++
		}
		if err := q.Send(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
		server.Restart(t, s)
	}
	got := map[string]bool{}
	receiveUntil(t, q, func() bool { return len(got) == sent }, func(d driver.Delivery) { got[d.ID] = true })
}

// TestFM11_PowerCut: the machine fails before the server has synced. The messages that it had acknowledged are gone, as the
// queue had reported. Messages that are sent afterwards arrive. A server of 2.9 gives them the numbers of the lost ones, and
// skips those that its consumer remembers as delivered, if it had synced that (2.15 sets the consumer back).
func TestFM11_PowerCut(t *testing.T) {
	s := server.Own(t, "nats", nil)
	nc := natstest.Connect(t, s.URL())
	q := fresh(t, nc, CreateOptions{Visibility: 10 * time.Second, Options: Options{CallTimeout: 20 * time.Second}})
	if f := q.Features(); f.Durable || len(f.Caveats) == 0 {
		t.Errorf("the queue claims to be durable: %+v", f)
	}
	const n, handled = 100, 80
	for i := range n {
		send(t, q, fmt.Sprint("m-", i))
	}
	for range handled {
		settle(t, q, driver.Applied, driver.Settlement{Receipt: one(t, q).Receipt})
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	cutUnsynced(t, s.Dir(), q.stream)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, err := nc.RTT(); err != nil && t.Context().Err() == nil; _, err = nc.RTT() {
		_ = redeliver.Wait(t.Context(), 10*time.Millisecond, nil) // a request into the broken connection would be waited for
	}
	stream, consumer, err := q.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := stream.CachedInfo().State.LastSeq
	if last >= n {
		t.Error("nothing is lost: the caveat of the queue is wrong, or this test cuts nothing")
	}
	skipped := int(max(consumer.Delivered.Stream, last) - last)
	t.Logf("%d of %d accepted messages are lost with what was not synced, and %d new ones are skipped", n-last, n, skipped)
	later := map[string]bool{}
	for i := range n {
		send(t, q, fmt.Sprint("later-", i))
	}
	receiveUntil(t, q, func() bool { return len(later) >= n-skipped }, func(d driver.Delivery) {
		if strings.HasPrefix(d.ID, "later-") {
			later[d.ID] = true
		}
	})
}

// cutUnsynced leaves half of a stream's newest file: the rest was in the cache of an operating system that is gone.
func cutUnsynced(t *testing.T, dir, stream string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".blk" || filepath.Base(filepath.Dir(filepath.Dir(path))) != stream {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() == 0 {
			return err
		}
		found++
		return os.Truncate(path, info.Size()/2)
	})
	if err != nil || found == 0 {
		t.Fatalf("cut %d files of stream %s: %v", found, stream, err)
	}
}

// receiveUntil acknowledges messages until all have arrived.
func receiveUntil(t *testing.T, q *Queue, all func() bool, each func(driver.Delivery)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if all() {
			return
		}
		ds, err := q.Receive(ctx, 100)
		if err != nil { // the server was away
			_ = redeliver.Wait(ctx, 10*time.Millisecond, nil)
			continue
		}
		for _, d := range ds {
			each(d)
			_, _ = q.Settle(ctx, driver.Settlement{Receipt: d.Receipt})
		}
	}
	t.Fatal("messages that the queue has accepted do not arrive")
}

// TestFM35_ServerKilledInFlight: the server is killed while the engine has messages in flight. Their acks are unknown and
// repeated, what was delivered twice is replayed, and each message has its effect once.
func TestFM35_ServerKilledInFlight(t *testing.T) {
	s := server.Own(t, "nats", nil)
	n, kills := count(5000, 500), count(10, 2)
	nc := natstest.Connect(t, s.URL())
	q := fresh(t, nc, CreateOptions{Visibility: 2 * time.Second, Options: Options{Wait: time.Second, CallTimeout: 2 * time.Second,
		Logger: slog.New(slog.DiscardHandler)}})
	ms := make([]driver.Message, n)
	for i := range ms {
		ms[i] = driver.Message{ID: fmt.Sprint("m-", i)}
	}
	if err := q.Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	effects, reached, done := map[string]int{}, make(chan int, kills+1), make(chan struct{})
	c, err := semel.New(semel.Config{
		Queue: deadletter.With(q, memory.NewQueue("dead letters")), Store: memory.NewStore(), Consumer: "c", Grace: time.Minute, Logger: slog.New(slog.DiscardHandler),
		Key: func(m *semel.Message) (string, error) { return m.ID, nil },
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			if effects[a.Key.Raw]++; effects[a.Key.Raw] == 1 && len(effects)%(n/(kills+1)) == 0 && len(effects) < n {
				reached <- len(effects)
			}
			if len(effects) == n {
				select {
				case <-done:
				default:
					close(done)
				}
			}
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for range kills {
		<-reached
		server.Restart(t, s)
	}
	<-done
	for st, err := q.Stats(ctx); err != nil || !st.Empty(); st, err = q.Stats(ctx) {
		_ = redeliver.Wait(ctx, 20*time.Millisecond, nil)
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
	t.Logf("%d messages, %d kills: %+v", n, kills, c.Summary())
}
