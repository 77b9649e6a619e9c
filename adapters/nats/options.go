package nats

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
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
	// DeadLetters keeps the dead letters. Defaults to the bucket Bucket.
	DeadLetters driver.DeadLetterQueue
	// Bucket is the key-value bucket for dead letters. Defaults to semel-dead-letters-STREAM. If there is no such bucket the
	// queue has no dead letters; [Create] makes it.
	Bucket string
	// Dedup sets Nats-Msg-Id to the message's ID: within the stream's duplicate window the server accepts and drops a message
	// that is sent again. Defaults to off: a message that is sent again because its first delivery was lost would be dropped.
	Dedup bool
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

func (o Options) withDefaults(stream string) (Options, error) {
	switch {
	case stream == "":
		return o, fmt.Errorf("nats: no stream given: name it (queue= in a URL)")
	case !validName(stream):
		return o, fmt.Errorf("nats: %q is not the name of a stream (queue= in a URL): it must not have blanks, dots, slashes, * or >", stream)
	case o.Consumer != "" && !validName(o.Consumer):
		return o, fmt.Errorf("nats: Options.Consumer (consumer= in a URL) is %q: it must not have blanks, dots, slashes, * or >", o.Consumer)
	case o.Wait < 0 || o.CallTimeout < 0:
		return o, fmt.Errorf("nats: Options.Wait is %v and CallTimeout %v, must not be negative", o.Wait, o.CallTimeout)
	case o.DeadLetters != nil && o.Bucket != "":
		return o, fmt.Errorf("nats: Options.DeadLetters and Options.Bucket are both set: choose one place for dead letters")
	}
	o.Consumer = cmp.Or(o.Consumer, DefaultConsumer)
	o.Bucket = cmp.Or(o.Bucket, Bucket(stream))
	o.Wait = cmp.Or(o.Wait, 5*time.Second)
	o.CallTimeout = cmp.Or(o.CallTimeout, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.recheck = cmp.Or(o.recheck, recheck)
	if o.clock == nil {
		o.clock = time.Now
	}
	return o, nil
}

// validName reports a name that streams and consumers may have.
//
// https://docs.nats.io/running-a-nats-service/nats_admin/jetstream_admin/naming
func validName(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`.*>/\`, r) })
}

// Bucket is the default bucket for the dead letters of a stream.
func Bucket(stream string) string { return "semel-dead-letters-" + token(stream) }
