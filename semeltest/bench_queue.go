package semeltest

import (
	"context"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// QueueRace is a queue, and loops of its client alone that do the same.
type QueueRace struct {
	// Open returns the queue of a round, which Close ends (nil = nothing is to be done).
	Open  func() driver.Queue
	Close func(driver.Queue) error
	// Send sends n bodies and waits until the broker has them. Receive receives and acks as many.
	Send    func(n int, body []byte) error
	Receive func(n int) error
	// Messages are sent and received in each round; Batch is the most of one receive.
	Messages, Batch int
}

// RaceQueue compares a queue with the client alone, on one server and in turns, because only ratios inside of one run count. It
// reports messages per second, and ratios. Bodies have 300 bytes.
func RaceQueue(b *testing.B, r QueueRace) {
	b.Helper()
	n, body := r.Messages, make([]byte, 300)
	ms := make([]driver.Message, n)
	for i := range ms {
		ms[i] = driver.Message{ID: driver.NewMessageID(), Body: body}
	}
	spent := map[string]time.Duration{}
	timed := func(what string, f func() error) {
		start := time.Now()
		if err := f(); err != nil {
			b.Fatalf("%s: %v", what, err)
		}
		spent[what] += time.Since(start)
	}
	for b.Loop() {
		timed("raw-send", func() error { return r.Send(n, body) })
		timed("raw-receive", func() error { return r.Receive(n) })
		q := r.Open()
		s, _ := driver.As[driver.Sender](q)
		timed("send", func() error { return s.Send(b.Context(), ms...) })
		timed("receive", func() error { return receiveAndAck(b.Context(), q, n, r.Batch) })
		if r.Close != nil {
			if err := r.Close(q); err != nil {
				b.Fatal(err)
			}
		}
	}
	for what, d := range spent {
		b.ReportMetric(float64(b.N*n)/d.Seconds(), what+"/s")
	}
	b.ReportMetric(spent["raw-send"].Seconds()/spent["send"].Seconds(), "send-ratio")
	b.ReportMetric(spent["raw-receive"].Seconds()/spent["receive"].Seconds(), "receive-ratio")
	b.ReportMetric(0, "ns/op")
}

func receiveAndAck(ctx context.Context, q driver.Queue, n, batch int) error {
	for got := 0; got < n; {
		ds, err := q.Receive(ctx, batch)
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
