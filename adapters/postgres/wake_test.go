package postgres

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// blocked receives in the background and returns how long after begin the first message came.
func blocked(t *testing.T, q *Queue) (result chan time.Time) {
	t.Helper()
	result = make(chan time.Time, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		ds, err := q.Receive(ctx, 1)
		if err != nil {
			t.Errorf("receive: %v", err)
			close(result)
			return
		}
		result <- time.Now()
		_, _ = q.Settle(ctx, driver.Settlement{Receipt: ds[0].Receipt})
	}()
	return result
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within three minutes", what)
		}
	}
}

func (w *waker) sleeping(queue string) bool { return slices.Contains(w.waiters.Queues(), queue) }

func within(t *testing.T, what string, result chan time.Time, began time.Time, most time.Duration) {
	t.Helper()
	at, ok := <-result
	if !ok {
		t.Fatalf("%s: nothing came", what)
	}
	t.Logf("%s: noticed after %v", what, at.Sub(began))
	if at.Sub(began) > most {
		t.Errorf("%s: noticed after %v, wanted %v at most", what, at.Sub(began), most)
	}
}

// soon is how long a message may take on a busy machine. Where it proves that somebody was woken, the poll interval is far
// longer.
const soon = 20 * time.Second

// TestWake: with a poll interval of two minutes only a wake-up can explain an early message.
func TestWake(t *testing.T) {
	const slow = 2 * time.Minute
	here := queueDB(t, Options{PollInterval: slow, Visibility: 500 * time.Millisecond})
	there := openAgain(t, here)
	q := here.Queue("q")
	if err := q.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	result := blocked(t, q)
	eventually(t, "listen", here.wake.listening.Load)
	began := time.Now()
	send(t, there.Queue("q"), driver.Message{ID: "from another process"})
	within(t, "another process sends", result, began, soon)

	result, began = blocked(t, q), time.Now()
	eventually(t, "wait", func() bool { return here.wake.sleeping("q") })
	send(t, there.Queue("q"), driver.Message{ID: "delayed", Delay: 300 * time.Millisecond})
	within(t, "a delay ends", result, began, soon)

	send(t, q, driver.Message{ID: "flies"})
	flying := receive(t, q, 1)
	result, began = blocked(t, q), time.Now()
	within(t, "a visibility ends", result, began, soon)
	if settle(t, q, driver.Settlement{Receipt: flying[0].Receipt}) != driver.Lost {
		t.Error("the first receipt was good after the message was handed out again")
	}

	tx, err := there.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	result = blocked(t, q)
	if err := there.Queue("q").SendTx(t.Context(), tx, driver.Message{ID: "in a transaction"}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	there.Queue("q").Wake()
	within(t, "SendTx and Wake", result, began, soon)

	other := here.Queue("made later")
	result = blocked(t, other)
	eventually(t, "wait", func() bool { return here.wake.sleeping("made later") })
	began = time.Now()
	send(t, there.Queue("made later"), driver.Message{})
	within(t, "a queue is made", result, began, soon)
}

// TestWakeInOneProcess needs no notifications.
func TestWakeInOneProcess(t *testing.T) {
	q := queueDB(t, Options{PollInterval: time.Hour, NoListen: true}).Queue("q")
	q.db.o.PollInterval = 10 * time.Hour // a tenth of it is what counts
	if err := q.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	result := blocked(t, q)
	eventually(t, "wait", func() bool { return q.db.wake.sleeping("q") })
	began := time.Now()
	send(t, q, driver.Message{Group: "g"}, driver.Message{Group: "g"})
	within(t, "send", result, began, soon)
	result, began = blocked(t, q), time.Now()
	within(t, "the head of a group is settled", result, began, soon)
}

// TestListenerBreaks: the listening connection dies; messages come all the same, and it is made again.
func TestListenerBreaks(t *testing.T) {
	here := queueDB(t, Options{PollInterval: 2 * time.Minute})
	there := openAgain(t, here)
	q := here.Queue("q")
	if err := q.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		result := blocked(t, q)
		eventually(t, "listen", here.wake.listening.Load)
		_, err := there.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid = $1`, here.wake.backend.Load())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		send(t, there.Queue("q"), driver.Message{})
		within(t, "after the listener broke", result, began, soon)
		if round == 0 {
			result = blocked(t, q)
			eventually(t, "listen again", here.wake.listening.Load)
			began = time.Now()
			send(t, there.Queue("q"), driver.Message{})
			within(t, "after it was made again", result, began, soon)
		}
	}
}

// TestCloseEndsReceive: Close wakes blocked receivers, and leaves no goroutine behind.
func TestCloseEndsReceive(t *testing.T) {
	u := schemaURL(t)
	db, err := Open(t.Context(), u, Options{Create: true, MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan error, 3)
	for range cap(ends) {
		go func() {
			_, err := db.Queue("q").Receive(context.Background(), 1)
			ends <- err
		}()
	}
	eventually(t, "listen", db.wake.listening.Load)
	send(t, db.Queue("other"), driver.Message{}) // leaves a notifier behind
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	for range cap(ends) {
		if err := <-ends; !errors.Is(err, ErrClosed) {
			t.Errorf("receive returned %v", err)
		}
	}
	if _, err := db.Queue("q").Receive(context.Background(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("receive after Close returned %v", err)
	}
	if err := db.Queue("q").Send(context.Background(), driver.Message{}); !errors.Is(err, ErrClosed) || !errors.Is(err, driver.ErrNotCommitted) {
		t.Errorf("send after Close returned %v", err)
	}
	db.signal("other")
	eventually(t, "goroutines end", func() bool {
		b := make([]byte, 1<<20)
		return !strings.Contains(string(b[:runtime.Stack(b, true)]), "postgres.(*waker)")
	})
}
