package place

import (
	"context"

	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
)

// rabbitQueue is a queue of RabbitMQ with its dead letters in the database of the records.
type rabbitQueue struct {
	driver.Queue
	driver.Sender
	driver.QueueInspector
	driver.DeadLetterQueue
}

// rabbitMQ opens the queue of the run.
func (o *opening) rabbitMQ(ctx context.Context) (err error) {
	q, err := o.set().Queue(ctx, o.urls.Queue)
	if err != nil {
		return err
	}
	o.rabbit = q.(*rabbitmq.Queue)
	return nil
}

// keepDeadLetters gives the queue of RabbitMQ its place for dead letters, when the store is open.
func (o *opening) keepDeadLetters() error {
	box, ok := driver.As[driver.DeadLetterStore](o.place.Store)
	if !ok {
		return output.Usage("--store %s keeps no dead letters of other queues", open.Redact(o.urls.Store)).
			WithHint("--store postgres://… or --store 'sqlite:lab.db'")
	}
	dead := box.DeadLetterQueue(o.rabbit.Features().Name)
	q := deadletter.With(o.rabbit, dead)
	o.place.Queue, o.place.Quiet = rabbitQueue{q, o.rabbit, q.(driver.QueueInspector), dead}, farQuiet
	return nil
}
