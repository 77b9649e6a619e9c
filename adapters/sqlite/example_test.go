package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/outbox"
)

// A consumer on one SQLite file: the effect is a row, and it commits with the idempotency record and the ack.
func Example() {
	dir, err := os.MkdirTemp("", "semel-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "orders.db"), sqlite.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.SQL().Exec(`CREATE TABLE charges (order_id TEXT, amount INTEGER)`); err != nil {
		log.Fatal(err)
	}
	orders := db.Queue("orders")
	// The producer sends order 1 twice: a retry after a network error gives it another message id.
	for _, body := range []string{`{"order":1,"amount":100000}`, `{"order":2,"amount":5000}`, `{"amount":100000,"order":1}`} {
		if err := orders.Send(ctx, semel.Message{Body: []byte(body)}); err != nil {
			log.Fatal(err)
		}
	}
	c, err := semel.New(semel.Config{
		Queue: orders, Store: db.Store(), Limit: 3,
		Key: key.FromJSON("/order"),
		Handler: semel.InTx(func(ctx context.Context, tx *semel.Statements, a *semel.Attempt) error {
			tx.Exec(`INSERT INTO charges SELECT $1, json_extract($2, '$.amount')`, a.Key.Raw, string(a.Body))
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
	var n, sum int
	if err := db.SQL().QueryRow(`SELECT count(*), sum(amount) FROM charges`).Scan(&n, &sum); err != nil {
		log.Fatal(err)
	}
	s := c.Summary()
	fmt.Printf("%d charges of ¥%d in all; %d executed, %d replayed\n", n, sum, s.Effects, s.Replayed)
	// Output: 2 charges of ¥105000 in all; 2 executed, 1 replayed
}

// An outbox: what the handler emits commits with its record, and a relay carries it to another database. A process that
// dies anywhere on the way costs a copy at most, which the consumer on the other side takes for what it is.
func Example_outbox() {
	dir, err := os.MkdirTemp("", "semel-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	shop, err := sqlite.Open(ctx, filepath.Join(dir, "shop.db"), sqlite.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer shop.Close()
	post, err := sqlite.Open(ctx, filepath.Join(dir, "post.db"), sqlite.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer post.Close()
	if err := shop.Queue("orders").Send(ctx, semel.Message{ID: "order-1", Body: []byte("a book")}); err != nil {
		log.Fatal(err)
	}
	c, err := semel.New(semel.Config{
		Queue: shop.Queue("orders"), Store: shop.Store(), Limit: 1,
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			a.Emit(semel.Message{Queue: "parcels", Body: append([]byte("send "), a.Body...)})
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
	relay, err := outbox.New(outbox.Config{From: shop.Queue("parcels"), To: post.Queue("parcels")})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	parcels, err := post.Queue("parcels").Receive(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s; its id is in its header too: %v\n", parcels[0].Body, parcels[0].ID == parcels[0].Headers[outbox.HeaderID])
	// Output: send a book; its id is in its header too: true
}
