package kafka_test

import (
	"context"
	"log"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/kafka"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/memory"
)

// Example consumes a topic. In production the store is a database: adapters/postgres, adapters/sqlite.
func Example() {
	ctx := context.Background()
	topic, err := kafka.Open(ctx, "orders", kafka.Options{Client: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:9092")}})
	if err != nil {
		log.Fatal(err)
	}
	defer topic.Close()
	consumer, err := semel.New(semel.Config{
		Queue: deadletter.With(topic, memory.NewQueue("orders")), Store: memory.NewStore(),
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			log.Printf("charge %s", a.Key.Raw)
			return nil
		}),
	})
	if err != nil {
		log.Print(err)
		return
	}
	if err := consumer.Run(ctx); err != nil {
		log.Print(err)
	}
}
