package semel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// The rules apply to all handlers: an order that does not exist is not retried, a bank that cannot be reached opens the
// breaker, and a slow one gets more attempts.
func ExampleRetryRule() {
	errNoSuchOrder := errors.New("no such order")
	db := memory.Open()
	q := db.Queue("orders")
	tries := 0
	handler := semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
		if a.ID == "m2" {
			return fmt.Errorf("charge: %w", errNoSuchOrder)
		}
		if tries++; tries == 1 {
			return fmt.Errorf("charge: %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
		}
		return nil
	})
	cfg := semel.Config{
		Queue: q, Store: db.Store(), Handler: handler, Limit: 3,
		Retry: []semel.RetryRule{
			{Match: semel.ErrorIs(errNoSuchOrder), Permanent: true},
			{Match: semel.ErrorAs(func(e *net.OpError) bool { return e.Op == "dial" }), Unavailable: true, NotApplied: true},
			{Match: semel.ErrorIs(semel.ErrTimeout), MaxAttempts: 10, Backoff: semel.Backoff{Min: time.Minute, Max: time.Hour}},
		},
		Backoff: semel.Backoff{Min: time.Millisecond, Max: 2 * time.Millisecond},
	}
	ctx := context.Background()
	if err := q.Send(ctx, semel.Message{ID: "m1"}, semel.Message{ID: "m2"}); err != nil {
		fmt.Println(err)
		return
	}
	c, err := semel.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	s := c.Summary()
	fmt.Printf("effects %d, dead %d, breaker %s\n", s.Effects, s.Dead, c.Load().Breaker)
	deadLetters, err := q.DeadLetters(ctx, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(deadLetters[0].Reason)
	// Output:
	// effects 1, dead 1, breaker closed
	// charge: no such order
	// caused by: no such order
}
