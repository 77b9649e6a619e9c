package place

import (
	"context"
	"net/url"
	"strings"

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

// makeRabbitMQ declares the queue of a run.
func (s *Setup) makeRabbitMQ(ctx context.Context, run string) (string, error) {
	t, err := open.Parse("queue", s.queue.url)
	if err != nil {
		return "", err
	}
	first := "semel"
	if t.Queue != "" {
		first = t.Queue[:min(len(t.Queue), 40)]
	}
	base, query, _ := strings.Cut(s.queue.url, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", err
	}
	q.Set("queue", first+ours+s.stem+"-"+run)
	q.Set("wait", "1s") // a worker that is to stop when the queue is empty waits so long
	raw := base + "?" + q.Encode()
	s.removes = append(s.removes, func(ctx context.Context) error { return open.RemoveRabbitMQ(ctx, raw) })
	set := open.New(open.Options{})
	_, err = set.Create(ctx, "queue", raw, open.NewQueue{})
	if e := set.Close(); err == nil {
		err = e
	}
	return raw, err
}

// rabbitMQ opens the queue of the run.
func (o *opening) rabbitMQ(ctx context.Context) (err error) {
	set := open.New(open.Options{})
	o.place.closers = append(o.place.closers, set.Close)
	q, err := set.Queue(ctx, o.urls.Queue)
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
