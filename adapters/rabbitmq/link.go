package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var errClosed = errors.New("the queue is closed")

// link is a connection that is made again when it has ended.
type link struct {
	dial    Dial
	dialing sync.Mutex // one dials, for as long as that takes; nobody who holds mu waits for it

	mu     sync.Mutex
	conn   *amqp.Connection
	closed bool
	free   chan struct{} // closed while the server reads what is published
}

// get returns the connection, and makes it if there is none.
func (l *link) get() (*amqp.Connection, error) {
	l.dialing.Lock()
	defer l.dialing.Unlock()
	if conn, err := l.current(); conn != nil || err != nil {
		return conn, err
	}
	conn, err := l.dial()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if conn.IsRecoveryEnabled() {
		return nil, errors.Join(errors.New("the connection recovers itself: leave amqp.Config.Recovery out, the queue dials again"), conn.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // while it dialed
		return nil, errors.Join(errClosed, conn.CloseDeadline(time.Now().Add(time.Second)))
	}
	l.conn, l.free = conn, make(chan struct{})
	close(l.free)
	go l.watch(conn, conn.NotifyBlocked(make(chan amqp.Blocking, 8)))
	return conn, nil
}

// current returns the connection, or nil if it is to be made.
func (l *link) current() (*amqp.Connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, errClosed
	case l.conn != nil && !l.conn.IsClosed():
		return l.conn, nil
	}
	return nil, nil
}

// watch follows when the server stops reading what is published, because it lacks memory or disk. When the connection ends,
// those that wait for the server go on, and fail.
func (l *link) watch(conn *amqp.Connection, blockings <-chan amqp.Blocking) {
	var free chan struct{} // nil: the server reads
	for b := range blockings {
		switch {
		case b.Active && free == nil:
			free = make(chan struct{})
			l.mu.Lock()
			if l.conn == conn {
				l.free = free
			}
			l.mu.Unlock()
		case !b.Active && free != nil:
			close(free)
			free = nil
		}
	}
	if free != nil {
		close(free)
	}
}

// writable waits until the server reads what is published.
func (l *link) writable(ctx context.Context) error {
	l.mu.Lock()
	free := l.free
	l.mu.Unlock()
	select {
	case <-free:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the server accepts no messages, because it lacks memory or disk: %w", ctx.Err())
	}
}

// channel opens a channel.
func (l *link) channel() (*amqp.Channel, error) {
	conn, err := l.get()
	if err != nil {
		return nil, err
	}
	return conn.Channel()
}

// with calls f with a channel of its own, again if the connection ends.
func (l *link) with(f func(ch *amqp.Channel) error) error {
	return again(func() error {
		ch, err := l.channel()
		if err != nil {
			return err
		}
		defer func() { _ = ch.Close() }()
		return f(ch)
	})
}

// again calls f, and once more if the connection ended meanwhile. RabbitMQ 3.10 ends a connection with an internal error when it
// declares or consumes a queue at the moment in which another process declares that queue for the first time.
func again(f func() error) error {
	err := f()
	if code(err) == amqp.InternalError || errors.Is(err, amqp.ErrClosed) {
		err = f()
	}
	return err
}

func (l *link) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn == nil || l.conn.IsClosed() {
		return nil
	}
	return l.conn.CloseDeadline(time.Now().Add(time.Second))
}

// await calls f, which may block without an end: amqp091 knows no context. When ctx ends, or after timeout, f goes on in the
// background.
func await(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done: // f ended, and cancelled ctx
			return err
		default:
			return ctx.Err()
		}
	}
}

// explain words an error of the server: what failed, and what to do.
func (q *Queue) explain(doing string, err error) error {
	try := ""
	switch code(err) {
	case amqp.NotFound:
		err, try = fmt.Errorf("%w: %w", ErrNotFound, err), "declare it with Create, or semel queue create"
	case amqp.AccessRefused:
		try = "give the user the rights configure, write and read for the queue (rabbitmqctl set_permissions)"
	case amqp.ResourceLocked:
		try = "declare a queue that is not exclusive"
	case amqp.PreconditionFailed:
		if strings.Contains(err.Error(), "acknowledgement") {
			try = "lower --max-runtime, or raise the server's consumer_timeout"
		}
	}
	err = fmt.Errorf("rabbitmq: %s queue %q (queue= in a URL): %w", doing, q.name, err)
	if try != "" {
		err = fmt.Errorf("%w; Try: %s", err, try)
	}
	return err
}

// code is the reply code of the server's error, or 0.
func code(err error) int {
	if e := (*amqp.Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return 0
}
