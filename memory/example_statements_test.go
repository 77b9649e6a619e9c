package memory_test

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// A handler that takes *Statements in a unit test: no database, and every statement that would have been committed.
func ExampleWithStatements() {
	charge := semel.InTx(func(_ context.Context, tx *semel.Statements, a *semel.Attempt) error {
		tx.Exec("INSERT INTO charges (order_id) VALUES ($1)", a.Key.Raw)
		return nil
	})

	ctx := context.Background()
	db := memory.Open(memory.WithStatements())
	queue := db.Queue("orders")
	if err := queue.Send(ctx, semel.Message{ID: "o-1"}, semel.Message{ID: "o-1"}, semel.Message{ID: "o-2"}); err != nil {
		panic(err)
	}
	c, err := semel.New(semel.Config{Queue: queue, Store: db.Store(), Handler: charge, Limit: 3, Concurrency: 1})
	if err != nil {
		panic(err)
	}
	if err := c.Run(ctx); err != nil {
		panic(err)
	}
	for _, s := range db.Statements() {
		fmt.Println(s.SQL, s.Args)
	}
	// Output:
	// INSERT INTO charges (order_id) VALUES ($1) [o-1]
	// INSERT INTO charges (order_id) VALUES ($1) [o-2]
}
