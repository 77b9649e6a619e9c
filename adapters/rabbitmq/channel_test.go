package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
)

// alone keeps the queue from consuming its delay queues.
func alone(q *Queue) {
	for i := range q.tried {
		q.tried[i] = time.Now()
	}
}

// TestFM28_OneChannelWithoutResponse: a settlement of two channels, of which one does not respond, is sent to both. Applied is
// reported of no ack that was not sent.
func TestFM28_OneChannelWithoutResponse(t *testing.T) {
	dial := shared(t)
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{CallTimeout: 500 * time.Millisecond})
	alone(q)
	other := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{})
	if err := q.consume(); err != nil {
		t.Fatal(err)
	}
	if err := q.start(1, other.name); err != nil {
		t.Fatal(err)
	}
	for range 6 { // the order of channels is random
		fill(t, q, 1)
		fill(t, other, 1)
		a, b := one(t, q).Receipt.(*receipt), one(t, q).Receipt.(*receipt)
		q.sessions[0].rpc.Lock()
		_, err := q.Settle(t.Context(), driver.Settlement{Receipt: a}, driver.Settlement{Receipt: b})
		q.sessions[0].rpc.Unlock()
		if err == nil {
			t.Fatal("no error of a channel that does not respond")
		}
		for err != nil && t.Context().Err() == nil {
			_, err = q.Settle(t.Context(), driver.Settlement{Receipt: a}, driver.Settlement{Receipt: b})
		}
		q.mu.Lock()
		if a.m.state != sent || b.m.state != sent {
			t.Errorf("acks that are reported as applied are in the states %d and %d, want %d", a.m.state, b.m.state, sent)
		}
		q.mu.Unlock()
	}
}

// TestFM64_ManyToQueueDeleted: a Send of more messages than returned ones are kept ends with an error, not with its context.
func TestFM64_ManyToQueueDeleted(t *testing.T) {
	dial := shared(t)
	name := fresh(t, dial, CreateOptions{})
	q := openQueue(t, dial, name, Options{})
	if err := Delete(t.Context(), dial, name); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := q.Send(ctx, make([]driver.Message, 3*maxOutstanding)...); !errors.Is(err, ErrNotFound) {
		t.Errorf("send returned %v", err)
	}
}

// TestFM64_OneReturned: of two that send at once, one to a queue that is missing, only that one fails.
func TestFM64_OneReturned(t *testing.T) {
	dial := shared(t)
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{})
	gone := &Queue{name: q.name + "-gone"}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := q.Send(t.Context(), driver.Message{}, driver.Message{}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := q.out.publish(t.Context(), gone, make([]outgoing, 2)); code(err) != amqp.NotFound {
				t.Errorf("messages to a queue that is missing: %v", err)
			}
		})
	}
	wg.Wait()
}

// TestFM33_ConnectionEndsWhileBlocked: who waits for a server without memory goes on when its connection ends.
func TestFM33_ConnectionEndsWhileBlocked(t *testing.T) {
	conn := &amqp.Connection{}
	l := link{conn: conn}
	blockings := make(chan amqp.Blocking, 1)
	blockings <- amqp.Blocking{Active: true}
	close(blockings)
	l.watch(conn, blockings)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.writable(ctx); err != nil {
		t.Error(err)
	}
}

// TestFM17_WindowOfLongMessage: while one message is handled for long, those behind it that are settled are forgotten.
func TestFM17_WindowOfLongMessage(t *testing.T) {
	dial := shared(t)
	const prefetch = 4
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{Prefetch: prefetch})
	alone(q)
	fill(t, q, 10*prefetch)
	long := one(t, q)
	for range 10*prefetch - 1 {
		settle(t, q, driver.Applied, driver.Settlement{Receipt: one(t, q).Receipt})
	}
	q.mu.Lock()
	if n := len(q.sessions[0].window); n > prefetch {
		t.Errorf("%d deliveries are kept with a prefetch of %d", n, prefetch)
	}
	q.mu.Unlock()
	settle(t, q, driver.Applied, driver.Settlement{Receipt: long.Receipt})
}

// TestFM17_StartedTwice: a delay queue whose consumer is started twice keeps its first one, with what it prefetched.
func TestFM17_StartedTwice(t *testing.T) {
	dial := shared(t)
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{Wait: time.Minute})
	alone(q)
	other := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{})
	fill(t, other, 1)
	if err := q.start(1, other.name); err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; {
		q.mu.Lock()
		n = q.waiting.Len()
		q.mu.Unlock()
	}
	if err := q.start(1, other.name); err != nil {
		t.Fatal(err)
	}
	settle(t, q, driver.Applied, driver.Settlement{Receipt: one(t, q).Receipt})
}

