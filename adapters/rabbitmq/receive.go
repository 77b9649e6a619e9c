package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

// startAgain is the pause after an attempt to consume a delay queue that has not succeeded. A queue without a leader does not respond for a minute.
const startAgain = 2 * time.Minute

// consumerTag names the only consumer of a channel.
const consumerTag = "semel"

// session is a channel with a consumer. Its deliveries end with it.
type session struct {
	ch    *amqp.Channel
	delay bool // of a delay queue
	dead  atomic.Bool
	rpc   sync.Mutex // one barrier at a time

	// Guarded by Queue.mu: the deliveries that are not settled, in the order of their tags.
	window []*message
}

func (s *session) alive() bool { return !s.dead.Load() && !s.ch.IsClosed() }

// message is one delivery of the server. It can be delivered several times by Receive. Guarded by Queue.mu.
type message struct {
	s       *session
	tag     uint64
	raw     amqp.Delivery
	msg     driver.Message
	due     time.Time // the end of its delay
	until   time.Time // when it leaves its delay queue
	count   int       // deliveries before this one
	arrived time.Time
	holder  *receipt // of the last Receive
	state   state
}

// state is how far a delivery has been settled at the server.
type state uint8

const (
	pending state = iota
	sending       // its ack or nack is being sent
	sent
)

// receipt is the handle of one delivery by Receive: its address is the driver.Delivery's Receipt.
type receipt struct {
	q *Queue
	m *message
	redeliver.Receipt
	copied bool          // a delayed copy was confirmed. Guarded by Queue.mu
	asked  driver.Action // the action that was sent to the server, from 1. Guarded by Queue.mu
}

// forever is a deadline that does not come: a delivery lasts as long as its channel.
var forever = time.Unix(1<<60, 0)

// Receive delivers up to limit messages. It waits for the first for Options.Wait, then returns none. The first call starts the
// consumer, and a later one starts it again when the connection has ended.
//
// A message has the ID of the property message-id. Without it the ID is empty, because RabbitMQ has none.
func (q *Queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("rabbitmq: receive from queue %q: max is %d, must be at least 1", q.name, limit)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(q.o.Wait); ; {
		if err := await(ctx, q.o.CallTimeout, func(context.Context) error { return q.consume() }); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, q.explain("receive from", err)
		}
		wake := q.wake.C()
		out, early, next := q.take(limit)
		if len(early) > 0 {
			q.putOff(ctx, early)
		}
		left := time.Until(end)
		if len(out) > 0 || left <= 0 {
			return out, nil
		}
		if err := redeliver.Wait(ctx, min(next, left), wake); err != nil {
			return nil, err
		}
	}
}

// consume starts the consumer of the queue if it has ended, and those of the delay queues in the background.
func (q *Queue) consume() error {
	q.opening.Lock()
	defer q.opening.Unlock()
	if !q.running(0) {
		if err := q.start(0, q.name); err != nil {
			return err
		}
	}
	for i, b := range buckets {
		if q.running(i+1) || time.Since(q.tried[i]) < startAgain {
			continue
		}
		q.tried[i] = time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), q.o.CallTimeout)
			defer cancel()
			err := q.declareDelay(ctx, &q.in, b)
			if err == nil {
				err = q.start(i+1, q.delayQueue(b))
			}
			if err == nil {
				q.opening.Lock()
				q.tried[i] = time.Time{}
				q.opening.Unlock()
			}
			if err == nil || errors.Is(err, errClosed) {
				return
			}
			q.o.Logger.Warn("a delay queue cannot be consumed", "queue", q.delayQueue(b), "err", err)
			if code(err) == amqp.AccessRefused {
				q.mu.Lock()
				q.noDelays = true
				q.mu.Unlock()
			}
		}()
	}
	return nil
}

// running reports that a consumer has not ended.
func (q *Queue) running(i int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sessions[i] != nil && q.sessions[i].alive()
}

// start starts a consumer, again if the connection ends.
func (q *Queue) start(i int, name string) error {
	return again(func() error { return q.startOnce(i, name) })
}

func (q *Queue) startOnce(i int, name string) error {
	ch, err := q.in.channel()
	if err != nil {
		return err
	}
	s := &session{ch: ch, delay: i > 0}
	ended := ch.NotifyClose(make(chan *amqp.Error, 1))
	err = ch.Qos(q.o.Prefetch, 0, false)
	var in <-chan amqp.Delivery
	if err == nil {
		in, err = ch.Consume(name, consumerTag, false, false, false, false, nil)
	}
	if err != nil {
		_ = ch.Close()
		return err
	}
	q.mu.Lock()
	was := q.sessions[i]
	if was != nil && was.alive() { // another attempt to start it was faster
		q.mu.Unlock()
		return ch.Close()
	}
	if was != nil {
		q.drop(was)
	}
	q.sessions[i] = s
	q.mu.Unlock()
	go q.pump(s, in, ended)
	if i == 0 {
		go q.showBusy(s)
	}
	return nil
}

