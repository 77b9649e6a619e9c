package open

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/adapters/nats"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// natsQueue is what the server says of a stream and its consumer.
type natsQueue struct {
	stream     *jetstream.StreamInfo
	consumer   *jetstream.ConsumerInfo
	version    string
	rtt        time.Duration
	visibility time.Duration // the worker's
}

// fewPending is JetStream's own default of MaxAckPending.
const fewPending = 1000

func (d *natsDB) look(ctx context.Context, name string) (q natsQueue, err error) {
	o, at, err := d.options(name)
	if err != nil {
		return q, err
	}
	js, err := d.jetStream()
	if err != nil {
		return q, err
	}
	s, err := js.Stream(ctx, name)
	if err != nil {
		return q, natsError(at, "examine", err)
	}
	c, err := s.Consumer(ctx, cmp.Or(o.Consumer, nats.DefaultConsumer))
	if err != nil {
		return q, natsError(at, "examine", err)
	}
	q = natsQueue{stream: s.CachedInfo(), consumer: c.CachedInfo(), version: d.nc.ConnectedServerVersion()}
	if q.rtt, err = d.nc.RTT(); err != nil {
		return q, natsError(at, "examine", err)
	}
	return q, nil
}

// Live is how the queue is set now.
func (d *natsDB) Live(ctx context.Context, queue string) (*ops.LiveQueue, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	q, err := d.look(ctx, queue)
	if err != nil {
		return nil, err
	}
	return &ops.LiveQueue{Visibility: q.consumer.Config.AckWait, Retention: q.stream.Config.MaxAge, MaxReceives: max(q.consumer.Config.MaxDeliver, 0)}, nil
}

// Examine tells how stream and consumer of the URL are set. How the server brings messages to disk the queue's features say.
func (d *natsDB) Examine(ctx context.Context, o Options) ([]ops.Check, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	q, err := d.look(ctx, d.t.QueueName())
	if err != nil {
		return nil, err
	}
	q.visibility = o.Visibility
	return q.facts(), nil
}

func (q *natsQueue) facts() []ops.Check {
	c, s := &q.consumer.Config, &q.stream.Config
	var f Facts
	f.Add(ops.LevelOK, "stream", "", "%s: %s, %s storage, %d replicas; consumer %s: AckWait %s; server %s", s.Name, strings.ToLower(s.Retention.String()),
		strings.ToLower(s.Storage.String()), s.Replicas, q.consumer.Name, words.About(c.AckWait), q.version)
	edit := "nats consumer edit " + s.Name + " " + q.consumer.Name
	f.When(s.Discard == jetstream.DiscardOld && (s.MaxMsgs > 0 || s.MaxBytes > 0 || s.MaxMsgsPerSubject > 0), ops.LevelDanger, "discard",
		"nats stream edit "+s.Name+" --discard=new, or no limit of messages or bytes",
		"a stream that is full drops its oldest messages, handled or not (discard old, max_msgs %d, max_bytes %d, max_msgs_per_subject %d)",
		s.MaxMsgs, s.MaxBytes, s.MaxMsgsPerSubject)
	f.When(s.MaxAge > 0, ops.LevelWarning, "max age", "a MaxAge that no outage of the workers outlasts, or none",
		"a message that is not handled within %s is dropped without a dead letter", words.About(s.MaxAge))
	f.When(c.MaxDeliver > 0, ops.LevelDanger, "max deliver", edit+" --max-deliver=-1",
		"a message that was delivered %d times is delivered to nobody and stays in the stream: look after those by a consumer of the "+
			"advisories $JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.%s.%s", c.MaxDeliver, s.Name, q.consumer.Name)
	f.When(c.MaxAckPending > 0 && c.MaxAckPending <= fewPending, ops.LevelWarning, "ack pending", edit+" --max-pending=100000",
		"delivery stops silently while %d messages are in flight or wait for their next attempt, delayed ones included", c.MaxAckPending)
	f.When(q.visibility > 0 && c.AckWait != q.visibility, ops.LevelDanger, "ack wait", fmt.Sprintf("--visibility %s, or %s --wait=%s", words.About(c.AckWait), edit,
		words.About(q.visibility)), "AckWait is %s and the worker's visibility %s: a worker does not start", words.About(c.AckWait), words.About(q.visibility))
	f.When(c.AckWait < 3*q.rtt, ops.LevelWarning, "ack wait", "a longer AckWait", "AckWait (%s) is less than three round trips of %s", words.About(c.AckWait), q.rtt)
	f.When(len(c.BackOff) > 0, ops.LevelWarning, "backoff", "a consumer without BackOff: semel delays retries itself (--backoff)",
		"BackOff %v replaces AckWait, so how long a delivery is a worker's own differs from delivery to delivery", c.BackOff)
	f.When(c.InactiveThreshold > 0, ops.LevelWarning, "consumer", edit+" with an inactive threshold of 0",
		"the server deletes the consumer, and what it knows of deliveries, when no worker runs for %s", words.About(c.InactiveThreshold))
	f.When(c.MemoryStorage, ops.LevelDanger, "consumer", "a consumer without mem_storage",
		"the consumer's state is in memory: after a restart of the server every message that is left is delivered again")
	f.When(s.Replicas%2 == 0, ops.LevelWarning, "replicas", "3 replicas", "%d replicas survive no more failures than %d", s.Replicas, s.Replicas-1)
	f.When(older(q.version, 2, 10), ops.LevelWarning, "server", "NATS 2.10 or newer", "server %s does not let sync_interval be set: it syncs every 2m", q.version)
	return f
}

// older tells whether a version is before MAJOR.MINOR; one that cannot be read is not.
func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a < major || a == major && b < minor
}
