package steps_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/steps"
)

// attempts calls a function with steps as often as a consumer would, until it has ended.
func attempts(store semel.Store, key string, fn steps.Func) {
	for {
		_, _, err := semel.Do(context.Background(), store, semel.Key{Consumer: "example", Raw: key},
			func(ctx context.Context, a *semel.Attempt) (any, error) { return nil, steps.With(ctx, a, fn) })
		switch {
		case err == nil:
			fmt.Println("done")
			return
		case semel.DispositionOf(err).Permanent:
			fmt.Println("failed:", err)
			return
		}
		fmt.Println("again:", err)
	}
}

// A trip is booked in three steps. The car fails: the hotel and the flight are cancelled, and so is the car, because the
// outcome of a request that failed is unknown.
func Example() {
	book := func(what string) func(context.Context, string) (string, error) {
		return func(_ context.Context, key string) (string, error) {
			if what == "car" {
				return "", steps.Abort(errors.New("no cars left"))
			}
			fmt.Println("book", what) // POST /bookings, Idempotency-Key: key
			return what + "-4711", nil
		}
	}
	cancel := steps.Undo(func(_ context.Context, u steps.Reversal) error {
		booking := "whatever became of it"
		if u.Done {
			if err := u.Result(&booking); err != nil {
				return err
			}
		}
		fmt.Printf("cancel %s: %s\n", u.Step, booking) // DELETE /bookings/by-key/{u.Key}, Idempotency-Key: u.UndoKey
		return nil
	})
	attempts(memory.NewStore(), "trip-1", func(ctx context.Context, r *steps.Run) error {
		for _, what := range []string{"flight", "hotel", "car"} {
			if _, err := steps.Do(ctx, r, what, book(what), cancel); err != nil {
				return err
			}
		}
		return nil
	})
	// Output:
	// book flight
	// book hotel
	// cancel car: whatever became of it
	// cancel hotel: hotel-4711
	// cancel flight: flight-4711
	// failed: step "car": no cars left (compensated)
}

// seats is a downstream whose cancellation leaves a tombstone: CREATE TABLE seats (key TEXT PRIMARY KEY, state TEXT).
type seats map[string]string

// reserve is INSERT … ON CONFLICT (key) DO NOTHING, and then a look at the state.
func (s seats) reserve(key string) error {
	if s[key] == "" {
		s[key] = "reserved"
	}
	if s[key] == "cancelled" {
		return errors.New("refused: cancelled before it came")
	}
	return nil
}

// cancel is INSERT … 'cancelled' ON CONFLICT (key) DO UPDATE SET state = 'cancelled': with nothing there it leaves a
// tombstone.
func (s seats) cancel(key string) { s[key] = "cancelled" }

// The request for the seat is delayed on its way: the step fails, and is compensated before the request arrives. The late
// original finds the tombstone, and is refused.
func ExampleUndo_tombstone() {
	table := seats{}
	var delayed string
	attempts(memory.NewStore(), "seat-1", func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Do(ctx, r, "seat", func(_ context.Context, key string) (string, error) {
			delayed = key // it is still on its way
			return "", steps.Abort(errors.New("no response"))
		}, steps.Undo(func(_ context.Context, u steps.Reversal) error {
			fmt.Println("cancel the seat, known to be reserved:", u.Done)
			table.cancel(u.Key)
			return nil
		}))
		return err
	})
	fmt.Println("the request arrives:", table.reserve(delayed))
	// Output:
	// cancel the seat, known to be reserved: false
	// failed: step "seat": no response (compensated)
	// the request arrives: refused: cancelled before it came
}

// One of three items fails at first. The second attempt runs that item only.
func ExampleEach() {
	type line struct{ SKU string }
	lines, broken := []line{{"apple"}, {"pear"}, {"plum"}}, true
	attempts(memory.NewStore(), "order-1", func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Each(ctx, r, "pick", lines, func(l line) string { return l.SKU },
			func(_ context.Context, l line, key string) (bool, error) {
				if l.SKU == "pear" && broken {
					broken = false
					return false, errors.New("shelf is empty")
				}
				fmt.Println("pick", l.SKU)
				return true, nil
			}, steps.Parallel(1))
		return err
	})
	// Output:
	// pick apple
	// pick plum
	// again: step "pick": 1 of 3 items failed: pear (shelf is empty)
	// pick pear
	// done
}

// A payment that must not happen twice: when an attempt dies in the middle of it, the next one asks first.
func ExampleOnce() {
	fn := func(ctx context.Context, r *steps.Run) error {
		receipt, err := steps.Once(ctx, r, "pay", func(_ context.Context, key string) (string, error) {
			return "receipt-1", nil // POST /payments, reference: key
		}, func(_ context.Context, key string) (string, semel.ProbeResult, error) {
			// GET /payments?reference=key, which also refuses a payment with that reference that was not there.
			return "", semel.ProbeNotApplied, nil
		})
		fmt.Println(receipt)
		return err
	}
	attempts(memory.NewStore(), "order-1", fn)
	// Output:
	// receipt-1
	// done
}
