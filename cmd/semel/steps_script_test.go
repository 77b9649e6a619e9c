package main

import (
	"context"
	"errors"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/steps"
)

// bookTrip runs a saga whose third step fails for good; with "stuck" the compensation of the second fails, too.
func bookTrip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: trip DB KEY [stuck]")
	}
	ctx := context.Background()
	db, err := sqlite.Open(ctx, ts.MkAbs(args[0]), sqlite.Options{Create: true})
	ts.Check(err)
	defer func() { ts.Check(db.Close()) }()
	fn := func(ctx context.Context, r *steps.Run) error {
		err := steps.InTx(ctx, r, "order", func(_ context.Context, tx *semel.Statements) error {
			tx.ExecRows(1, "INSERT INTO trips (what) VALUES ('ordered ' || ?)", args[1])
			return nil
		}, steps.UndoInTx(func(_ context.Context, tx *semel.Statements, u steps.Reversal) error {
			tx.Exec("INSERT INTO trips (what) VALUES ('cancelled ' || ?)", args[1])
			return nil
		}))
		if err != nil {
			return err
		}
		for _, what := range []string{"flight", "hotel", "car"} {
			_, err := steps.Do(ctx, r, what, func(context.Context, string) (string, error) {
				if what == "car" {
					return "", steps.Abort(errors.New("no cars left"))
				}
				return what + "-1", nil
			}, steps.Undo(func(context.Context, steps.Reversal) error {
				if what == "hotel" && len(args) > 2 {
					return errors.New("the hotel does not respond")
				}
				return nil
			}))
			if err != nil {
				return err
			}
		}
		return nil
	}
	_, _, err = semel.Do(ctx, db.Store(), semel.Key{Consumer: "trips", Raw: args[1]},
		func(ctx context.Context, a *semel.Attempt) (any, error) {
			return nil, steps.With(ctx, a, fn, steps.Retry(1, 0, 1))
		})
	ts.Logf("the trip ended with %v", err)
}
