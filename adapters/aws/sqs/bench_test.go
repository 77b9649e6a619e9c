package sqs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/driver"
)

// bench is a queue on the fake, with helpers.
type bench struct {
	t      testing.TB
	server *fakesqs.Server
	clock  *awstest.Clock
	client *awssqs.Client
	q      *Queue
	o      Options // of q
	log    *logBook
}

// setup describes the queue to open.
type setup struct {
	name   string // defaults to orders, FIFO with the ending
	fake   fakesqs.Options
	frozen bool
	create CreateOptions
	o      Options
	wrap   []func(http.RoundTripper) http.RoundTripper
}

func newBench(t testing.TB, s setup) *bench {
	t.Helper()
	b := &bench{t: t, clock: s.fake.Clock, log: &logBook{}}
	if b.clock == nil {
		b.clock = awstest.System()
		if s.frozen {
			b.clock = awstest.Frozen(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
		}
		s.fake.Clock = b.clock
	}
	if s.name == "" {
		s.name = "orders"
	}
	b.server = fakesqs.New(s.fake)
	if _, err := Create(t.Context(), awssqs.NewFromConfig(awstest.Config(b.server)), s.name, s.create); err != nil {
		t.Fatal(err)
	}
	s.o.clock, s.o.deadLetterShort = b.clock.Now, s.frozen || s.o.deadLetterShort
	if s.frozen && s.o.grace == 0 { // tests poll empty queues
		s.o.grace = time.Millisecond
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.NewTextHandler(b.log, nil))
	}
	cfg := awstest.Config(b.server, s.wrap...)
	if s.frozen {
		cfg.Retryer = atOnce
	}
	b.client, b.o = awssqs.NewFromConfig(cfg), s.o
	b.q = reopen(t, b.client, s.name, s.o)
	return b
}

func reopen(t testing.TB, client Client, name string, o Options) *Queue {
	t.Helper()
	q, err := Open(t.Context(), client, name, o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// atOnce retries as the SDK does, without its pauses.
func atOnce() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

// logBook keeps what was logged.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (b *bench) send(m ...driver.Message) {
	b.t.Helper()
	if err := b.q.Send(b.t.Context(), m...); err != nil {
		b.t.Fatal(err)
	}
}

// raw sends a message as a program without this package does.
func (b *bench) raw(in awssqs.SendMessageInput) string {
	b.t.Helper()
	in.QueueUrl = &b.q.url
	out, err := b.client.SendMessage(b.t.Context(), &in)
	if err != nil {
		b.t.Fatal(err)
	}
	return *out.MessageId
}

func (b *bench) receive(n int) []driver.Delivery {
	b.t.Helper()
	var all []driver.Delivery
	for len(all) < n {
		ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
		ds, err := b.q.Receive(ctx, n-len(all))
		cancel()
		if err != nil {
			b.t.Fatalf("received %d of %d: %v", len(all), n, err)
		}
		all = append(all, ds...)
	}
	return all
}

func (b *bench) one() driver.Delivery { b.t.Helper(); return b.receive(1)[0] }

func (b *bench) settle(want driver.Outcome, ss ...driver.Settlement) {
	b.t.Helper()
	out, err := b.q.Settle(b.t.Context(), ss...)
	if err != nil {
		b.t.Fatalf("settle: %v", err)
	}
	for i, o := range out {
		if o != want {
			b.t.Fatalf("item %d is %v, wanted %v", i, o, want)
		}
	}
}

// resent gives messages that a suite sends again another ID: a FIFO queue would drop them for five minutes.
type resent struct {
	*Queue
	mu   *sync.Mutex
	seen map[string]int
}

func newResent(q *Queue) *resent { return &resent{q, &sync.Mutex{}, map[string]int{}} }

// restart opens the queue for another process.
func (b *bench) restart(t testing.TB) driver.Queue {
	return newResent(reopen(t, b.client, b.q.name, b.o))
}

func (r *resent) Send(ctx context.Context, m ...driver.Message) error {
	m = append([]driver.Message(nil), m...)
	r.mu.Lock()
	for i := range m {
		if m[i].ID == "" {
			continue
		}
		if r.seen[m[i].ID]++; r.seen[m[i].ID] > 1 {
			m[i].ID = fmt.Sprintf("%s (%d)", m[i].ID, r.seen[m[i].ID])
		}
	}
	r.mu.Unlock()
	return r.Queue.Send(ctx, m...)
}

func wrapOf(f *awstest.Faults) []func(http.RoundTripper) http.RoundTripper {
	return []func(http.RoundTripper) http.RoundTripper{f.Wrap}
}

// kindsFrozen runs a test on both kinds of queues of the fake in mode AWS, on a clock that stands still.
func kindsFrozen(t *testing.T, f func(t *testing.T, s setup)) {
	for _, name := range []string{"orders", "orders.fifo"} {
		t.Run(name, func(t *testing.T) { f(t, setup{name: name, frozen: true, o: Options{Ungrouped: true}}) })
	}
}
