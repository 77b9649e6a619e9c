package nats

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/nats/natstest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

func send(t testing.TB, q *Queue, ids ...string) {
	t.Helper()
	ms := make([]driver.Message, len(ids))
	for i, id := range ids {
		ms[i] = driver.Message{ID: id, Body: []byte("body of " + id)}
	}
	if err := q.Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
}

// one waits for a message.
func one(t testing.TB, q *Queue) driver.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ds, err := q.Receive(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) == 1 {
			return ds[0]
		}
	}
}

func settle(t testing.TB, q *Queue, want driver.Outcome, s driver.Settlement) {
	t.Helper()
	if out, err := q.Settle(t.Context(), s); err != nil || out[0] != want {
		t.Errorf("%v: %v, %v, want %v", s.Action, out, err, want)
	}
}

func messages(t testing.TB, q *Queue) uint64 {
	t.Helper()
	s, err := q.js.Stream(t.Context(), q.stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// TestFM18_ServerAcceptsStaleReceipts pins what the deadline of receipts is for: the reply subject of a delivery still works
// when the message was delivered to another consumer.
func TestFM18_ServerAcceptsStaleReceipts(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		nc := natstest.Connect(t, url)
		for verb, left := range map[string]uint64{"+ACK": 0, "+TERM": 0, "-NAK": 1, "+WPI": 1} {
			q := fresh(t, nc, CreateOptions{Visibility: time.Hour})
			send(t, q, "m")
			old := one(t, q)
			settle(t, q, driver.Applied, driver.Settlement{Receipt: old.Receipt, Action: driver.Retry})
			holder := one(t, q)
			if _, err := nc.RequestWithContext(t.Context(), old.Receipt.(*receipt).reply, []byte(verb)); err != nil {
				t.Fatalf("%s: %v", verb, err)
			}
			if n := messages(t, q); n != left {
				t.Errorf("%s with a stale reply subject leaves %d messages, want %d", verb, n, left)
			}
			if verb == "-NAK" {
				if third := one(t, q); third.Count != 3 || holder.Count != 2 {
					t.Errorf("%s: the third delivery has count %d, the holder's %d", verb, third.Count, holder.Count)
				}
			}
		}
	})
}

// TestFM18_ExpiredReceipts: past the deadline Retry, Defer and Extend are Lost and the server is not asked; Ack is always sent.
func TestFM18_ExpiredReceipts(t *testing.T) {
	servers(t, func(t *testing.T, url string) {
		nc := natstest.Connect(t, url)
		var log bytes.Buffer
		q := fresh(t, nc, CreateOptions{Visibility: 500 * time.Millisecond, Options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
		send(t, q, "m")
		old := one(t, q)
		holder := one(t, q) // when AckWait has passed
		if holder.Count != 2 {
			t.Fatalf("the second delivery has count %d", holder.Count)
		}
		sent := nc.Stats().OutMsgs
		for _, a := range []driver.Action{driver.Retry, driver.Defer} {
			settle(t, q, driver.Lost, driver.Settlement{Receipt: old.Receipt, Action: a})
		}
		if out, err := q.Extend(t.Context(), q.Features().Visible, old.Receipt); err != nil || out[0] != driver.Lost {
			t.Errorf("extend: %v, %v", out, err)
		}
		if n := nc.Stats().OutMsgs - sent; n != 0 {
			t.Errorf("%d messages were sent with an expired receipt", n)
		}
		s := driver.Settlement{Receipt: old.Receipt, Action: driver.Ack}
		settle(t, q, driver.Applied, s)
		settle(t, q, driver.Applied, s)
		if n := messages(t, q); n != 0 {
			t.Errorf("%d messages are left", n)
		}
		if !strings.Contains(log.String(), "settle_stale") {
			t.Errorf("the log does not report a stale receipt: %s", log.String())
		}
	})
}

// TestFM18_RetryWithoutResponse: a Retry may have been applied although its response was lost, so it is not repeated.
func TestFM18_RetryWithoutResponse(t *testing.T) {
	direct := natstest.Start(t, natstest.Options{}).ClientURL()
	p, err := server.NewProxy(strings.TrimPrefix(direct, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	q := fresh(t, natstest.Connect(t, direct), CreateOptions{Visibility: time.Hour})
	mine, err := Open(t.Context(), natstest.Connect(t, "nats://"+p.Addr()), q.stream, Options{CallTimeout: 200 * time.Millisecond, Wait: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	send(t, q, "m")
	old := one(t, mine)
	p.Stall(server.ToClient)
	s := driver.Settlement{Receipt: old.Receipt, Action: driver.Retry}
	if out, err := mine.Settle(t.Context(), s); err == nil || out[0] != driver.Unknown {
		t.Fatalf("a settlement whose response is lost is %v, %v, want unknown", out, err)
	}
	holder := one(t, q)
	settle(t, mine, driver.Lost, s)
	settle(t, q, driver.Applied, driver.Settlement{Receipt: holder.Receipt, Action: driver.Retry})
}

// TestFM27_StoppedOnTheWay: a receive that took longer than its wait counts from its sending, and one that took longer than
// AckWait delivers nothing.
func TestFM27_StoppedOnTheWay(t *testing.T) {
	var lag time.Duration
	nc := natstest.Connect(t, natstest.Start(t, natstest.Options{}).ClientURL())
	q := fresh(t, nc, CreateOptions{Visibility: time.Hour})
	q.o.clock = func() time.Time { // it goes on during each receive
		now := time.Now().Add(lag)
		lag += 20 * time.Minute
		return now
	}
	send(t, q, "m")
	ds, err := q.Receive(t.Context(), 1)
	if err != nil || len(ds) != 1 {
		t.Fatalf("received %d, %v", len(ds), err)
	}
	if ds[0].Visible > 25*time.Minute {
		t.Errorf("a receive that took 20 minutes leaves %v of an hour", ds[0].Visible)
	}
	lag = 0
	settle(t, q, driver.Applied, driver.Settlement{Receipt: ds[0].Receipt})
	send(t, q, "m2")
	q.o.clock = func() time.Time {
		now := time.Now().Add(lag)
		lag += 2 * time.Hour
		return now
	}
	if ds, err := q.Receive(t.Context(), 1); err != nil || len(ds) != 0 {
		t.Errorf("a receive that took longer than AckWait returned %d deliveries, %v", len(ds), err)
	}
}
