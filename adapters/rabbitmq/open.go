package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

// ErrNotFound reports a queue that does not exist.
var ErrNotFound = errors.New("not found")

// Queue is a queue of RabbitMQ. Make it with [Open], and close it.
type Queue struct {
	name string
	o    Options
	is   Settings
	in   link // consumes and inspects
	out  publisher

	declaring chan struct{} // of the one that declares a delay queue: see declareDelay

	opening sync.Mutex              // one starts consumers
	tried   [len(buckets)]time.Time // when a consumer of a delay queue was tried to be started, until it runs

	mu       sync.Mutex
	sessions [1 + len(buckets)]*session   // of the queue and of its delay queues, the last ones; nil before the first Receive
	ready    []*message                   // to be delivered by Receive
	held     redeliver.Schedule[*message] // of the queue, delayed here
	waiting  redeliver.Schedule[*message] // of the delay queues
	noDelays bool                         // the user must not declare delay queues
	busy     bool                         // this process consumes the busy queue
	wake     redeliver.Wake               // when there is something new for Receive
}

// Open opens a queue, which must exist (see [Create]), and reads its settings. It refuses streams. A missing queue is an
// [ErrNotFound]. The queue consumes from the first Receive on.
func Open(ctx context.Context, dial Dial, queue string, o Options) (*Queue, error) {
	q := newQueue(dial, queue, o)
	err := await(ctx, q.o.CallTimeout, func(ctx context.Context) error { return q.readSettings(ctx) })
	if err == nil && q.is.Type == "stream" {
		err = errors.New("it is a stream, which keeps messages that are acknowledged; Try: declare a quorum queue")
	}
	if err != nil {
		return nil, errors.Join(q.explain("open", err), q.in.close())
	}
	return q, nil
}

func newQueue(dial Dial, queue string, o Options) *Queue {
	q := &Queue{name: queue, o: o.withDefaults(), in: link{dial: dial}, declaring: make(chan struct{}, 1)}
	q.out.dial, q.out.slots = dial, make(chan struct{}, maxSends)
	return q
}

// Settings returns the settings that Open read.
func (q *Queue) Settings() Settings { return q.is }

// Features describes the queue as it was when it was opened.
func (q *Queue) Features() driver.QueueFeatures {
	durable, caveats := q.is.durability()
	return driver.QueueFeatures{
		Name: q.name, Kind: "rabbitmq", MaxVisible: q.o.ConsumerTimeout - q.fresh(), Retention: q.is.TTL(), Horizon: driver.LateBy(q.is.TTL(), 0, 0),
		Durable: durable, Caveats: caveats, Unconfirmed: q.o.Prefetch * len(q.sessions), Delays: true, DelaysSend: true, Counts: q.is.Type == "quorum",
		Redrives: q.is.DeliveryLimit() > 0,
	}
}

// Close ends the consumer, returns what it holds to the queue, and closes the connections.
func (q *Queue) Close() error {
	for _, s := range q.alive() {
		err := await(context.Background(), q.o.CallTimeout, func(context.Context) error {
			if err := s.ch.Cancel(consumerTag, false); err != nil {
				return err
			}
			return errors.Join(s.ch.Nack(0, true, true), s.ch.Close()) // 0: all deliveries of the channel
		})
		if err != nil { // the server notices the end of the connection
			q.o.Logger.Warn("messages could not be returned", "queue", q.name, "err", err)
		}
	}
	return errors.Join(q.out.close(), q.in.close())
}

// alive lists the sessions that have not ended.
func (q *Queue) alive() (all []*session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.sessions {
		if s != nil && s.alive() {
			all = append(all, s)
		}
	}
	return all
}

