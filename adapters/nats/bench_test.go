package nats

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/adapters/nats/natstest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// BenchmarkQueue compares the adapter with the client alone: Send with an asynchronous publish, Receive and Ack with
// FetchNoWait(500) and Ack.
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
	nc := natstest.Connect(b, url)
	q := fresh(b, nc, CreateOptions{Visibility: time.Minute})
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		b.Fatal(err)
	}
	c, err := q.js.Consumer(b.Context(), q.stream, q.o.Consumer)
	if err != nil {
		b.Fatal(err)
	}
	semeltest.RaceQueue(b, semeltest.QueueRace{
		Messages: 5000, Batch: 500, Open: func() driver.Queue { return q }, Receive: func(n int) error { return rawFetch(c, n) },
		Send: func(n int, body []byte) error { return rawPublish(b.Context(), js, q.stream, n, body) },
	})
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
