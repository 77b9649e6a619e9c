package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/semel-dev/semel/adapters/kafka/kafkatest"
	"github.com/semel-dev/semel/driver"
)

// timeout bounds what must happen, on a machine that is busy.
const timeout = time.Minute

// fake starts a cluster, with a queue on a topic of its own.
func fake(t *testing.T, partitions int, o Options) (*kfake.Cluster, *Queue) {
	t.Helper()
	c := kafkatest.Start(t)
	o.Client = kafkatest.Client(c, o.Client...)
	return c, fresh(t, partitions, o)
}

// send sends messages with these numbers as IDs.
func send(t testing.TB, q *Queue, from, to int) {
	t.Helper()
	ms := make([]driver.Message, 0, to-from)
	for i := from; i < to; i++ {
		ms = append(ms, driver.Message{ID: fmt.Sprint(i), Group: fmt.Sprint(i), Body: []byte("body")})
	}
	if err := q.Send(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
}

// receive waits for n messages.
func receive(t testing.TB, q *Queue, n int) (out []driver.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for len(out) < n {
		ds, err := q.Receive(ctx, n-len(out))
		if err != nil {
			t.Fatalf("received %d messages of %d: %v", len(out), n, err)
		}
		out = append(out, ds...)
	}
	return out
}

func settle(t testing.TB, q *Queue, a driver.Action, want driver.Outcome, ds ...driver.Delivery) {
	t.Helper()
	for _, d := range ds {
		if out, err := q.Settle(t.Context(), driver.Settlement{Receipt: d.Receipt, Action: a}); err != nil || out[0] != want {
			t.Errorf("%v of message %s: %v, %v, want %v", a, d.ID, out, err, want)
		}
	}
}

// position is what the brokers have as the group's position in a partition; 0 if they have none.
func position(c *kfake.Cluster, q *Queue, partition int32) int64 {
	info := c.GroupInfo(q.o.Group)
	if info == nil {
		return 0
	}
	return info.Commits[q.topic][partition].Offset
}

// committed waits until the group's position in a partition is at.
func committed(t testing.TB, c *kfake.Cluster, q *Queue, partition int32, at int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := c.WaitGroupInfo(ctx, q.o.Group, func(i *kfake.GroupInfo) bool { return i != nil && i.Commits[q.topic][partition].Offset == at })
	if err != nil {
		t.Fatalf("the position of partition %d is %d, want %d: %v", partition, position(c, q, partition), at, err)
	}
}

func stable(t testing.TB, c *kfake.Cluster, q *Queue, members int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := c.WaitGroupStable(ctx, q.o.Group, members); err != nil {
		t.Fatalf("the group has no %d members: %v", members, err)
	}
}

// empty wants a queue with nothing left.
func empty(t testing.TB, q *Queue) {
	t.Helper()
	if s, err := q.Stats(t.Context()); err != nil || !s.Empty() {
		t.Errorf("the queue is not empty: %+v, %v", s, err)
	}
}
