package memory_test

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// A batch handler gets all messages whose claims one transaction holds, and can do the work of all of them at once: here
// one row for the whole batch. It commits with their records.
func Example_batch() {
	db := memory.Open()
	queue, store := db.Queue("orders"), db.Store()
	for _, id := range []string{"order-1", "order-2", "order-1", "order-3"} {
		if err := queue.Send(context.Background(), semel.Message{ID: id}); err != nil {
			fmt.Println(err)
		}
	}
	consumer, err := semel.New(semel.Config{
		Queue: queue, Store: store, Limit: 4,
		Handler: semel.InTxBatch(func(_ context.Context, tx *memory.Effects, batch []*semel.Attempt) error {
			tx.Append("invoices", fmt.Sprintf("%d orders", len(batch)))
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
	}
	if err := consumer.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(db.Tables().Rows("invoices"), consumer.Summary().Replayed)
	// Output: [{ 3 orders}] 1
}

// A consumer on a database in memory: two copies of one order are sent, one payment is made. The payment commits with
// the record of the order, so nothing between the two can fail.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	db := memory.Open()
	queue, store := db.Queue("orders"), db.Store()
	for _, id := range []string{"order-1", "order-2", "order-1"} {
		if err := queue.Send(ctx, semel.Message{ID: id}); err != nil {
			fmt.Println(err)
		}
	}
	consumer, err := semel.New(semel.Config{
		Queue: queue, Store: store, Limit: 3, Concurrency: 1,
		Handler: semel.InTx(func(_ context.Context, tx *memory.Effects, a *semel.Attempt) error {
			tx.Append("payments", a.Key.Raw)
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
	}
	if err := consumer.Run(ctx); err != nil { // returns after three deliveries
		fmt.Println(err)
	}
	stop()
	fmt.Println(db.Tables().Rows("payments"), consumer.Summary().Replayed)
	// Output: [{ order-1} { order-2}] 1
}
