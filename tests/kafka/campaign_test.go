package kafka

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/kafka"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
	"github.com/semel-dev/semel/tests/internal/kfake"
)

func TestMain(m *testing.M) {
	kfake.MainIfBroker()
	crew.MainIfWorker()
	os.Exit(m.Run())
}

const (
	workers = 4
	session = 2 * time.Second
)

// campaign is four workers on a topic with eight partitions.
type campaign struct {
	t      *testing.T
	url    string
	broker *kfake.Broker
	queue  *kafka.Queue
	fleet  []*crew.Worker
	rnd    *rand.Rand
}

// TestFM26_Campaign sends messages, a fifth of them duplicates, to four worker processes. They are killed, one is frozen beyond
// its session and one broker is killed, all while messages are in flight. Each key has one effect. A nightly run has 1,000,000
// messages.
func TestFM26_Campaign(t *testing.T) {
	n, kills, freezes, restarts := 20_000/semeltest.Sampled(2), 4, 1, 1
	if semeltest.Nightly() {
		n, kills, freezes, restarts = 1_000_000, 60, 6, 6
	}
	c := &campaign{t: t, url: server.Database(t), broker: kfake.Start(t), rnd: rand.New(rand.NewPCG(7, 26))}
	if err := crew.Prepare(t.Context(), c.url); err != nil {
		t.Fatal(err)
	}
	o := kafka.Options{Client: kfake.Client(c.broker.Brokers()), Logger: slog.New(slog.DiscardHandler)}
	if err := kafka.Create(t.Context(), crew.Queue, kafka.CreateOptions{Options: o, Partitions: 8}); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.queue, err = kafka.Open(t.Context(), crew.Queue, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.queue.Close() })
	for range workers {
		c.fleet = append(c.fleet, c.spawn())
	}
	begin := time.Now()
	sent := make(chan int, 1)
	go func() { sent <- c.send(n) }()
	faults := make([]func(), 0, kills+freezes+restarts)
	for range kills {
		faults = append(faults, c.kill)
	}
	for range freezes {
		faults = append(faults, c.freeze)
	}
	for range restarts {
		faults = append(faults, c.broker.Restart)
	}
	c.rnd.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	expected := n * 4 / 5
	for i, fault := range faults {
		c.effects((i + 1) * expected / (len(faults) + 2))
		fault()
	}
	keys := <-sent
	c.effects(keys)
	c.drained()
	for _, w := range c.fleet {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	}
	v, err := crew.Judge(t.Context(), c.url, keys)
	if err != nil {
		t.Fatal(err)
	}
	if !v.Held() {
		t.Errorf("not held: %v", v)
	}
	took := time.Since(begin)
	t.Logf("%d messages, %d kills, %d freezes, %d restarts of the broker in %.1f s (%.0f/s): %v", n, kills, freezes, restarts,
		took.Seconds(), float64(n)/took.Seconds(), v)
}

func (c *campaign) spawn() *crew.Worker {
	c.t.Helper()
	w, err := crew.Spawn(crew.Task{
		URL: c.url, Queue: crew.Queue, Brokers: c.broker.Brokers(), Mode: crew.Queued, Visibility: session, Concurrency: 64, Committers: 2,
		Batch: 500,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(w.Kill)
	return w
}

// send sends n messages and returns how many keys they have.
func (c *campaign) send(n int) int {
	ms := crew.NewMessages(7, 0.2)
	for sent := 0; sent < n; sent += 500 {
		if _, err := crew.Send(c.t.Context(), c.queue, ms.Next(min(500, n-sent))); err != nil {
			c.t.Error(err)
			return ms.Keys
		}
	}
	return ms.Keys
}

// kill kills a worker and starts another one.
func (c *campaign) kill() {
	i := c.rnd.IntN(len(c.fleet))
	c.fleet[i].Kill()
	c.fleet[i] = c.spawn()
}

// freeze stops a worker until the group has expelled it and its partitions make progress elsewhere.
func (c *campaign) freeze() {
	w := c.fleet[c.rnd.IntN(len(c.fleet))]
	if err := w.Freeze(); err != nil {
		c.t.Error(err)
	}
	crew.Sleep(c.t.Context(), session+session/2)
	if err := w.Thaw(); err != nil {
		c.t.Error(err)
	}
}

// effects waits until the ledger has n rows.
func (c *campaign) effects(n int) {
	c.t.Helper()
	c.wait("effects", func(ctx context.Context) (int, bool) {
		out, err := server.SQL(ctx, c.url, "SELECT count(*) FROM ledger")
		rows, _ := strconv.Atoi(strings.TrimSpace(out))
		return rows, err == nil && rows >= n
	})
}

// drained waits until the group has committed the end of every partition.
func (c *campaign) drained() {
	c.t.Helper()
	c.wait("messages left", func(ctx context.Context) (int, bool) {
		s, err := c.queue.Stats(ctx)
		return -int(s.Visible), err == nil && s.Empty()
	})
}

// wait waits until done reports true. It gives up when its number has not changed for two minutes.
func (c *campaign) wait(what string, done func(ctx context.Context) (int, bool)) {
	c.t.Helper()
	last, since := 0, time.Now()
	for {
		n, ok := done(c.t.Context())
		if ok {
			return
		}
		if n != last {
			last, since = n, time.Now()
		}
		for _, w := range c.fleet {
			if err := w.Err(); err != nil {
				c.t.Fatal(err)
			}
		}
		if time.Since(since) > 2*time.Minute {
			c.t.Fatalf("%s: %d, and nothing moves", what, n)
		}
		crew.Sleep(c.t.Context(), 50*time.Millisecond)
	}
}
