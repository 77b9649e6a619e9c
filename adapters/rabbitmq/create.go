package rabbitmq

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"
)

// CreateOptions of [Create]. The zero value is the documented default.
type CreateOptions struct {
	// Classic declares a classic queue, which one node keeps. Defaults to a quorum queue.
	Classic bool
}

// Create declares a durable queue, without a delivery limit, and its delay queues, if the user may. It leaves a queue that
// exists as it is.
func Create(ctx context.Context, dial Dial, queue string, o CreateOptions) error {
	return administer(ctx, dial, queue, "declare", func(ctx context.Context, q *Queue) error {
		conn, err := q.in.get()
		if err != nil {
			return err
		}
		q.is.Version, _ = conn.Properties["version"].(string)
		if _, err := q.look(queue); err != nil {
			if err := q.in.with(func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(queue, true, false, false, false, o.args(q.is.Version))
				return err
			}); err != nil {
				return err
			}
		}
		for _, b := range buckets { // RabbitMQ 3.10 ends a connection that consumes a queue while another one declares it
			if err := q.declareDelay(ctx, &q.in, b); err != nil && code(err) != amqp.AccessRefused {
				return err
			}
		}
		return nil
	})
}

func (o CreateOptions) args(version string) amqp.Table {
	args := amqp.Table{"x-queue-type": "quorum"}
	if o.Classic {
		args["x-queue-type"] = "classic"
	} else if major(version) >= 4 { // it has a limit of 20 by default, and RabbitMQ 3 refuses -1 on use
		args["x-delivery-limit"] = -1
	}
	return args
}

// Delete deletes a queue with its messages and its delay queues. It returns nil if there is none.
func Delete(ctx context.Context, dial Dial, queue string) error {
	return administer(ctx, dial, queue, "delete", func(_ context.Context, q *Queue) error {
		for _, name := range append(q.names(), q.busyQueue()) {
			if err := q.in.with(func(ch *amqp.Channel) error {
				_, err := ch.QueueDelete(name, false, false, false)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// administer calls f with a queue that need not exist.
func administer(ctx context.Context, dial Dial, queue, doing string, f func(ctx context.Context, q *Queue) error) error {
	q := newQueue(dial, queue, Options{})
	err := await(ctx, q.o.CallTimeout, func(ctx context.Context) error { return f(ctx, q) })
	if closed := q.in.close(); err == nil {
		err = closed
	}
	if err != nil {
		return q.explain(doing, err)
	}
	return nil
}
