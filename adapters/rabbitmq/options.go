package rabbitmq

import (
	"cmp"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// DefaultPrefetch is the prefetch of a queue whose options name none.
	DefaultPrefetch = 200
	// MaxHold is the longest delay for which a message is kept unacknowledged instead of in a delay queue.
	MaxHold = time.Minute
	// consumerTimeout is RabbitMQ's default of consumer_timeout.
	consumerTimeout = 30 * time.Minute
	// lookBusy is how often a process looks whether it holds messages.
	lookBusy = time.Second
	// maxSends is how many Sends publish at once, each on a channel of its own.
	maxSends = 64
	// maxOutstanding is how many messages of one Send await their confirmation at once.
	maxOutstanding = 2000
)

// Dial makes a connection to the server. A queue has two: RabbitMQ stops reading from connections that publish while it lacks
// memory or disk, and acks must still arrive. A queue dials again when a connection has ended. The configuration must not have
// Recovery set: a recovered channel does not know the deliveries of the one before.
type Dial func() (*amqp.Connection, error)

// Options of [Open]. The zero value is the documented default.
type Options struct {
	// Prefetch is how many messages this process has unacknowledged at most: those that are handled, those that wait in its
	// memory, and those with a short delay. Defaults to [DefaultPrefetch]. Every disconnect delivers all of them again.
	Prefetch int
	// Wait is how long one Receive waits for a message. Defaults to 5 s.
	Wait time.Duration
	// Management is the base URL of the management plugin with user and password (http://user:password@host:15672). Open reads
	// there what policies set. Defaults to the arguments of the queue alone.
	Management string
	// ConsumerTimeout is the consumer_timeout of the server. Defaults to RabbitMQ's default, 30 minutes.
	ConsumerTimeout time.Duration
	// CallTimeout bounds one request to the server. Defaults to 10 s.
	CallTimeout time.Duration
	// Logger gets warnings. Defaults to slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Prefetch = min(cmp.Or(max(o.Prefetch, 0), DefaultPrefetch), 65535)
	o.Wait = cmp.Or(max(o.Wait, 0), 5*time.Second)
	o.ConsumerTimeout = cmp.Or(max(o.ConsumerTimeout, 0), consumerTimeout)
	o.CallTimeout = cmp.Or(max(o.CallTimeout, 0), 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}
