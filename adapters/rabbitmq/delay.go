package rabbitmq

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
)

// buckets are the times that messages wait in delay queues. A message passes several until it is due. All messages of one
// queue wait for the same time: RabbitMQ expires only the message at the head of a queue.
var buckets = [...]time.Duration{30 * time.Minute, 2 * time.Minute, 10 * time.Second, time.Second}

// delayQueue is the name of a delay queue.
func (q *Queue) delayQueue(bucket time.Duration) string {
	return q.name + ".delay." + driver.DurationText(bucket)
}

// delayArgs are the arguments of a delay queue. Its messages return to the queue when their time has passed, and leave it when
// the queue has confirmed them.
func (q *Queue) delayArgs(bucket time.Duration) amqp.Table {
	return amqp.Table{
		"x-queue-type": "quorum", "x-message-ttl": bucket.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": q.name,
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	}
}

// later makes a message wait until it is due.
func (q *Queue) later(p amqp.Publishing, due time.Time) outgoing {
	p.Headers[headerDue] = due.UnixMilli()
	rest := time.Until(due)
	for _, b := range buckets {
		if rest >= b {
			return outgoing{b, p}
		}
	}
	return outgoing{buckets[len(buckets)-1], p}
}

// delayed is a copy of a delivery that waits until it is due.
func (q *Queue) delayed(m *message, due time.Time) outgoing {
	d := &m.raw
	p := amqp.Publishing{
		Headers: make(amqp.Table, len(d.Headers)+2), DeliveryMode: amqp.Persistent, Timestamp: d.Timestamp, Body: d.Body, MessageId: d.MessageId,
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
