package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/adapters/kafka/kafkatest"
	"github.com/semel-dev/semel/driver"
)

// BenchmarkQueue compares the adapter with the client alone, on one fake cluster and in turns, because only ratios inside of one
// run count: Send with ProduceSync, Receive and Ack of 500 with PollRecords(500) and CommitRecords. Bodies have 300 bytes.
//
//	go test -run '^$' -bench Queue -benchtime 20x
func BenchmarkQueue(b *testing.B) {
	const n = 5000
	c := kafkatest.Start(b)
	q := fresh(b, 4, Options{Client: kafkatest.Client(c)})
	raw := fresh(b, 4, Options{Client: kafkatest.Client(c)})
	group, err := kgo.NewClient(append(kafkatest.Client(c), kgo.ConsumerGroup("raw"), kgo.ConsumeTopics(raw.topic), kgo.DisableAutoCommit())...)
	if err != nil {
		b.Fatal(err)
	}
	defer group.Close()
	ctx, body := b.Context(), make([]byte, 300)
	ms, rs := make([]driver.Message, n), make([]*kgo.Record, n)
	for i := range ms {
		ms[i] = driver.Message{ID: driver.NewMessageID(), Body: body}
	}
	var spent [4]time.Duration
	timed := func(i int, f func() error) {
		start := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		spent[i] += time.Since(start)
	}
	for b.Loop() {
		for i := range rs {
			rs[i] = &kgo.Record{Value: body}
		}
		timed(0, func() error { return raw.client.ProduceSync(ctx, rs...).FirstErr() })
		timed(1, func() error { return rawPoll(ctx, group, n) })
		timed(2, func() error { return q.Send(ctx, ms...) })
		timed(3, func() error { return receiveAll(ctx, q, n) })
	}
	rate := func(i int) float64 { return float64(b.N*n) / spent[i].Seconds() }
	b.ReportMetric(rate(0), "raw-produce/s")
	b.ReportMetric(rate(2), "send/s")
	b.ReportMetric(rate(2)/rate(0), "send-ratio")
	b.ReportMetric(rate(1), "raw-poll/s")
	b.ReportMetric(rate(3), "receive/s")
	b.ReportMetric(rate(3)/rate(1), "receive-ratio")
	b.ReportMetric(0, "ns/op")
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

func receiveAll(ctx context.Context, q *Queue, n int) error {
	for got := 0; got < n; {
		ds, err := q.Receive(ctx, 500)
		if err != nil {
			return err
		}
		ss := make([]driver.Settlement, len(ds))
		for i, d := range ds {
			ss[i].Receipt = d.Receipt
		}
		if _, err := q.Settle(ctx, ss...); err != nil {
			return err
		}
		got += len(ds)
	}
	return nil
}
