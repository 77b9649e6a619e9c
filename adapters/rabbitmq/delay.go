package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
)

// buckets are how long messages wait in delay queues at most. A message passes them again until it is due. All messages of one
// queue wait for about the same time, so the next one that is due is at the head.
//
// These queues have no TTL and no dead-letter exchange, which could return messages without a worker: a quorum queue of RabbitMQ
// 3.10 lost messages that had expired when its node started, because the queue that they return to had no leader yet.
var buckets = [...]time.Duration{5 * time.Minute, 10 * time.Second}

// delayQueue is the name of a delay queue.
func (q *Queue) delayQueue(bucket time.Duration) string {
	return q.name + ".delay." + driver.DurationText(bucket)
}

// names are those of the queue and of its delay queues.
func (q *Queue) names() []string {
	all := []string{q.name}
	for _, b := range buckets {
		all = append(all, q.delayQueue(b))
	}
	return all
}

// declareDelay declares a delay queue. When two declare a quorum queue at once, RabbitMQ 3.10 confirms it to the second one
// before it has started, and ends the connection that consumes it then, with all deliveries. So a process declares in turn. A
// server may not respond for long: the others wait for their turn until ctx ends.
func (q *Queue) declareDelay(ctx context.Context, l *link, bucket time.Duration) error {
	select {
	case q.declaring <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-q.declaring }()
	return l.with(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q.delayQueue(bucket), true, false, false, false, CreateOptions{}.args(q.is.Version))
		return err
	})
}

// later makes a message wait until it is due.
func (q *Queue) later(p amqp.Publishing, due time.Time) outgoing {
	bucket := buckets[len(buckets)-1]
	for _, b := range buckets {
		if time.Until(due) >= b {
			bucket = b
			break
		}
	}
	until := time.Now().Add(bucket)
	if due.Before(until) {
		until = due
	}
	p.Headers[headerDue], p.Headers[headerUntil] = millis(due), millis(until)
	return outgoing{bucket, p}
}

// millis is a time in milliseconds, not before it.
func millis(t time.Time) int64 { return t.Add(time.Millisecond - time.Nanosecond).UnixMilli() }

// delayed is a copy of a delivery that waits until it is due.
func (q *Queue) delayed(m *message, due time.Time) outgoing {
	d := &m.raw
	p := amqp.Publishing{
		Headers: make(amqp.Table, len(d.Headers)+3), DeliveryMode: amqp.Persistent, Timestamp: d.Timestamp, Body: d.Body, MessageId: d.MessageId,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, Type: d.Type, AppId: d.AppId,
	}
	for name, v := range d.Headers {
		if !servers(name) {
			p.Headers[name] = v
		}
	}
	p.Headers[headerCount] = int64(m.count)
	return q.later(p, due)
}
