package place

import (
	"context"
	"net/url"
	"strings"
	"time"

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

// makeNATS makes the stream of a run with its consumer and a bucket for dead letters.
func (s *Setup) makeNATS(ctx context.Context, run string, visibility time.Duration) (string, error) {
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
	s.removes = append(s.removes, func(ctx context.Context) error { return open.RemoveNATS(ctx, raw) })
	set := open.New(open.Options{})
	_, err = set.Create(ctx, "queue", raw, open.NewQueue{Visibility: visibility})
	if e := set.Close(); err == nil {
		err = e
	}
	return raw, err
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
