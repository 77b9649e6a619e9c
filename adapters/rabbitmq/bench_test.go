package rabbitmq

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
)

// BenchmarkQueue compares the adapter with the client alone, on one server and in turns, because only ratios inside of one run
// count: Send with confirmed publishing, Receive and Ack with a consumer that acks 100 messages at once. Bodies have 300 bytes.
//
//	go test -run '^$' -bench Queue -benchtime 10x
func BenchmarkQueue(b *testing.B) {
	dial := shared(b)
	for name, o := range map[string]CreateOptions{"quorum": {}, "classic": {Classic: true}} {
		b.Run(name, func(b *testing.B) { benchmarkQueue(b, dial, fresh(b, dial, o)) })
	}
}

func benchmarkQueue(b *testing.B, dial Dial, name string) {
	const n = 5000
	ctx, body := b.Context(), make([]byte, 300)
	ms := make([]driver.Message, n)
	for i := range ms {
		ms[i] = driver.Message{ID: driver.NewMessageID(), Body: body}
	}
	raw := link{dial: dial}
	b.Cleanup(func() { _ = raw.close() })
	var spent [4]time.Duration
	timed := func(i int, f func() error) {
		start := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		spent[i] += time.Since(start)
	}
	sender := openQueue(b, dial, name, Options{})
	for b.Loop() {
		timed(0, func() error { return raw.with(func(ch *amqp.Channel) error { return rawPublish(ch, name, n, body) }) })
		timed(1, func() error { return raw.with(func(ch *amqp.Channel) error { return rawConsume(ch, name, n) }) })
		timed(2, func() error { return sender.Send(ctx, ms...) })
		q := openQueue(b, dial, name, Options{})
		timed(3, func() error { return receiveAll(ctx, q, n) })
		if err := q.Close(); err != nil {
			b.Fatal(err)
		}
	}
	rate := func(i int) float64 { return float64(b.N*n) / spent[i].Seconds() }
	b.ReportMetric(rate(0), "raw-publish/s")
	b.ReportMetric(rate(2), "send/s")
	b.ReportMetric(rate(2)/rate(0), "send-ratio")
	b.ReportMetric(rate(1), "raw-consume/s")
	b.ReportMetric(rate(3), "receive/s")
	b.ReportMetric(rate(3)/rate(1), "receive-ratio")
	b.ReportMetric(0, "ns/op")
}

func rawPublish(ch *amqp.Channel, name string, n int, body []byte) error {
	if err := ch.Confirm(false); err != nil {
		return err
	}
	all := make([]*amqp.DeferredConfirmation, n)
	for i := range all {
		var err error
		if all[i], err = ch.PublishWithDeferredConfirm("", name, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}); err != nil {
			return err
		}
	}
	for _, c := range all {
		c.Wait()
	}
	return nil
}

func rawConsume(ch *amqp.Channel, name string, n int) error {
	if err := ch.Qos(DefaultPrefetch, 0, false); err != nil {
		return err
	}
	in, err := ch.Consume(name, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for got := 1; got <= n; got++ {
		if d := <-in; got%100 == 0 {
			if err := d.Ack(true); err != nil {
				return err
			}
		}
	}
	return ch.Qos(DefaultPrefetch, 0, false) // the acks have arrived
}

func receiveAll(ctx context.Context, q *Queue, n int) error {
	for got := 0; got < n; {
		ds, err := q.Receive(ctx, 100)
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
