package mysql_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/mysql"
	"github.com/semel-dev/semel/key"
)

// A consumer on one database: the effect is a row, and it commits with the idempotency record and the ack.
func Example() {
	ctx := context.Background()
	db, err := mysql.Open(ctx, os.Getenv("DATABASE_URL"), mysql.Options{}) // mysql://app:secret@db.example.com:3306/shop?tls=true
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	c, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(), Key: key.FromJSON("/order"),
		Handler: semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
			tx.Exec("INSERT INTO charges (order_id, body) VALUES (?, ?)", a.Key.Raw, a.Body)
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Summary().Effects)
}