// Stats counts what the queue holds: ready messages, those that this process has in flight, and those that are delayed here
// or in delay queues. Each other process that holds messages for some time counts as one in flight, because RabbitMQ does not show
// what a consumer holds.
func (q *Queue) Stats(ctx context.Context) (s driver.QueueStats, err error) {
	s.Approximate = true
	var busy int
	err = await(ctx, q.o.CallTimeout, func(context.Context) error {
		main, err := q.look(q.name)
		if err != nil {
			return err
		}
		s.Visible = int64(main.Messages)
		for _, b := range buckets {
			delayed, err := q.look(q.delayQueue(b))
			if err != nil && code(err) != amqp.NotFound {
				return err
			}
			s.Delayed += int64(delayed.Messages)
		}
		marks, err := q.look(q.busyQueue())
		if busy = marks.Consumers; code(err) == amqp.NotFound || code(err) == amqp.AccessRefused {
			return nil
		}
		return err
	})
	if err != nil {
		return driver.QueueStats{Approximate: true}, q.explain("count", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy {
		busy--
	}
	held := q.held.Len() + q.waiting.Len()
	s.Visible += int64(len(q.ready))
	s.Delayed += int64(held)
	s.InFlight = int64(max(q.open()-len(q.ready)-held, 0) + max(busy, 0))
	return s, nil
}

// look asks how many messages of a queue are ready, and how many consumers it has.
func (q *Queue) look(name string) (found amqp.Queue, err error) {
	err = q.in.with(func(ch *amqp.Channel) error {
		found, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	return found, err
}

// open counts the deliveries of this process that are not settled. It needs the lock.
func (q *Queue) open() (n int) {
	for _, s := range q.sessions {
		if s == nil {
			continue
		}
		for _, m := range s.window {
			if m.state == pending {
				n++
			}
		}
	}
	return n
}

// busyQueue is the name of a queue that has a consumer for each process that holds messages: see Stats. Nothing is sent to it, and
// it is deleted with its last consumer.
func (q *Queue) busyQueue() string { return q.name + ".busy" }

// showBusy consumes the busy queue while this process holds messages. It returns when the session has ended.
func (q *Queue) showBusy(s *session) {
	look := time.NewTicker(lookBusy)
	defer look.Stop()
	var mark *amqp.Channel
	for range look.C {
		q.mu.Lock()
		holds := s.alive() && q.open() > 0
		q.mu.Unlock()
		switch {
		case holds && mark == nil:
			ch, err := q.consumeBusy()
			if code(err) == amqp.AccessRefused {
				q.o.Logger.Warn("others cannot see that this process holds messages", "queue", q.busyQueue(), "err", err)
				return
			}
			if err != nil { // another one has just ended it, or the connection ended
				continue
			}
			mark = ch
		case !holds && mark != nil:
			_ = mark.Close()
			mark = nil
		}
		q.mu.Lock()
		q.busy = mark != nil
		q.mu.Unlock()
		if !s.alive() {
			return
		}
	}
}

func (q *Queue) consumeBusy() (*amqp.Channel, error) {
	ch, err := q.in.channel()
	if err != nil {
		return nil, err
	}
	if _, err = ch.QueueDeclare(q.busyQueue(), true, true, false, false, nil); err == nil {
		_, err = ch.Consume(q.busyQueue(), consumerTag, true, false, false, false, nil)
	}
	if err != nil {
		_ = ch.Close()
	}
	return ch, err
}

// Peek returns ErrUnsupported: RabbitMQ shows messages only to their receivers, and counts that as a delivery.
func (q *Queue) Peek(context.Context, int) ([]driver.Delivery, error) {
	return nil, fmt.Errorf("rabbitmq: peek into queue %q: the server shows messages only to consumers: %w", q.name, driver.ErrUnsupported)
}

// Purge removes the ready messages, those that are delayed, and those that this process has in flight. Messages that other
// processes have in flight remain.
func (q *Queue) Purge(ctx context.Context) (n int64, err error) {
	err = await(ctx, q.o.CallTimeout, func(context.Context) error {
		for _, s := range q.alive() {
			q.mu.Lock()
			mine := s.take()
			q.drop(s)
			q.mu.Unlock()
			if err := errors.Join(q.write(s, mine, nil), s.barrier(q.o.Prefetch)); err != nil {
				return err
			}
			n += int64(len(mine))
		}
		for i, name := range q.names() {
			err := q.in.with(func(ch *amqp.Channel) error {
				removed, err := ch.QueuePurge(name, false)
				n += int64(removed)
				return err
			})
			if err != nil && (i == 0 || code(err) != amqp.NotFound) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, q.explain("purge", err)
	}
	return n, nil
}

// Extend returns ErrUnsupported: a delivery has no visibility timeout.
func (q *Queue) Extend(context.Context, time.Duration, ...any) ([]driver.Outcome, error) {
	return nil, fmt.Errorf("rabbitmq: extend in queue %q: a delivery has no visibility timeout: %w", q.name, driver.ErrUnsupported)
}
