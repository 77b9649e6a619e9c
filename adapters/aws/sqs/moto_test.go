package sqs

import (
	"context"
	"fmt"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel/adapters/aws/awstest/moto"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// TestQueueSuiteMoto runs the suite for standard queues on moto. It differs from SQS: its FIFO order and deduplication are
// wrong (FIFO queues are left out), it delivers one message to two concurrent receives (the test serialises them), and it
// responds to a long poll whose caller has gone (the suite waits until the visibility of these messages ends).
func TestQueueSuiteMoto(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("make nightly runs the suite on moto_server too")
	}
	cfg := moto.Config(moto.Start(t))
	cfg.RetryMaxAttempts = 0 // the SDK's own
	client := awssqs.NewFromConfig(cfg)
	n := make(chan int, 1)
	n <- 0
	semeltest.RunQueue(t, func(t testing.TB) semeltest.QueueSetup {
		i := <-n + 1
		n <- i
		name := fmt.Sprint("orders-", i)
		if _, err := Create(t.Context(), client, name, CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		visible := semeltest.Longer(t, 3*time.Second)
		another := func(t testing.TB) driver.Queue {
			o := Options{Visibility: visible, Wait: time.Second, deadLetterShort: true}
			return &oneReceive{reopen(t, client, name, o), make(chan struct{}, 1)}
		}
		return semeltest.QueueSetup{Queue: another(t), Visibility: visible, MaxBody: 128 << 10, Restart: another}
	})
}

// oneReceive serialises receives.
type oneReceive struct {
	*Queue
	slot chan struct{}
}

func (q *oneReceive) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	select {
	case q.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-q.slot }()
	return q.Queue.Receive(ctx, limit)
}
