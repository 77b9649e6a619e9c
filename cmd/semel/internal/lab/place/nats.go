package place

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/semel-dev/semel/adapters/nats"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// natsQueue is a stream with its bucket of dead letters.
type natsQueue struct {
	*nats.Queue
	driver.DeadLetterQueue
}

// plainNATS refuses what a URL says about a stream that is not going to be used.
func plainNATS(flag, raw string) error {
	_, query, _ := strings.Cut(raw, "?")
	for _, name := range []string{"consumer", "subject", "dead_letters", "max_deliver"} {
		if q, _ := url.ParseQuery(query); q.Has(name) {
			return output.Usage("--%s: %s= describes a stream that is there, and each run makes its own", flag, name).WithHint("leave it away")
		}
	}
	return nil
}

// makeBrokerQueue makes the queue of a run on a broker, which remove removes.
func (s *Setup) makeBrokerQueue(ctx context.Context, run string, o open.NewQueue, remove func(ctx context.Context, raw string) error) (string, error) {
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
	s.removes = append(s.removes, func(ctx context.Context) error { return remove(ctx, raw) })
	set := open.New(open.Options{})
	_, err = set.Create(ctx, "queue", raw, o)
	return raw, errors.Join(err, set.Close())
}

// nats opens the stream of the run.
func (o *opening) nats(ctx context.Context) error {
	q, err := o.set().Queue(ctx, o.urls.Queue)
	if err != nil {
		return err
	}
	stream := q.(*nats.Queue)
	o.place.Queue = natsQueue{stream, stream.DeadLetterQueue()}
	return nil
}
