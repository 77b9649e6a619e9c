package semel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// One call for a whole batch: what it queues commits with the records of all its messages. A message that the handler
// names as a failure is set aside, and the others run again without it. With an SQL store tx is a *semel.Statements, and
// one statement with an array does the work of the batch.
func ExampleInTxBatch() {
	db := memory.Open()
	queue, store := db.Queue("orders"), db.Store()
	for _, id := range []string{"order-1", "order-2", "broken", "order-1"} {
		if err := queue.Send(context.Background(), semel.Message{ID: id}); err != nil {
			fmt.Println(err)
		}
	}
	consumer, err := semel.New(semel.Config{
		Queue: queue, Store: store, Limit: 4,
		Handler: semel.InTxBatch(func(_ context.Context, tx *memory.Effects, batch []*semel.Attempt) error {
			ids := make([]string, len(batch))
			var failed []error
			for i, a := range batch {
				ids[i] = a.Key.Raw
				if a.Key.Raw == "broken" {
					failed = append(failed, semel.ItemFailed(i, semel.Permanent(errors.New("no order number"))))
				}
			}
			tx.Append("payments", strings.Join(ids, " "))
			return errors.Join(failed...)
		}),
	})
	if err != nil {
		fmt.Println(err)
	}
	if err := consumer.Run(context.Background()); err != nil { // returns after four deliveries
		fmt.Println(err)
	}
	fmt.Println(db.Tables().Rows("payments"))
	fmt.Println(consumer.Summary().Dead, "dead letter")
	// Output:
	// [{ order-1 order-2}]
	// 1 dead letter
}
