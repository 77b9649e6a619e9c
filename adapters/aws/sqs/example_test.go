package sqs_test

import (
	"context"
	"errors"
	"fmt"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// The client is the SDK's; here it uses the fake. The record store would be DynamoDB or a database.
func Example() {
	ctx := context.Background()
	client := awssqs.NewFromConfig(awstest.Config(fakesqs.New(fakesqs.Options{})))

	// Once: the queue and its dead-letter queue.
	if _, err := sqs.Create(ctx, client, "orders", sqs.CreateOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	queue, err := sqs.Open(ctx, client, "orders", sqs.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The producer got no response and sent twice.
	order := []byte(`{"order_id":"A-1","amount":12}`)
	if err := queue.Send(ctx, semel.Message{ID: "1", Body: order}, semel.Message{ID: "2", Body: order}); err != nil {
		fmt.Println(err)
		return
	}
	running, stop := context.WithCancel(ctx)
	seen := 0
	c, err := semel.New(semel.Config{
		Queue: queue, Store: memory.NewStore(), Key: key.FromJSON("/order_id"),
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			fmt.Println("charge", a.Key.Raw)
			return nil
		}),
		Events: semel.Events{Delivery: func(e semel.Event) {
			if e.Kind == semel.EventSettled {
				if seen++; seen == 2 {
					stop()
				}
			}
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(running); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Println(err)
	}
	fmt.Println("acted", c.Summary().Effects, "time, replayed", c.Summary().Replayed)
	// Output:
	// charge A-1
	// acted 1 time, replayed 1
}
