package postgres

import (
	"context"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/driver/rowqueue"
)

const (
	// channel is where processes notify each other of messages. A payload is the hash of a queue name. Schemas of one
	// database share it, which at worst causes needless looks.
	channel = "semel"
	// 1 payloads
	sqlNotify = "SELECT count(pg_notify('" + channel + "', p)) FROM unnest($1::text[]) AS p"
	// notifyGap is the least time between two notifications of a process. A notification takes a lock of the whole server.
	notifyGap = 5 * time.Millisecond
	// helloWait is how long a new listener waits for its own notification, pingEvery how long it trusts a silent
	// connection.
	helloWait, pingEvery = 2 * time.Second, 30 * time.Second
	// redialMin and redialMax bound the pauses between attempts to listen. deafPause follows the second attempt in a row
	// that worked but heard nothing: behind a pooler each leaves a useless listening connection behind.
	redialMin, redialMax, deafPause = 200 * time.Millisecond, 30 * time.Second, 10 * time.Minute
)

// waker wakes blocked receivers: those of this process directly, those of others by NOTIFY. Both are hints. Receivers also
// look every Options.PollInterval. A sending transaction contains no NOTIFY, because the server lets only one such
// transaction commit at a time: a goroutine sends notifications after the commit, and combines them.
type waker struct {
	db *DB
	// cursors are the receivers' places: name of the queue → *cursor.
	cursors sync.Map
	// listening: notifications of others arrive.
	listening atomic.Bool
	// backend is the server's process id of the listening connection.
	backend atomic.Uint32

	waiters rowqueue.Waiters

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	started   bool // the listener
	notifying bool
	pending   map[uint64]bool // queues to tell others of
}

func newWaker(db *DB) *waker {
	w := &waker{db: db, pending: map[uint64]bool{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// close ends the listener and the notifier and waits for them.
func (w *waker) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.done.Wait()
}

// sleep waits until x is signalled (woken), next has passed (negative: unknown) or it is time to look anyhow. idle counts
// the looks that found nothing.
func (w *waker) sleep(ctx context.Context, x *rowqueue.Waiter, idle int, next time.Duration) (woken bool, err error) {
	w.listen()
	d := w.interval(idle)
	if next >= 0 {
		d = min(d, max(next, time.Millisecond))
	}
	return x.Sleep(ctx, d, w.db.closing, ErrClosed)
}

// interval is how long a receiver waits without a signal. Without notifications it looks more often at first.
func (w *waker) interval(idle int) time.Duration {
	d := w.db.o.PollInterval
	if w.listening.Load() {
		return d
	}
	return max(min(d, d/10<<min(idle/4, 8)), time.Millisecond)
}

// signal wakes receivers of the queues, here and in other processes. Call it after the commit.
func (db *DB) signal(queues ...string) {
	w := db.wake
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range queues {
		w.waiters.WakeQueue(name)
		if db.o.NoListen || w.closed {
			continue
		}
		w.pending[payloadOf(name)] = true
		if !w.notifying {
			w.notifying = true
			w.done.Add(1)
			go w.notify()
		}
	}
}

func (w *waker) wakeAll() { w.waiters.Wake(func(string) bool { return true }) }

// notify notifies other processes until nothing is pending.
func (w *waker) notify() {
	defer w.done.Done()
	for {
		w.mu.Lock()
		payloads := make([]string, 0, len(w.pending))
		for p := range w.pending {
			payloads = append(payloads, strconv.FormatUint(p, 10))
		}
		clear(w.pending)
		if len(payloads) == 0 || w.closed {
			w.notifying = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		_ = w.publish(payloads) // a hint
		if !w.pause(notifyGap) {
			continue // closed
		}
	}
}

// publish sends notifications. Their commit need not be durable.
func (w *waker) publish(payloads []string) error {
	ctx, cancel := context.WithTimeout(w.ctx, helloWait)
	defer cancel()
	return w.db.once(ctx, func(p *pipeline) error {
		p.exec("set", "SET LOCAL synchronous_commit = off")
		p.exec("notify", sqlNotify, payloads)
		return nil
	})
}

// pause waits; false when the database is closed.
func (w *waker) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// listen starts the listener with the first receiver that has to wait.
func (w *waker) listen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started || w.closed || w.db.o.NoListen || w.db.o.ReadOnly {
		return
	}
	w.started = true
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		deafs := 0
		for pause := redialMin; w.ctx.Err() == nil; pause = min(2*pause, redialMax) {
			switch worked, deaf := w.session(); {
			case worked:
				pause, deafs = redialMin, 0
			case deaf:
				// Once may have been a busy server.
				if deafs++; deafs > 1 {
					pause = deafPause
				}
			}
			if w.listening.Swap(false) {
				w.db.history.change() // the next server may know less
				w.wakeAll()           // they look more often now
			}
			if !w.pause(pause) {
				return
			}
		}
	}()
}

// session listens on a connection of its own until that fails. worked: notifications arrived. deaf: they do not, because a
// pooler in transaction mode accepts LISTEN and forwards nothing.
func (w *waker) session() (worked, deaf bool) {
	ctx, cancel := context.WithTimeout(w.ctx, pingEvery)
	defer cancel()
	c, err := w.db.dial(ctx)
	if err != nil {
		return false, false
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), time.Second)
		defer cancel()
		_ = c.Close(end)
	}()
	if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
		return false, false
	}
	w.backend.Store(c.PgConn().PID())
	hello := "hello " + strconv.FormatUint(uint64(c.PgConn().PID()), 10)
	if err := w.publish([]string{hello}); err != nil {
		return false, false
	}
	for wait := helloWait; ; {
		n, err := w.next(c, wait)
		switch {
		case err != nil:
			return worked, false
		case n == nil && !worked:
			return false, true
		case n == nil:
			continue
		case n.Payload == hello:
			worked, wait = true, pingEvery
			w.listening.Store(true)
			w.wakeAll() // what came before we listened
		default:
			w.heard(n.Payload)
		}
	}
}

// next returns the next notification, or nil when there was none for a while and the connection is alive.
func (w *waker) next(c *pgx.Conn, wait time.Duration) (*pgconn.Notification, error) {
	ctx, cancel := context.WithTimeout(w.ctx, wait)
	defer cancel()
	n, err := c.WaitForNotification(ctx)
	if err == nil || w.ctx.Err() != nil || ctx.Err() == nil {
		return n, err
	}
	ping, cancel := context.WithTimeout(w.ctx, helloWait)
	defer cancel()
	return nil, c.Ping(ping)
}

// payloadOf is the payload for a queue. Queues that share one wake each other's receivers needlessly.
func payloadOf(queue string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(queue)) // it never fails
	return h.Sum64()
}

// heard wakes the waiters of the queue that a notification names.
func (w *waker) heard(payload string) {
	p, err := strconv.ParseUint(payload, 10, 64)
	if err != nil {
		return // not semel's
	}
	w.waiters.Wake(func(queue string) bool { return payloadOf(queue) == p })
}
