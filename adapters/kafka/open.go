package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/redeliver"
)

// ErrNotFound reports a topic that does not exist.
var ErrNotFound = errors.New("not found")

// Queue is a topic with a consumer group. Make it with [Open], and close it: the first Receive joins the group, and Close
// leaves it.
type Queue struct {
	topic  string
	name   string // the topic's, with a group other than the default: two groups of a topic are two queues
	o      Options
	client *kgo.Client // sends, and asks the brokers; it is in no group
	admin  *kadm.Client
	is     settings

	mu      sync.Mutex
	member  *member // nil: nothing was received yet
	closed  bool
	parts   map[int32]*part
	ready   []*record
	delayed redeliver.Schedule[*record]
	wake    redeliver.Wake // when there is something for Receive
	failed  error          // of a poll, for the next Receive
}

// settings are those of the topic, as they were when the queue was opened.
type settings struct {
	log        string // the name of the log in positions
	partitions int
	replicas   int
	config     map[string]string // nil: the user may not read it
}

// number returns a setting that is a number; 0 if it is unknown.
func (s *settings) number(name string) int64 {
	n, _ := strconv.ParseInt(s.config[name], 10, 64)
	return n
}

// Open opens a topic, which has to exist (see [Create]), and reads its settings. It does not join the group yet. A missing
// topic is an [ErrNotFound].
func Open(ctx context.Context, topic string, o Options) (*Queue, error) {
	q, err := connect(topic, o)
	if err != nil {
		return nil, err
	}
	if err := q.look(ctx); err != nil {
		q.client.Close()
		return nil, err
	}
	return q, nil
}

// connect talks to no broker yet.
func connect(topic string, o Options) (*Queue, error) {
	q := &Queue{topic: topic, o: o.withDefaults(topic), parts: map[int32]*part{}}
	if q.name = topic; q.o.Group != DefaultGroup(topic) {
		q.name += "/" + q.o.Group
	}
	own := append(q.o.common(), kgo.DefaultProduceTopic(topic), kgo.RecordDeliveryTimeout(q.o.CallTimeout), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(spread, true, true, nil)), kgo.AllowIdempotentProduceCancellation(), kgo.RetryTimeout(q.o.CallTimeout))
	client, err := kgo.NewClient(append(own, o.Client...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka: open topic %q: Options.Client: %w", topic, err)
	}
	q.client, q.admin = client, kadm.NewClient(client)
	return q, nil
}

// look reads the settings.
func (q *Queue) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, q.o.CallTimeout)
	defer cancel()
	m, err := q.admin.Metadata(ctx, q.topic)
	if err != nil {
		return q.explain("look up", err)
	}
	t := m.Topics[q.topic]
	if t.Err != nil {
		return q.explain("look up", t.Err)
	}
	id := q.topic
	if t.ID != (kadm.TopicID{}) { // brokers before 2.8 have none
		id = t.ID.String()
	}
	q.is = settings{log: "kafka/" + m.Cluster + "/" + id, partitions: len(t.Partitions), replicas: t.Partitions.NumReplicas()}
	cs, err := q.admin.DescribeTopicConfigs(ctx, q.topic)
	if err == nil && len(cs) == 1 {
		err = cs[0].Err
	}
	if err != nil || len(cs) != 1 {
		q.o.Logger.Warn("the settings of the topic could not be read: allow the user to describe its configuration", "topic", q.topic, "err", err)
		return nil
	}
	q.is.config = map[string]string{}
	for _, c := range cs[0].Configs {
		q.is.config[c.Key] = c.MaybeValue()
	}
	return nil
}

// Settings returns the settings of the topic, as they were when the queue was opened: its partitions, the replicas of each,
// and its configuration, which is nil if the user may not read it.
func (q *Queue) Settings() (partitions, replicas int, config map[string]string) {
	return q.is.partitions, q.is.replicas, q.is.config
}

// Features describes the queue as its settings were when it was opened.
func (q *Queue) Features() driver.QueueFeatures {
	retention := time.Duration(max(q.is.number("retention.ms"), 0)) * time.Millisecond
	if retention > 0 { // a segment is deleted when its last message is that old
		retention += time.Duration(q.is.number("segment.ms")) * time.Millisecond
	}
	durable, caveats := q.is.durability(q.topic)
	return driver.QueueFeatures{
		Name: q.name, Kind: "kafka", Retention: retention, Horizon: driver.LateBy(retention, 0, 0), Durable: durable, Caveats: caveats,
		Delays: true, Orders: true, Unconfirmed: (q.o.Window + pollMax) * max(q.is.partitions, 1),
	}
}

// durability is what the queue reports of acknowledged messages.
func (s *settings) durability(topic string) (durable bool, caveats []string) {
	inSync := s.number("min.insync.replicas")
	switch {
	case s.config == nil:
		return false, []string{fmt.Sprintf("the settings of topic %s cannot be read, so whether Kafka keeps acknowledged messages is unknown", topic)}
	case s.config["cleanup.policy"] != "delete":
		return false, []string{fmt.Sprintf("topic %s is compacted: a message is dropped unread when a later one has its key", topic)}
	case s.config["unclean.leader.election.enable"] == "true":
		return false, []string{fmt.Sprintf("topic %s elects leaders that lack acknowledged messages (unclean.leader.election.enable)", topic)}
	case s.number("retention.bytes") > 0:
		return false, []string{fmt.Sprintf("topic %s has retention.bytes: its oldest messages are dropped, also unread, when a partition "+
			"has more than %d bytes", topic, s.number("retention.bytes"))}
	case s.replicas < 2 || inSync < 2:
		return false, []string{fmt.Sprintf("Kafka acknowledges messages of topic %s when one broker has them in memory (%d replicas, "+
			"min.insync.replicas %d): those that are not on disk are lost if its machine fails", topic, s.replicas, inSync)}
	}
	return true, []string{fmt.Sprintf("Kafka acknowledges messages when %d brokers have them in memory: they are lost if the machines of "+
		"these brokers fail at once", inSync)}
}

// Close leaves the group, after it committed what is settled, and ends the connections.
func (q *Queue) Close() error {
	q.mu.Lock()
	m := q.member
	was := q.closed
	q.closed = true
	q.wake.Signal()
	q.mu.Unlock()
	if was {
		return nil
	}
	if m != nil {
		m.close()
	}
	q.client.Close()
	return nil
}

// explain words an error of a broker: what failed, the parameters that it depends on, and what to do.
func (q *Queue) explain(doing string, err error) error {
	try := ""
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		err, try = fmt.Errorf("%w: %w", ErrNotFound, err), "make it with Create, or semel queue create"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		try = "allow the user to describe, read and write the topic"
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		try = "allow the user to describe and read the group"
	}
	err = fmt.Errorf("kafka: %s topic %q with group %q (queue= and group= in a URL): %w", doing, q.topic, q.o.Group, err)
	if try != "" {
		err = fmt.Errorf("%w; Try: %s", err, try)
	}
	return err
}
