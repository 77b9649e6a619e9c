package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
)

// one waits for a message.
func one(t testing.TB, q driver.Queue) driver.Delivery {
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

func settle(t testing.TB, q driver.Queue, want driver.Outcome, s driver.Settlement) {
	t.Helper()
	if out, err := q.Settle(t.Context(), s); err != nil || out[0] != want {
		t.Errorf("%v: %v, %v, want %v", s.Action, out, err, want)
	}
}

// fill sends n messages.
func fill(t testing.TB, q *Queue, n int) {
	t.Helper()
	ms := make([]driver.Message, n)
	for i := range ms {
		ms[i] = driver.Message{ID: fmt.Sprint("m-", i), Body: []byte("x")}
	}
	if err := q.Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
}

// empty receives and acks until n different messages have come, or until none has come for the wait of the queue.
func empty(t testing.TB, q *Queue, n int) int {
	t.Helper()
	got := map[string]bool{}
	for len(got) < n {
		ds, err := q.Receive(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) == 0 {
			break
		}
		for _, d := range ds {
			got[d.ID] = true
			settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt})
		}
	}
	return len(got)
}

// TestFM17_DeliveryLimitDrill: workers connect, prefetch and disconnect without a handler run. A queue with a delivery limit loses
// messages by that. A queue that Create declares loses nothing.
func TestFM17_DeliveryLimitDrill(t *testing.T) {
	dial := shared(t)
	drill := func(name string, n, prefetch, reconnects int, wait time.Duration) int {
		fill(t, openQueue(t, dial, name, Options{}), n)
		for range reconnects {
			q := openQueue(t, dial, name, Options{Prefetch: prefetch})
			one(t, q)
			cut(q)
		}
		return empty(t, openQueue(t, dial, name, Options{Wait: wait}), n)
	}
	limited := declare(t, dial, true, false, map[string]any{"x-queue-type": "quorum", "x-delivery-limit": 3})
	if got := drill(limited, 100, 50, 5, 2*time.Second); got == 100 {
		t.Error("a queue with a delivery limit of 3 lost nothing: the caveat of the queue is wrong, or this drill disconnects nothing")
	} else {
		t.Logf("%d of 100 messages are lost with a delivery limit", 100-got)
	}
	if got := drill(fresh(t, dial, CreateOptions{}), 100, 0, 40, time.Minute); got != 100 {
		t.Errorf("%d of 100 messages are left after 40 reconnects", got)
	}
}

// TestFM17_CountsOfDelayed: the count goes on when a message is returned, held, or delayed by a copy.
func TestFM17_CountsOfDelayed(t *testing.T) {
	dial := shared(t)
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{Prefetch: 1})
	fill(t, q, 1)
	for i, after := range []time.Duration{0, 10 * time.Millisecond} {
		d := one(t, q)
		if d.Count != i+1 {
			t.Errorf("delivery %d has count %d", i+1, d.Count)
		}
		settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry, After: after})
	}
	d := one(t, q)
	copied := q.delayed(d.Receipt.(*receipt).m, time.Now())
	if copied.msg.Headers[headerCount] != int64(3) {
		t.Errorf("a copy carries count %v, want 3", copied.msg.Headers[headerCount])
	}
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt})
}

// TestFM17_LongDelays: a message whose delay is too long to hold it is delayed by a copy, and another one is delivered meanwhile
// although the prefetch is 1.
func TestFM17_LongDelays(t *testing.T) {
	dial := shared(t)
	name := fresh(t, dial, CreateOptions{})
	q := openQueue(t, dial, name, Options{Prefetch: 1, Logger: nil})
	fill(t, q, 1)
	d := one(t, q)
	q.mu.Lock()
	q.held.Put(time.Now().Add(time.Hour), &message{s: d.Receipt.(*receipt).m.s}) // half of the prefetch is held
	q.mu.Unlock()
	const delay = 3 * time.Second
	began, first := time.Now(), ""
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry, After: delay})
	settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry, After: delay})
	settle(t, q, driver.Lost, driver.Settlement{Receipt: d.Receipt, Action: driver.Ack})
	// A message that comes from its delay queue while Stats looks is counted twice, so the count may be 3 once.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for s, err := q.Stats(ctx); err != nil || s.Delayed != 2 || s.InFlight != 0; s, err = q.Stats(ctx) {
		if ctx.Err() != nil {
			t.Fatalf("stats %+v, %v", s, err)
		}
	}
	if err := q.Send(t.Context(), driver.Message{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	sent := time.Since(began) // a machine that stalls for longer proves nothing
	for range 2 {
		d := one(t, q)
		if waited := time.Since(began); d.ID == "m-0" && (d.Count != 2 || waited < delay) {
			t.Errorf("received %q after %v: %+v", d.ID, waited, d)
		}
		if first == "" {
			first = d.ID
		}
		settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt})
	}
	if first != "other" && sent < delay {
		t.Errorf("received %q first", first)
	}
	if n := empty(t, openQueue(t, dial, name, Options{Wait: 100 * time.Millisecond}), 1); n != 0 {
		t.Error("the delayed message was delivered twice")
	}
}

