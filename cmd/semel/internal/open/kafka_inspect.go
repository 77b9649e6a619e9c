package open

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/semel-dev/semel/adapters/kafka"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// kafkaQueue is what the brokers say of a topic and its group.
type kafkaQueue struct {
	topic, group         string
	partitions, replicas int
	config               map[string]string // nil: it may not be read
	offsetsKept          time.Duration     // offsets.retention.minutes; 0 = unknown
	members              []string          // client IDs of the group's members
	kept                 time.Duration     // how long a message may be in the topic
}

func (q *kafkaQueue) duration(name string) time.Duration {
	n, _ := strconv.ParseInt(q.config[name], 10, 64)
	return time.Duration(max(n, 0)) * time.Millisecond
}

// Live is how the topic is set now.
func (d *kafkaDB) Live(ctx context.Context, queue string) (*ops.LiveQueue, error) {
	q, err := d.look(ctx, queue)
	if err != nil {
		return nil, err
	}
	return &ops.LiveQueue{Retention: q.kept}, nil
}

func (d *kafkaDB) look(ctx context.Context, name string) (q kafkaQueue, err error) {
	q.topic, q.group = name, cmp.Or(d.o.Group, kafka.DefaultGroup(name))
	topic, err := kafka.Open(ctx, name, d.o.Options)
	if err != nil {
		return q, kafkaError(d.t, "examine", err)
	}
	q.partitions, q.replicas, q.config = topic.Settings()
	q.kept = topic.Features().Retention
	if err := topic.Close(); err != nil {
		return q, kafkaError(d.t, "examine", err)
	}
	err = d.ask(ctx, "examine", func(ctx context.Context, admin *kadm.Client) error {
		if m, err := admin.BrokerMetadata(ctx); err == nil && len(m.Brokers) > 0 {
			cs, err := admin.DescribeBrokerConfigs(ctx, m.Brokers[0].NodeID)
			for _, c := range cs {
				for _, kv := range c.Configs {
					if n, e := strconv.Atoi(kv.MaybeValue()); err == nil && e == nil && kv.Key == "offsets.retention.minutes" {
						q.offsetsKept = time.Duration(n) * time.Minute
					}
				}
			}
		}
		groups, err := admin.DescribeGroups(ctx, q.group)
		if errors.Is(err, kerr.GroupIDNotFound) {
			return nil
		}
		for _, g := range groups {
			for _, m := range g.Members {
				q.members = append(q.members, m.ClientID)
			}
		}
		return err
	})
	return q, err
}

// Examine tells how topic and group of the URL are set. Which acknowledged messages can be lost the queue's features say.
func (d *kafkaDB) Examine(ctx context.Context, _ Options) ([]ops.Check, error) {
	q, err := d.look(ctx, d.t.QueueName())
	if err != nil {
		return nil, err
	}
	return q.facts(), nil
}

func (q *kafkaQueue) facts() []ops.Check {
	var f Facts
	f.Add(ops.LevelOK, "topic", "", "%s: %d partitions, %d replicas; group %s: %d members", q.topic, q.partitions, q.replicas, q.group, len(q.members))
	edit := "kafka-configs.sh --alter --topic " + q.topic + " --add-config "
	f.When(q.config == nil, ops.LevelWarning, "topic", "allow the user to describe the configuration of the topic", "the settings of the topic cannot be read")
	policy, kept := q.config["cleanup.policy"], q.duration("retention.ms")
	f.When(strings.Contains(policy, "compact"), ops.LevelDanger, "cleanup", edit+"cleanup.policy=delete",
		"the topic is compacted (cleanup.policy %s): a message is dropped unread when a later one has its key", policy)
	f.When(kept > 0 && kept < 24*time.Hour, ops.LevelWarning, "retention", edit+"retention.ms=604800000",
		"a message that is not handled within %s is dropped without a dead letter", words.About(kept))
	limit := q.config["retention.bytes"]
	f.When(limit != "" && limit != "-1", ops.LevelWarning, "retention", edit+"retention.bytes=-1",
		"a partition that is larger than %s bytes drops its oldest messages, handled or not", limit)
	f.When(q.offsetsKept > 0 && kept > 0 && q.offsetsKept < kept, ops.LevelWarning, "offsets", "offsets.retention.minutes of the brokers: longer than the topic's retention",
		"the position of a group without members is dropped after %s: everything that the topic keeps (%s) is then delivered again, and replayed "+
			"only if its records are kept as long", words.About(q.offsetsKept), words.About(kept))
	f.When(q.partitions == 1, ops.LevelOK, "partitions", "",
		"one partition: one worker receives at a time, and others take over")
	for _, m := range q.members {
		f.When(!strings.HasPrefix(m, "semel"), ops.LevelWarning, "group", "a group of its own for each program (group= in the URL)",
			"the group has a member that is not semel (%q): what it receives has no records", m)
	}
	return f
}
