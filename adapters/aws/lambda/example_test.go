package semellambda_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/semel-dev/semel"
	semellambda "github.com/semel-dev/semel/adapters/aws/lambda"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// A function for an SQS queue. The store would be DynamoDB, and main would end with lambda.Start(h.Handle). Here the example
// calls Handle itself.
func ExampleSQS() {
	h, err := semellambda.NewSQS(semel.Config{
		Store: memory.NewStore(), Key: key.FromJSON("/order_id"), Concurrency: 1,
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if a.Key.Raw == "A-2" {
				return semel.NotApplied(fmt.Errorf("the card of %s was refused", a.Key.Raw))
			}
			fmt.Println("charge", a.Key.Raw)
			return nil
		}),
	}, semellambda.Options{RedrivePolicy: true})
	if err != nil {
		log.Fatal(err)
	}
	var ev events.SQSEvent
	for i, order := range []string{"A-1", "A-2", "A-1"} { // the producer was not sure, and sent A-1 twice
		ev.Records = append(ev.Records, events.SQSMessage{
			MessageId: fmt.Sprint("m-", i), EventSourceARN: "arn:aws:sqs:us-east-1:1:orders", Body: `{"order_id":"` + order + `"}`,
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	response, err := h.Handle(ctx, ev)
	if err != nil {
		log.Fatal(err)
	}
	raw, _ := json.Marshal(response)
	fmt.Println(string(raw))
	// Output:
	// charge A-1
	// {"batchItemFailures":[{"itemIdentifier":"m-1"}]}
}
