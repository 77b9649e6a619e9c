package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest/server"
)

// The examples take their database from DATABASE_URL, as programs do. TestExamples runs them on one of its own.

// TestExamples runs every example and counts what it did to the application's table.
func TestExamples(t *testing.T) {
	for name, example := range map[string]func(){
		"statements": Example, "pgx": Example_openTransaction, "database/sql": Example_databaseSQL, "batch": Example_batch,
	} {
		t.Run(name, func(t *testing.T) {
			url := server.Database(t)
			t.Setenv("DATABASE_URL", url)
			if _, _, err := postgres.Migrate(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			db, err := postgres.Open(t.Context(), url, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if _, err := db.Pool().Exec(t.Context(), `CREATE TABLE charges (order_id text, amount bigint)`); err != nil {
				t.Fatal(err)
			}
			// The producer sends order 1 twice: a retry after a network error gives it another message id.
			for _, body := range []string{`{"order":1,"amount":100000}`, `{"order":2,"amount":5000}`, `{"amount":100000,"order":1}`} {
				if err := db.Queue("orders").Send(t.Context(), semel.Message{Body: []byte(body)}); err != nil {
					t.Fatal(err)
				}
			}
			example()
			var n, sum int
			if err := db.Pool().QueryRow(t.Context(), `SELECT count(*), sum(amount) FROM charges`).Scan(&n, &sum); err != nil {
				t.Fatal(err)
			}
			if n != 2 || sum != 105_000 {
				t.Errorf("%d charges of %d in all, want 2 of 105000", n, sum)
			}
		})
	}
	t.Run("SendTx", func(t *testing.T) {
		url := server.Database(t)
		t.Setenv("DATABASE_URL", url)
		if _, _, err := postgres.Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		ExampleQueue_SendTx()
		db, err := postgres.Open(t.Context(), url, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if st, err := db.Queue("orders").Stats(t.Context()); err != nil || st.Visible != 1 {
			t.Errorf("%+v %v, want one message", st, err)
		}
	})
}

// A consumer whose effect is SQL that it queues: effect, record and ack commit in one round trip (mode A2). The one to
// prefer.
func Example() {
	ctx := context.Background()
	db, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	c, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(), Limit: 3,
		Key: key.FromJSON("/order"),
		Handler: semel.InTx(func(ctx context.Context, tx *semel.Statements, a *semel.Attempt) error {
			tx.Exec(`INSERT INTO charges SELECT $1, ($2::jsonb ->> 'amount')::bigint`, a.Key.Raw, string(a.Body))
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A handler that has to read what it changes gets the open transaction that holds the record (modes B and C).
func Example_openTransaction() {
	ctx := context.Background()
	db, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	c, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(), Limit: 3,
		Key: key.FromJSON("/order"),
		Handler: semel.InTx(func(ctx context.Context, tx pgx.Tx, a *semel.Attempt) error {
			var total int64
			err := tx.QueryRow(ctx, `INSERT INTO charges SELECT $1, ($2::jsonb ->> 'amount')::bigint RETURNING amount`,
				a.Key.Raw, string(a.Body)).Scan(&total)
			a.SetResult(fmt.Appendf(nil, "charged %d", total))
			return err
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// The same for code that knows database/sql.
func Example_databaseSQL() {
	ctx := context.Background()
	db, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	c, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(), Limit: 3,
		Key: key.FromJSON("/order"),
		Handler: semel.InTx(func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO charges SELECT $1, ($2::jsonb ->> 'amount')::bigint`, a.Key.Raw, string(a.Body))
			return err
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A handler that gets a whole batch can write it with one statement.
func Example_batch() {
	ctx := context.Background()
	db, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	c, err := semel.New(semel.Config{
		Queue: db.Queue("orders"), Store: db.Store(), Limit: 3,
		Key: key.FromJSON("/order"),
		Handler: semel.InTxBatch(func(ctx context.Context, tx pgx.Tx, batch []*semel.Attempt) error {
			var keys, bodies []string
			for _, a := range batch {
				keys, bodies = append(keys, a.Key.Raw), append(bodies, string(a.Body))
			}
			_, err := tx.Exec(ctx, `INSERT INTO charges SELECT k, (b::jsonb ->> 'amount')::bigint
				FROM unnest($1::text[], $2::text[]) AS x (k, b)`, keys, bodies)
			return err
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A producer that sends in the transaction of its own change: the message is there exactly when the change is.
func ExampleQueue_SendTx() {
	ctx := context.Background()
	db, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	orders := db.Queue("orders")
	err = pgx.BeginFunc(ctx, db.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS placed (order_id bigint)`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO placed VALUES (7)`); err != nil {
			return err
		}
		return orders.SendTx(ctx, tx, semel.Message{Body: []byte(`{"order":7,"amount":100}`)})
	})
	if err != nil {
		log.Fatal(err)
	}
	orders.Wake()
}
