package nats

import (
	"cmp"
	"log/slog"
	"time"
)

const (
	// DefaultConsumer is the durable consumer of a queue whose options name none.
	DefaultConsumer = "semel"
	// maxOutstanding is how many messages of one Send await their acknowledgement at once.
	maxOutstanding = 4000
	// recheck is how often Receive looks at the settings of the consumer: somebody may change them.
	recheck = time.Minute
)

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// Consumer is the name of the durable pull consumer. Defaults to [DefaultConsumer].
	Consumer string
	// Subject is where Send publishes, unless a message has the header Nats-Subject. Defaults to the stream's subject, where it
	// has one without wildcards; else Send refuses messages without that header.
	Subject string
	// Wait is how long one Receive waits for a message. Defaults to 5 s.
	Wait time.Duration
	// AcceptMaxDeliver opens a consumer that has a MaxDeliver. Somebody has to look after the messages that reach it: they are
	// delivered to nobody and stay in the stream. Defaults to refusing such a consumer.
	AcceptMaxDeliver bool
	// Monitor is the base URL of the server's monitoring port (http://host:8222). Open reads there how often the server syncs
	// what it acknowledged to disk. Defaults to the assumption that it is every two minutes.
	Monitor string
	// SyncAlways asserts that every server of the stream has sync_interval "always", where Monitor cannot tell.
	SyncAlways bool
	// Domain is the JetStream domain. Defaults to the account's own.
	Domain string
	// CallTimeout bounds one request to the server; a receive has Wait in addition. Defaults to 10 s.
	CallTimeout time.Duration
	// Logger gets warnings. Defaults to slog.Default().
	Logger *slog.Logger

	clock   func() time.Time // tests; defaults to time.Now, whose monotonic part decides
	recheck time.Duration    // tests; defaults to the constant
}

func (o Options) withDefaults() Options {
	o.Consumer = cmp.Or(o.Consumer, DefaultConsumer)
	o.Wait = cmp.Or(max(o.Wait, 0), 5*time.Second)
	o.CallTimeout = cmp.Or(max(o.CallTimeout, 0), 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.recheck = cmp.Or(o.recheck, recheck)
	if o.clock == nil {
		o.clock = time.Now
	}
	return o
}
