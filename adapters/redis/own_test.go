package redis

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// counter counts the runs of each key.
type counter struct {
	mu   sync.Mutex
	runs map[string]int
	// each is called with the number of different keys after the first run of one.
	each func(keys int)
}

func (c *counter) Handle(_ context.Context, a *semel.Attempt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[a.Key.Raw]++; c.runs[a.Key.Raw] == 1 {
		c.each(len(c.runs))
	}
	return nil
}

// consume runs a consumer of a queue and its store until the test calls stop, which fails the test unless every key ran once.
func consume(t *testing.T, q *Queue, h *counter) (stop func()) {
	t.Helper()
	h.runs = map[string]int{}
	c, err := semel.New(semel.Config{
		Queue: q, Store: q.s, Consumer: "c", Grace: time.Minute, Logger: slog.New(slog.DiscardHandler), Handler: semel.HandlerFunc(h.Handle),
		Key: func(m *semel.Message) (string, error) { return m.ID, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		t.Helper()
		for s, err := q.Stats(ctx); err != nil || !s.Empty(); s, err = q.Stats(ctx) {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for k, n := range h.runs {
			if n != 1 {
				t.Errorf("message %s ran %d times", k, n)
			}
		}
		t.Logf("%+v", c.Summary())
	}
}

// TestFM35_ServerKilledInFlight: the server is killed while messages are in flight whose acks commit with their records. After
// each restart the writes are repeated, and every message takes effect once.
func TestFM35_ServerKilledInFlight(t *testing.T) {
	n, kills := 400, 2
	if semeltest.Nightly() {
		n, kills = 5000, 10
	}
	srv := server.Own(t, "redis", nil)
	q := queueOf(t, openFor(t, connect(t, srv.URL()), Options{}), 10*time.Second)
	send(t, q, n)
	reached, all := make(chan struct{}, kills), make(chan struct{})
	stop := consume(t, q, &counter{each: func(keys int) {
		if keys == n {
			close(all)
		} else if keys%(n/(kills+1)) == 0 && keys/(n/(kills+1)) <= kills {
			reached <- struct{}{}
		}
	}})
	for range kills {
		<-reached
		server.Restart(t, srv)
	}
	<-all
	stop()
}

// TestFM20_LostResponses: the server settles a delivery, with its record or without, and the response is lost. A message that
// was settled is gone, and its record is completed.
func TestFM20_LostResponses(t *testing.T) {
	url := server.Shared(t, "redis")
	p := proxy(t, strings.TrimSuffix(strings.TrimPrefix(url, "redis://"), "/0"))
	c := goredis.NewClient(&goredis.Options{Addr: p.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	q := queueOf(t, openFor(t, c, Options{}), time.Minute)
	send(t, q, 5)
	ds := receive(t, q, 5)
	if o := settleOne(t, q, driver.Settlement{Receipt: ds[4].Receipt}); o != driver.Applied { // the scripts are loaded
		t.Fatal(o)
	}
	g := verdict(t, q.s, keyOf(1))
	w := driver.Work{
		Finish: driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: time.Hour}, Ack: &driver.Settlement{Receipt: ds[0].Receipt},
	}
	lost := 0
	lose := func(what string, call func() ([]driver.Outcome, error), want driver.Outcome) {
		t.Helper()
		p.LoseResponses(server.ToServer, "evalsha", 1)
		if o, err := call(); err == nil {
			t.Fatalf("%s without a response returns %v", what, o)
		}
		lost++
		if o, err := call(); err != nil || o[0] != want {
			t.Errorf("%s again returns %v, %v, want %v", what, o, err, want)
		}
	}
	lose("a commit", func() ([]driver.Outcome, error) { return q.s.Commit(t.Context(), w) }, driver.Applied)
	lose("an extension", func() ([]driver.Outcome, error) { return q.Extend(t.Context(), 0, ds[1].Receipt) }, driver.Applied)
	for i, a := range []driver.Action{driver.Ack, driver.Retry, driver.Dead} {
		s := driver.Settlement{Receipt: ds[i+1].Receipt, Action: a, After: time.Hour, DeadLetter: &driver.DeadLetter{ID: fmt.Sprint(i), Message: ds[i+1].Message}}
		lose(a.String(), func() ([]driver.Outcome, error) { return q.Settle(t.Context(), s) }, driver.Lost)
	}
	if s, err := q.Stats(t.Context()); err != nil || s.Visible != 0 || s.InFlight != 0 || s.Delayed != 1 || s.DeadLetters != 1 {
		t.Errorf("the queue has %+v, %v", s, err)
	}
	if g := verdict(t, q.s, keyOf(1)); g.Verdict != driver.Replay {
		t.Errorf("the record of the commit: %v", g.Verdict)
	}
	if p.Lost() != lost {
		t.Errorf("%d responses were lost, not %d: the test shows nothing", p.Lost(), lost)
	}
}

// TestFM61_JoinedDeadLetter: a run that failed for good writes its record and its dead letter, and removes its message, in one
// script; a failed run that is tried again delays its message with its record.
func TestFM61_JoinedDeadLetter(t *testing.T) {
	q := queueOf(t, openFor(t, shared(t), Options{}), time.Minute)
	send(t, q, 2)
	ds := receive(t, q, 2)
	dead, again := verdict(t, q.s, keyOf(1)), verdict(t, q.s, keyOf(2))
	o, err := q.s.Commit(t.Context(),
		driver.Work{
			Finish: driver.Finish{Hold: dead.Hold, Final: driver.Fail, Keep: time.Hour},
			Ack:    &driver.Settlement{Receipt: ds[0].Receipt, Action: driver.Dead, DeadLetter: &driver.DeadLetter{ID: "l", Key: keyOf(1), Message: ds[0].Message}},
		},
		driver.Work{
			Finish: driver.Finish{Hold: again.Hold, Final: driver.Release, Keep: time.Hour},
			Ack:    &driver.Settlement{Receipt: ds[1].Receipt, Action: driver.Retry, After: time.Millisecond},
		})
	if err != nil || o[0] != driver.Applied || o[1] != driver.Applied {
		t.Fatal(o, err)
	}
	if l, found, err := q.DeadLetter(t.Context(), "l"); err != nil || !found || l.Key != keyOf(1) || string(l.Message.Body) != "x" {
		t.Errorf("the dead letter: %+v, %v, %v", l, found, err)
	}
	if d := receive(t, q, 1)[0]; d.ID != ds[1].ID || d.Count != 2 {
		t.Errorf("received %+v", d)
	}
	if s, err := q.Stats(t.Context()); err != nil || s.Visible+s.Delayed != 0 || s.InFlight != 1 {
		t.Errorf("stats: %+v, %v", s, err)
	}
}
