package redis_test

import (
	"context"
	"log"

	goredis "github.com/redis/go-redis/v9"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/redis"
	"github.com/semel-dev/semel/key"
)

// A worker whose queue and records are in one Redis: acks commit with records. Effects are elsewhere, and take the effect key.
func Example() {
	ctx := context.Background()
	client := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}, ContextTimeoutEnabled: true})
	defer client.Close()
	store, err := redis.Open(ctx, client, redis.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.CreateQueue(ctx, "orders", 0); err != nil {
		log.Fatal(err)
	}
	queue, err := store.Queue(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	c, err := semel.New(semel.Config{
		Queue: queue, Store: store, Key: key.FromJSON("/order_id"),
		Handler: semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			return charge(ctx, a.EffectKey("charge"), a.Message.Body)
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil { // until ctx is done
		log.Fatal(err)
	}
}

func charge(context.Context, string, []byte) error { return nil }
