package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
)

// A consumer on one SQLite file: the effect is a row, and it commits with the idempotency record and the ack.
func Example() {
	dir, err := os.MkdirTemp("", "semel-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "orders.db"), sqlite.Options{})
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
		Key: semel.KeyFromJSON("/order"),
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
