package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

// TestSlowHandlerInATransactionFails: a handler that takes longer than MaxTx fails, is counted, and becomes a dead letter. It
// must not be repeated forever, as a transaction that was not committed is.
func TestSlowHandlerInATransactionFails(t *testing.T) {
	db := openFor(t, Options{MaxTx: 300 * time.Millisecond})
	runInTx(t, db, []string{"slow"}, semel.Config{MaxAttempts: 2}, func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
		<-ctx.Done() // at 0.9 of MaxTx
		if cause := context.Cause(ctx); !errors.Is(cause, semel.ErrTimeout) {
			t.Errorf("cancelled for %v", cause)
		}
		return ctx.Err()
	})
	deadLetters, err := db.Queue("orders").DeadLetters(t.Context(), 0)
	if err != nil || len(deadLetters) != 1 || deadLetters[0].Attempts != 2 {
		t.Errorf("dead letters %+v: %v", deadLetters, err)
	}
}

// TestLongBatchBecomesSmaller: handlers that together take longer than MaxTx, each of them less.
func TestLongBatchBecomesSmaller(t *testing.T) {
	db := openFor(t, Options{MaxTx: 300 * time.Millisecond})
	ids := make([]string, 12)
	for i := range ids {
		ids[i] = fmt.Sprintf("m-%02d", i)
	}
	var runs atomic.Int32
	// On a slow machine one handler alone may take too long now and then: it is repeated.
	runInTx(t, db, ids, semel.Config{MaxAttempts: 1000}, func(ctx context.Context, tx *sql.Tx, a *semel.Attempt) error {
		runs.Add(1)
		time.Sleep(50 * time.Millisecond) // a slow handler, which holds the write lock
		_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", a.ID)
		return err
	})
	var rows, distinct int
	if err := db.SQL().QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT id) FROM ledger").Scan(&rows, &distinct); err != nil {
		t.Fatal(err)
	}
	if rows != len(ids) || distinct != len(ids) {
		t.Errorf("%d effects of %d messages", rows, distinct)
	}
	t.Logf("%d runs of %d messages", runs.Load(), len(ids))
}

// runInTx consumes what ids name until the queue is empty.
func runInTx(t *testing.T, db *DB, ids []string, cfg semel.Config, fn func(context.Context, *sql.Tx, *semel.Attempt) error) {
	t.Helper()
	q := db.Queue("orders")
	for _, id := range ids {
		if err := q.Send(t.Context(), semel.Message{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Queue, cfg.Store, cfg.Handler = q, db.Store(), semel.InTx(fn)
	cfg.Backoff = semel.Backoff{Min: 10 * time.Millisecond, Max: 20 * time.Millisecond}
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for ctx.Err() == nil {
		if s, err := q.Stats(t.Context()); err == nil && s.Empty() {
			break
		}
		time.Sleep(20 * time.Millisecond) // the pause between two looks
	}
	if ctx.Err() != nil {
		t.Error("the queue was not emptied")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
