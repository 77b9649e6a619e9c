package nats

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/adapters/nats/natstest"
	"github.com/semel-dev/semel/driver"
)

// BenchmarkQueue compares the adapter with the client alone, on one server and in turns, because only ratios inside of one run
// count: Send with an asynchronous publish, Receive and Ack with FetchNoWait(500) and Ack. Bodies have 300 bytes.
//
//	go test -run '^$' -bench Queue -benchtime 20x
func BenchmarkQueue(b *testing.B) {
	for name, url := range map[string]string{
		"embedded": natstest.Start(b, natstest.Options{}).ClientURL(), "shared": sharedURL(b),
	} {
		b.Run(name, func(b *testing.B) { benchmarkQueue(b, url) })
	}
}

func benchmarkQueue(b *testing.B, url string) {
	const n = 5000
	nc := natstest.Connect(b, url)
	q := fresh(b, nc, CreateOptions{Visibility: time.Minute})
	ctx, body := b.Context(), make([]byte, 300)
	ms := make([]driver.Message, n)
	for i := range ms {
		ms[i] = driver.Message{ID: driver.NewMessageID(), Body: body}
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		b.Fatal(err)
	}
	c, err := q.js.Consumer(ctx, q.stream, q.o.Consumer)
	if err != nil {
		b.Fatal(err)
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
		timed(0, func() error { return rawPublish(ctx, js, q.stream, n, body) })
		timed(1, func() error { return rawFetch(c, n) })
		timed(2, func() error { return q.Send(ctx, ms...) })
		timed(3, func() error { return receiveAll(ctx, q, n) })
	}
	rate := func(i int) float64 { return float64(b.N*n) / spent[i].Seconds() }
	b.ReportMetric(rate(0), "raw-publish/s")
	b.ReportMetric(rate(2), "send/s")
	b.ReportMetric(rate(2)/rate(0), "send-ratio")
	b.ReportMetric(rate(1), "raw-fetch/s")
	b.ReportMetric(rate(3), "receive/s")
	b.ReportMetric(rate(3)/rate(1), "receive-ratio")
	b.ReportMetric(0, "ns/op")
}

func rawPublish(ctx context.Context, js jetstream.JetStream, subject string, n int, body []byte) error {
	acks := make([]jetstream.PubAckFuture, n)
	for i := range n {
		m := &nats.Msg{Subject: subject, Data: body}
		var err error
		if acks[i], err = js.PublishMsgAsync(m, jetstream.WithStallWait(10*time.Second)); err != nil {
			return err
		}
	}
	for _, f := range acks {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func rawFetch(c jetstream.Consumer, n int) error {
	for got := 0; got < n; {
		batch, err := c.FetchNoWait(500)
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			if err := m.Ack(); err != nil {
				return err
			}
			got++
		}
		if err := batch.Error(); err != nil {
			return err
		}
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
