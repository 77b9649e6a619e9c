package semeltest

import (
	"context"
	"slices"

	"github.com/semel-dev/semel/driver"
)

// faultySteps is the journal of a store whose calls go wrong.
type faultySteps struct {
	inner driver.StepStore
	f     *Faults
}

// withSteps adds the journal to a store that has everything else, as the adapters' stores have.
func (a admin) withSteps(t *faultyTransactor, st driver.StepStore) driver.Store {
	return struct {
		driver.Transactor
		driver.RecordInspector
		driver.Operator
		driver.Sweeper
		*faultySteps
	}{t, a.i, a.o, a.w, &faultySteps{st, t.f}}
}

func (s *faultySteps) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	return call(ctx, s.f, "steps", true, func(ctx context.Context, _ fate) ([]driver.Step, error) {
		return s.inner.Steps(ctx, h)
	})
}

func (s *faultySteps) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	w = slices.Clone(w)
	return call(ctx, s.f, "write steps", false, func(ctx context.Context, _ fate) (driver.Outcome, error) {
		return s.inner.WriteSteps(ctx, h, w...)
	})
}
