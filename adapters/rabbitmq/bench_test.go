package rabbitmq

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// BenchmarkQueue compares the adapter with the client alone: Send with confirmed publishing, Receive and Ack with a consumer that
// acks 100 messages at once.
//
//	go test -run '^$' -bench Queue -benchtime 10x
func BenchmarkQueue(b *testing.B) {
	dial := shared(b)
	for name, o := range map[string]CreateOptions{"quorum": {}, "classic": {Classic: true}} {
		b.Run(name, func(b *testing.B) { benchmarkQueue(b, dial, fresh(b, dial, o)) })
	}
}

func benchmarkQueue(b *testing.B, dial Dial, name string) {
	raw := link{dial: dial}
	b.Cleanup(func() { _ = raw.close() })
	semeltest.RaceQueue(b, semeltest.QueueRace{
		Messages: 5000, Batch: 100, Open: func() driver.Queue { return openQueue(b, dial, name, Options{}) },
		Close: func(q driver.Queue) error { return q.(*Queue).Close() }, // its consumer would take messages of the raw loop
		Send: func(n int, body []byte) error {
			return raw.with(func(ch *amqp.Channel) error { return rawPublish(ch, name, n, body) })
		},
		Receive: func(n int) error { return raw.with(func(ch *amqp.Channel) error { return rawConsume(ch, name, n) }) },
	})
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
