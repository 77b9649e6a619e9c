package kafka

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// pollMax is how many messages one poll takes; a poll begins when fewer than that wait for Receive.
	pollMax = 1000
	// windowBytes is how many bytes of messages that are not settled a partition holds before it is paused.
	windowBytes = 16 << 20
	// spread is how many bytes of messages without a key go to one partition before the next: a worker receives from few
	// partitions, and the messages of one Send are for all workers.
	spread = 4 << 10
	// gather is how long positions gather before they are committed.
	gather = 25 * time.Millisecond
	// leaving is how long Close waits for the end of a rebalance.
	leaving = 2 * time.Second
)

// Options of [Open]. The zero value is the documented default, except for Client.
type Options struct {
	// Client are options of the client: at least kgo.SeedBrokers, and those of TLS and SASL. Options of the group are possible,
	// too: kgo.SessionTimeout (45 s), kgo.InstanceID, kgo.Balancers (cooperative-sticky), kgo.ServerSideBalancer.
	Client []kgo.Opt
	// Group is the consumer group. Defaults to semel-TOPIC ([DefaultGroup]): members of one group with different topics would
	// rebalance each other. A group that has no position begins at the start of the topic.
	Group string
	// Window is how many messages of one partition are held at most between its position and the last one that was fetched.
	// Defaults to 10,000.
	Window int
	// CallTimeout bounds one request to a broker. Defaults to 10 s.
	CallTimeout time.Duration
	// Logger gets warnings. Defaults to slog.Default().
	Logger *slog.Logger
}

// DefaultGroup is the consumer group of a queue whose options name none.
func DefaultGroup(topic string) string { return "semel-" + topic }

func (o Options) withDefaults(topic string) Options {
	o.Group = cmp.Or(o.Group, DefaultGroup(topic))
	o.Window = cmp.Or(max(o.Window, 0), 10_000)
	o.CallTimeout = cmp.Or(max(o.CallTimeout, 0), 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// common are options that Client may override.
func (o *Options) common() []kgo.Opt {
	return []kgo.Opt{kgo.ClientID("semel"), kgo.WithLogger(clientLog{o.Logger})}
}

// clientLog logs the warnings of the client: it waits for brokers that are away, and returns no error then.
type clientLog struct{ to *slog.Logger }

// Level implements kgo.Logger.
func (clientLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

// Log implements kgo.Logger.
func (l clientLog) Log(_ kgo.LogLevel, text string, pairs ...any) {
	l.to.Warn("kafka: "+text, pairs...)
}
