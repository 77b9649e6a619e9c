package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/driver"
)

// ErrNotFound reports a stream or a consumer that does not exist.
var ErrNotFound = errors.New("not found")

// Queue is a stream with a durable pull consumer. Make it with [Open]; there is nothing to close.
type Queue struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	api    string // the prefix of JetStream's subjects
	stream string
	o      Options
	sync   syncInfo
	is     atomic.Pointer[settings] // as they were read last
}

// settings are the server's of stream and consumer.
type settings struct {
	stream   jetstream.StreamConfig
	created  time.Time
	consumer jetstream.ConsumerConfig
	read     time.Time // by Options.clock
}

// filters are the subjects that the consumer gets.
func (s *settings) filters() []string {
	switch {
	case s.consumer.FilterSubject != "":
		return []string{s.consumer.FilterSubject}
	case len(s.consumer.FilterSubjects) > 0:
		return s.consumer.FilterSubjects
	}
	return []string{">"}
}

// connect talks to no server yet.
func connect(nc *nats.Conn, stream string, o Options) (*Queue, error) {
	q := &Queue{nc: nc, stream: stream, o: o.withDefaults(), api: jetstream.DefaultAPIPrefix}
	if o.Domain != "" {
		q.api = "$JS." + o.Domain + ".API."
	}
	var err error
	q.js, err = jetstream.NewWithAPIPrefix(nc, q.api, jetstream.WithDefaultTimeout(q.o.CallTimeout))
	return q, err
}

// Open opens a stream with its consumer, which both have to exist (see [Create]), and reads their settings. The connection
// stays the caller's. Open refuses a consumer that pushes, that acknowledges otherwise than explicitly, or that has a
// MaxDeliver which Options do not accept. A missing stream or consumer is an [ErrNotFound].
func Open(ctx context.Context, nc *nats.Conn, stream string, o Options) (*Queue, error) {
	q, err := connect(nc, stream, o)
	if err != nil {
		return nil, err
	}
	is, err := q.read(ctx)
	if err != nil {
		return nil, err
	}
	q.is.Store(is)
	if err := q.target(is); err != nil {
		return nil, err
	}
	q.sync = readSync(ctx, nc, q.o)
	return q, nil
}

// read reads the settings and refuses those that semel cannot work with.
func (q *Queue) read(ctx context.Context) (*settings, error) {
	read := q.o.clock()
	stream, consumer, err := q.look(ctx)
	if err != nil {
		return nil, err
	}
	info, c := stream.CachedInfo(), &consumer.Config
	var problem, fix string
	switch {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		problem = fmt.Sprintf("has the ack policy %v, which acknowledges messages that were not handled", c.AckPolicy)
		fix = "make one with the policy explicit"
	case c.HeadersOnly:
		problem, fix = "delivers headers without bodies (headers_only)", "make one without that"
	case c.MaxDeliver > 0 && !q.o.AcceptMaxDeliver:
		problem = fmt.Sprintf("has MaxDeliver %d: a message that was delivered that often is delivered to nobody and stays in the stream",
			c.MaxDeliver)
		fix = "set it to -1 (nats consumer edit --max-deliver=-1; semel counts attempts itself), or accept it (max_deliver=accept in a URL)"
	default:
		return &settings{info.Config, info.Created, *c, read}, nil
	}
	return nil, fmt.Errorf("nats: consumer %q of stream %q %s; Try: %s", q.o.Consumer, q.stream, problem, fix)
}

// look reads the states of stream and consumer.
func (q *Queue) look(ctx context.Context) (stream jetstream.Stream, info *jetstream.ConsumerInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	if stream, err = q.js.Stream(ctx, q.stream); err == nil {
		var c jetstream.Consumer
		if c, err = stream.Consumer(ctx, q.o.Consumer); err == nil {
			return stream, c.CachedInfo(), nil
		}
	}
	return nil, nil, q.explain("look up", err)
}

// target finds the subject that Send publishes to.
func (q *Queue) target(is *settings) error {
	subjects, wanted := is.stream.Subjects, q.o.Subject
	switch {
	case wanted == "" && len(subjects) == 1 && !wild(subjects[0]):
		q.o.Subject = subjects[0]
	case wanted == "", wild(wanted):
	case !matchesAny(subjects, wanted), !matchesAny(is.filters(), wanted):
		return fmt.Errorf("nats: Options.Subject (subject= in a URL) is %q; stream %q keeps %s, and consumer %q gets %s", wanted,
			q.stream, strings.Join(subjects, ", "), q.o.Consumer, strings.Join(is.filters(), ", "))
	}
	return nil
}

// refresh reads the settings again when that is due: somebody may have changed or made anew the consumer. After an error it
// is due again.
func (q *Queue) refresh(ctx context.Context) error {
	was := q.is.Load()
	if q.o.clock().Sub(was.read) < q.o.recheck {
		return nil
	}
	is, err := q.read(ctx)
	if err != nil {
		return err
	}
	if is.consumer.AckWait != was.consumer.AckWait {
		return fmt.Errorf("nats: the AckWait of consumer %q was changed from %v to %v: restart with that visibility", q.o.Consumer,
			was.consumer.AckWait, is.consumer.AckWait)
	}
	q.is.Store(is)
	return nil
}

// Features describes the queue as it was when its settings were read last.
func (q *Queue) Features() driver.QueueFeatures {
	is := q.is.Load()
	durable, caveats := durability(is, q.sync)
	return driver.QueueFeatures{
		Name: q.name(), Kind: "nats", Visible: is.consumer.AckWait, Retention: is.stream.MaxAge, Horizon: driver.LateBy(is.stream.MaxAge, 0, 0),
		Durable: durable, Caveats: caveats, Extends: true, Delays: true, DelaysSend: true, Counts: true,
		Redrives: is.consumer.MaxDeliver > 0,
	}
}

// name is the stream's, with that of a consumer other than the default: two consumers of a stream are two queues.
func (q *Queue) name() string {
	if q.o.Consumer == DefaultConsumer {
		return q.stream
	}
	return q.stream + "/" + q.o.Consumer
}

// explain words an error of the server: what failed, the parameters that it depends on, and what to do.
func (q *Queue) explain(doing string, err error) error {
	try := ""
	switch last := q.nc.LastError(); {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound),
		errors.Is(err, jetstream.ErrConsumerDoesNotExist):
		err, try = fmt.Errorf("%w: %w", ErrNotFound, err), "make it with Create, or semel queue create"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		err, try = fmt.Errorf("nobody serves it: %w", err), "start the server with JetStream (-js), and check domain= in the URL"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		try = "enable JetStream for the account in the server's configuration"
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(last, nats.ErrPermissionViolation):
		err, try = last, "allow the user to publish on $JS.API.> and $JS.ACK.>, and to subscribe to _INBOX.>"
	}
	err = fmt.Errorf("nats: %s consumer %q of stream %q (consumer= and queue= in a URL): %w", doing, q.o.Consumer, q.stream, err)
	if try != "" {
		err = fmt.Errorf("%w; Try: %s", err, try)
	}
	return err
}

func wild(subject string) bool { return strings.ContainsAny(subject, "*>") }

// matchesAny reports that a literal subject is one of the patterns'.
func matchesAny(patterns []string, subject string) bool {
	have := strings.Split(subject, ".")
	return slices.ContainsFunc(patterns, func(p string) bool {
		want := strings.Split(p, ".")
		have := have
		if n := len(want) - 1; want[n] == ">" && len(have) > n {
			want, have = want[:n], have[:n]
		}
		return slices.EqualFunc(want, have, func(want, have string) bool { return want == "*" || want == have })
	})
}
