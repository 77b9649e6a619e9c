package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
)

// A unique business key in the table itself is the last line of defence: it holds where the idempotency key fails, as
// with a producer that gives the same order a new message id while only ids are compared. What it refuses is a
// duplicate and no failure: Drop completes the message without an effect, so that nothing is retried and nobody is
// called.
func Example_uniqueBusinessKey() {
	if err := uniqueBusinessKey(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// orders: 1
	// executed 1, dropped 1, replayed 1, dead 0
}

func uniqueBusinessKey(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "semel")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "orders.db"), sqlite.Options{Create: true})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.SQL().ExecContext(ctx, "CREATE TABLE orders (order_id TEXT UNIQUE, amount INTEGER)"); err != nil {
		return err
	}
	queue := db.Queue("orders")
	order := []byte(`{"order_id":"order-12345","amount":100000}`)
	for _, id := range []string{"message-1", "message-2", "message-1"} { // delivered twice, and sent twice
		if err := queue.Send(ctx, semel.Message{ID: id, Body: order}); err != nil {
			return err
		}
	}
	consumer, err := semel.New(semel.Config{
		Queue: queue, Store: db.Store(), Limit: 3,
		Handler: semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
			const insert = `INSERT INTO orders (order_id, amount) SELECT $1 ->> 'order_id', $1 ->> 'amount' WHERE true
				ON CONFLICT (order_id) DO NOTHING`
			res, err := tx.ExecContext(ctx, insert, string(a.Body))
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 1 {
				return err
			}
			return semel.Drop("duplicate: the order is there")
		}),
	})
	if err != nil {
		return err
	}
	if err := consumer.Run(ctx); err != nil {
		return err
	}
	var n int
	if err := db.SQL().QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n); err != nil {
		return err
	}
	s := consumer.Summary()
	fmt.Printf("orders: %d\nexecuted %d, dropped %d, replayed %d, dead %d\n", n, s.Effects, s.Dropped, s.Replayed, s.Dead)
	return nil
}
