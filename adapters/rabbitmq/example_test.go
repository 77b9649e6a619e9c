package rabbitmq_test

import (
	"context"
	"log"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/rabbitmq"
	"github.com/semel-dev/semel/driver/deadletter"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// The records and the dead letters are in memory here. Use those of a database: adapters/postgres, adapters/sqlite.
func Example() {
	ctx := context.Background()
	dial := func() (*amqp.Connection, error) { return amqp.Dial(os.Getenv("AMQP_URL")) }
	if err := rabbitmq.Create(ctx, dial, "orders", rabbitmq.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	q, err := rabbitmq.Open(ctx, dial, "orders", rabbitmq.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	c, err := semel.New(semel.Config{
		Queue: deadletter.With(q, memory.NewQueue("dead letters")), Store: memory.NewStore(), Key: key.FromJSON("/order"),
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			log.Printf("order %s, effect key %s", a.Key.Raw, a.EffectKey("charge"))
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(c.Run(ctx))
}