// TestFM17_NoDelayQueues: a user who must not declare delay queues keeps delayed messages in the process, for MaxHold at most.
func TestFM17_NoDelayQueues(t *testing.T) {
	dial := shared(t)
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{Prefetch: 1})
	q.noDelays = true
	fill(t, q, 1)
	for _, after := range []time.Duration{time.Hour, 50 * time.Millisecond} {
		d := one(t, q)
		settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Retry, After: after})
		q.mu.Lock()
		due, ok := q.held.Next()
		if !ok || time.Until(due) > MaxHold {
			t.Errorf("a delay of %v is held until %v", after, due)
		}
		if after > MaxHold { // a minute later
			q.ready = append(q.ready, q.held.Due(due)...)
		}
		q.mu.Unlock()
	}
	settle(t, q, driver.Applied, driver.Settlement{Receipt: one(t, q).Receipt})
}

// TestFM28_AckWithoutResponse: the network ends between an ack and the response to the barrier behind it. The outcome is unknown;
// then the receipt is lost, and the message comes again or not.
func TestFM28_AckWithoutResponse(t *testing.T) {
	direct, err := url.Parse(server.Shared(t, "rabbitmq"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := server.NewProxy(direct.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	behind := *direct
	behind.Host = p.Addr()
	dial := dialer(direct.String())
	name := fresh(t, dial, CreateOptions{})
	q := openQueue(t, dialer(behind.String()), name, Options{CallTimeout: 2 * time.Second, Wait: time.Minute})
	for _, end := range []string{"stall", "cut"} {
		fill(t, q, 2)
		first, second := one(t, q), one(t, q)
		p.Stall(server.ToClient)
		s := driver.Settlement{Receipt: first.Receipt}
		if out, err := q.Settle(t.Context(), s); err == nil || out[0] != driver.Unknown {
			t.Fatalf("%s: an ack whose response is lost is %v, %v, want unknown", end, out, err)
		}
		if end == "cut" {
			p.Cut()
			p.Stall(0)
			for len(q.alive()) > 0 {
				<-time.After(time.Millisecond)
			}
			settle(t, q, driver.Lost, s)
			settle(t, q, driver.Lost, driver.Settlement{Receipt: second.Receipt})
			for again := ""; again != second.ID; { // and, if the server did not read the ack, the first one
				d := one(t, q)
				again = d.ID
				settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt})
			}
			continue
		}
		p.Stall(0)
		settle(t, q, driver.Applied, s) // the request is not sent twice: the server would close the channel
		settle(t, q, driver.Applied, driver.Settlement{Receipt: second.Receipt})
	}
}

// TestFM64_QueueDeleted: a receive that waits goes on when the queue is gone, and the next one returns an error that names it.
func TestFM64_QueueDeleted(t *testing.T) {
	dial := shared(t)
	name := fresh(t, dial, CreateOptions{})
	q := openQueue(t, dial, name, Options{Wait: 20 * time.Second})
	got := make(chan error, 1)
	go func() {
		_, err := q.Receive(t.Context(), 1)
		got <- err
	}()
	for waits := false; !waits; {
		q.mu.Lock()
		waits = q.sessions[0] != nil
		q.mu.Unlock()
	}
	if err := Delete(t.Context(), dial, name); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), name) {
		t.Errorf("receive returned %v", err)
	}
	if err := q.Send(t.Context(), driver.Message{ID: "m"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("send to a queue that is gone returned %v", err)
	}
	if err := Create(t.Context(), dial, name, CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fill(t, q, 1)
	settle(t, q, driver.Applied, driver.Settlement{Receipt: one(t, q).Receipt})
}

// TestFM27_RenewsOldDeliveries: a message that waits here for long is returned before the server's consumer_timeout ends it.
func TestFM27_RenewsOldDeliveries(t *testing.T) {
	dial := shared(t)
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{})
	fill(t, q, 3)
	held := one(t, q)
	for waiting := 0; waiting < 2; {
		q.mu.Lock()
		if waiting = len(q.ready); waiting == 2 {
			for _, m := range q.ready {
				m.arrived = m.arrived.Add(-q.fresh())
			}
		}
		q.mu.Unlock()
	}
	q.renew(q.sessions[0])
	for range 2 {
		d := one(t, q)
		if d.Count != 2 || time.Since(d.Receipt.(*receipt).m.arrived) > q.fresh()/2 {
			t.Errorf("message %s has count %d and arrived at %v", d.ID, d.Count, d.Receipt.(*receipt).m.arrived)
		}
		settle(t, q, driver.Applied, driver.Settlement{Receipt: d.Receipt})
	}
	settle(t, q, driver.Applied, driver.Settlement{Receipt: held.Receipt})
}
