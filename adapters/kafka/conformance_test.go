package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/semel-dev/semel/adapters/kafka/kafkatest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

var names atomic.Int64

// fresh makes a queue on a topic of its own.
func fresh(t testing.TB, partitions int, o Options) *Queue {
	t.Helper()
	topic := fmt.Sprintf("semel-test-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), names.Add(1))
	if err := Create(t.Context(), topic, CreateOptions{Options: o, Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the queue is closed

		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		c, err := kgo.NewClient(o.Client...)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := kadm.NewClient(c).DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Logf("remove topic %s: %v", topic, err)
		}
	})
	return open(t, topic, o)
}

func open(t testing.TB, topic string, o Options) *Queue {
	t.Helper()
	q, err := Open(t.Context(), topic, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// die ends the membership as the end of the process does: it commits nothing and does not leave. Then the group expels the
// member, as it does when the session ends.
func die(t testing.TB, q *Queue) {
	t.Helper()
	q.mu.Lock()
	m := q.member
	q.mu.Unlock()
	if m == nil {
		return
	}
	id, _ := m.client.GroupMetadata()
	m.end()
	m.wg.Wait()
	expel(t, q, id)
}

// expel removes a member from the group, as the end of its session does.
func expel(t testing.TB, q *Queue, id string) {
	t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = q.o.Group, id
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = id
	req.Members = append(req.Members, member)
	if _, err := req.RequestWith(t.Context(), q.client); err != nil {
		t.Errorf("expel member %s: %v", id, err)
	}
}

// clusters runs a test on the fake, and on the brokers that SEMEL_TEST_KAFKA names.
func clusters(t *testing.T, f func(t *testing.T, o Options)) {
	t.Run("fake", func(t *testing.T) {
		f(t, Options{Client: kafkatest.Client(kafkatest.Start(t))})
	})
	t.Run("real", func(t *testing.T) {
		brokers := os.Getenv("SEMEL_TEST_KAFKA")
		if brokers == "" {
			server.LeaveOut(t, "kafka", "SEMEL_TEST_KAFKA names no broker")
		}
		f(t, Options{Client: []kgo.Opt{kgo.SeedBrokers(strings.Split(brokers, ",")...)}})
	})
}

func TestQueue(t *testing.T) {
	clusters(t, func(t *testing.T, o Options) {
		for _, partitions := range []int{1, 3} {
			t.Run(fmt.Sprint(partitions), func(t *testing.T) {
				semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
					q := fresh(t, partitions, o)
					return semeltest.QueueSetup{Queue: q, MaxBody: 900 << 10, Restart: func(t testing.TB) driver.Queue {
						die(t, q)
						return open(t, q.topic, o)
					}}
				})
			})
		}
	})
}

func TestPair(t *testing.T) {
	clusters(t, func(t *testing.T, o Options) {
		semeltest.RunPair(t, func(t testing.TB) semeltest.PairSetup {
			q := fresh(t, 2, o)
			return semeltest.PairSetup{Queue: deadletter.With(q, memory.NewQueue("dead")), Store: memory.NewStore()}
		})
	})
}