// TestFM20_DialHangs: a dial that does not end holds back neither Open after its context, nor Close.
func TestFM20_DialHangs(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	hangs := func() (*amqp.Connection, error) {
		<-end
		return nil, errors.New("ended")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := make(chan error, 1)
	go func() {
		_, err := Open(ctx, hangs, "q", Options{})
		got <- err
	}()
	select {
	case err := <-got:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("open returned %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Open does not return")
	}
}

// TestFM17_DeclaredAtOnce: the publisher declares a new delay queue when the consumer does, and the consumer keeps its connection.
func TestFM17_DeclaredAtOnce(t *testing.T) {
	dial := shared(t)
	for range 5 {
		q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{})
		errs := make(chan error, 2)
		for _, l := range [...]*link{&q.in, &q.out.link} {
			if _, err := l.get(); err != nil {
				t.Fatal(err)
			}
		}
		go func() { errs <- q.declareDelay(t.Context(), &q.out.link, buckets[0]) }()
		go func() {
			err := q.declareDelay(t.Context(), &q.in, buckets[0])
			if err == nil {
				err = q.start(1, q.delayQueue(buckets[0]))
			}
			errs <- err
		}()
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFM17_TwoProcessesDeclareAtOnce: two processes use the delay queues of a queue for the first time at once. RabbitMQ 3.10 may
// end a connection then; it is made again, without an error of Receive. The server may not confirm a Send until the queue has
// started: that one has an error, and one that is repeated succeeds.
func TestFM17_TwoProcessesDeclareAtOnce(t *testing.T) {
	dial := shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 5 {
		name := declare(t, dial, true, false, amqp.Table{"x-queue-type": "quorum"})
		var errs [4]error
		var wg sync.WaitGroup
		for i := range 2 {
			q := openQueue(t, dial, name, Options{Wait: 500 * time.Millisecond})
			wg.Go(func() { _, errs[2*i] = q.Receive(t.Context(), 1) })
			wg.Go(func() {
				for ctx.Err() == nil {
					if errs[2*i+1] = q.Send(ctx, driver.Message{Delay: time.Hour}); errs[2*i+1] == nil {
						return
					}
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFM20_DeclareHangs: a declare of a delay queue that the server does not respond to holds no Send after its context, and no
// Send without a delay.
func TestFM20_DeclareHangs(t *testing.T) {
	dial := shared(t)
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{})
	q.declaring <- struct{}{} // the one that hangs
	var wg sync.WaitGroup
	for range maxSends + 1 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := q.Send(ctx, driver.Message{Delay: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("send with a delay returned %v", err)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := q.Send(ctx, driver.Message{}); err != nil {
		t.Fatal(err)
	}
	<-q.declaring
	if err := q.Send(ctx, driver.Message{Delay: time.Hour}); err != nil {
		t.Error(err)
	}
}

// TestFM33_NoDeclareWhileBlocked: a server that accepts no messages is asked to declare nothing, because it would not respond.
func TestFM33_NoDeclareWhileBlocked(t *testing.T) {
	dial := shared(t)
	q := openQueue(t, dial, fresh(t, dial, CreateOptions{}), Options{})
	if _, err := q.out.get(); err != nil {
		t.Fatal(err)
	}
	q.out.link.free = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := q.out.declare(ctx, q, buckets[0]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("declare returned %v", err)
	}
}

// TestFM20_CutWhileAsking: a connection that the server ends during a request is made again, once.
func TestFM20_CutWhileAsking(t *testing.T) {
	dial := shared(t)
	l := link{dial: dial}
	t.Cleanup(func() { _ = l.close() })
	for _, cuts := range []int{1, 2} {
		calls := 0
		err := l.with(func(ch *amqp.Channel) error {
			if calls++; calls <= cuts {
				_ = l.conn.Close()
			}
			return ch.Qos(1, 0, false)
		})
		if calls != 2 || (err == nil) != (cuts == 1) {
			t.Errorf("%d cuts: called %d times, %v", cuts, calls, err)
		}
	}
}

// TestFM64_OthersHoldMessages: a queue whose last message is with another process is not empty, until that process has settled it.
func TestFM64_OthersHoldMessages(t *testing.T) {
	dial := shared(t)
	name := fresh(t, dial, CreateOptions{})
	idle, busy := openQueue(t, dial, name, Options{}), openQueue(t, dial, name, Options{})
	await := func(want int64) {
		t.Helper()
		for _, q := range [...]*Queue{idle, busy} {
			for s, err := q.Stats(t.Context()); err != nil || s.InFlight != want || s.Empty() != (want == 0); s, err = q.Stats(t.Context()) {
				if t.Context().Err() != nil || err != nil {
					t.Fatalf("%+v, %v", s, err)
				}
			}
		}
	}
	for range 2 {
		fill(t, busy, 1)
		d := one(t, busy)
		await(1)
		settle(t, busy, driver.Applied, driver.Settlement{Receipt: d.Receipt})
		await(0)
	}
	fill(t, busy, 1)
	one(t, busy)
	await(1)
	cut(busy)
	settle(t, idle, driver.Applied, driver.Settlement{Receipt: one(t, idle).Receipt})
}
