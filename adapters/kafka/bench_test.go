package kafka

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/adapters/kafka/kafkatest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// BenchmarkQueue compares the adapter with the client alone, on one fake cluster: Send with ProduceSync, Receive and Ack of 500
// with PollRecords(500) and CommitRecords.
//
//	go test -run '^$' -bench Queue -benchtime 20x
func BenchmarkQueue(b *testing.B) {
	c := kafkatest.Start(b)
	q := fresh(b, 4, Options{Client: kafkatest.Client(c)})
	raw := fresh(b, 4, Options{Client: kafkatest.Client(c)})
	group, err := kgo.NewClient(append(kafkatest.Client(c), kgo.ConsumerGroup("raw"), kgo.ConsumeTopics(raw.topic), kgo.DisableAutoCommit())...)
	if err != nil {
		b.Fatal(err)
	}
	defer group.Close()
	semeltest.RaceQueue(b, semeltest.QueueRace{
		Messages: 5000, Batch: 500, Open: func() driver.Queue { return q }, Receive: func(n int) error { return rawPoll(b.Context(), group, n) },
		Send: func(n int, body []byte) error {
			rs := make([]*kgo.Record, n)
			for i := range rs {
				rs[i] = &kgo.Record{Value: body}
			}
			return raw.client.ProduceSync(b.Context(), rs...).FirstErr()
		},
	})
}

func rawPoll(ctx context.Context, c *kgo.Client, n int) error {
	for got := 0; got < n; {
		fetches := c.PollRecords(ctx, 500)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := c.CommitRecords(ctx, fetches.Records()...); err != nil {
			return err
		}
		got += fetches.NumRecords()
	}
	return nil
}