// pump takes what the server delivers until the channel ends, or the server cancels the consumer.
func (q *Queue) pump(s *session, in <-chan amqp.Delivery, ended <-chan *amqp.Error) {
	stale := time.NewTicker(q.fresh() / 4)
	defer stale.Stop()
	for {
		select {
		case d, ok := <-in:
			if ok {
				q.arrive(s, d)
				continue
			}
		case <-stale.C:
			q.renew(s)
			continue
		}
		s.dead.Store(true)
		_ = s.ch.Close() // where the consumer was cancelled
		if err := <-ended; err != nil {
			q.o.Logger.Warn("the consumer ended, its messages are delivered again", "queue", q.name, "err", q.explain("consume", err))
		}
		q.mu.Lock()
		q.drop(s)
		q.wake.Signal()
		q.mu.Unlock()
		return
	}
}

func (q *Queue) arrive(s *session, d amqp.Delivery) {
	m := q.unpack(d)
	m.s = s
	q.mu.Lock()
	defer q.mu.Unlock()
	s.window = append(s.window, m)
	if s.delay {
		q.waiting.Put(m.until, m)
	} else {
		q.ready = append(q.ready, m)
	}
	q.wake.Signal()
}

// fresh is how old a delivery is at most when Receive returns it. The server closes a channel with all its deliveries when one
// of them is not settled within consumer_timeout.
func (q *Queue) fresh() time.Duration { return q.o.ConsumerTimeout / 4 }

// renew returns messages that have waited here for long to the queue. They are delivered again, and their time begins anew.
func (q *Queue) renew(s *session) {
	var old []*message
	is := func(m *message) bool {
		if m.s != s || time.Since(m.arrived) < q.fresh()/2 {
			return false
		}
		m.state = sending
		old = append(old, m)
		return true
	}
	q.mu.Lock()
	q.ready = slices.DeleteFunc(q.ready, is)
	q.waiting.Drop(is)
	q.mu.Unlock()
	_ = q.write(s, nil, old) // it fails with the channel
}

// drop forgets the deliveries of a session. It needs the lock.
func (q *Queue) drop(s *session) {
	of := func(m *message) bool { return m.s == s }
	q.ready = slices.DeleteFunc(q.ready, of)
	q.held.Drop(of)
	q.waiting.Drop(of)
}

// take takes what can be delivered now, and settlements of messages that are not due. next is when a held message is due.
func (q *Queue) take(limit int) (out []driver.Delivery, early []driver.Settlement, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.ready = slices.Concat(q.waiting.Due(now), q.held.Due(now), q.ready)
	for len(q.ready) > 0 && len(out) < limit {
		m := q.ready[0]
		q.ready = q.ready[1:]
		m.holder = &receipt{q: q, m: m, Receipt: redeliver.NewReceipt(forever)}
		if m.due.After(now) {
			early = append(early, driver.Settlement{Receipt: m.holder, Action: driver.Defer, After: m.due.Sub(now)})
			continue
		}
		m.count++
		d := driver.Delivery{Message: m.msg, Receipt: m.holder}
		if q.is.Type == "quorum" {
			d.Count = m.count
		}
		out = append(out, d)
	}
	next = q.o.Wait
	for _, h := range [...]*redeliver.Schedule[*message]{&q.held, &q.waiting} {
		if due, ok := h.Next(); ok {
			next = min(next, due.Sub(now))
		}
	}
	return out, early, next
}

// hold keeps a message here until it is due, if that is soon, and if at most half of the prefetch is held: the rest stays free
// for messages that are due. Where there are no delay queues it holds every message, for MaxHold at most. It needs the lock.
func (q *Queue) hold(m *message, due, now time.Time) bool {
	switch {
	case q.noDelays:
		if most := now.Add(MaxHold); due.After(most) {
			due = most
		}
	case m.s.delay, due.Sub(now) > MaxHold, due.Sub(m.arrived) > q.fresh()/2, q.held.Len() >= (q.o.Prefetch+1)/2:
		return false
	}
	m.holder, m.due = nil, time.Time{}
	q.held.Put(due, m)
	q.wake.Signal()
	return true
}

// putOff delays messages that are not due. If that fails they are looked at again.
func (q *Queue) putOff(ctx context.Context, early []driver.Settlement) {
	_, err := q.Settle(ctx, early...)
	if err == nil {
		return
	}
	q.o.Logger.Warn("messages that are not due could not be put off", "queue", q.name, "messages", len(early), "err", err)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range early {
		if m := early[i].Receipt.(*receipt).m; m.holder == early[i].Receipt && m.s.alive() && m.state == pending {
			q.waiting.Put(time.Now().Add(time.Second), m)
		}
	}
	q.wake.Signal()
}
