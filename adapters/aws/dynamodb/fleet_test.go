package dynamodb

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// fleet is several processes on one table. Each call goes to the next process, so that cached rows have been changed by
// another one.
type fleet struct {
	of []*Store
	n  atomic.Int64
}

func (f *fleet) next() *Store { return f.of[int(f.n.Add(1))%len(f.of)] }

func (f *fleet) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	return f.next().Claim(ctx, c...)
}

// Extend stays with one process, as the heartbeat of an attempt does. Two processes that extend an attempt in the same
// microsecond would write the same item, and take it for one write.
func (f *fleet) Extend(ctx context.Context, lease time.Duration, h ...driver.Hold) ([]driver.Outcome, error) {
	return f.of[0].Extend(ctx, lease, h...)
}

func (f *fleet) Finish(ctx context.Context, fs ...driver.Finish) ([]driver.Outcome, error) {
	return f.next().Finish(ctx, fs...)
}

func (f *fleet) Features() driver.StoreFeatures { return f.next().Features() }

func (f *fleet) Commit(ctx context.Context, w ...driver.Work) ([]driver.Outcome, error) {
	return f.next().Commit(ctx, w...)
}

func (f *fleet) Offers(effects any) bool   { return f.next().Offers(effects) }
func (f *fleet) Joins(q driver.Queue) bool { return f.next().Joins(q) }

func (f *fleet) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	return f.next().Steps(ctx, h)
}

func (f *fleet) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	return f.next().WriteSteps(ctx, h, w...)
}

func (f *fleet) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	return f.next().Operate(ctx, op)
}

func (f *fleet) Record(ctx context.Context, k driver.Key) (driver.Record, bool, error) {
	return f.next().Record(ctx, k)
}

func (f *fleet) Records(ctx context.Context, x driver.RecordFilter) ([]driver.Record, error) {
	return f.next().Records(ctx, x)
}

// Sweep stays with one process, which continues where it stopped.
func (f *fleet) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	return f.of[0].Sweep(ctx, horizon, limit, consumers...)
}

// TestFleet runs the suite on three processes that share a table: random histories of records and journals, races,
// repeated writes, sweeps. Every result is compared with the decision table; the seeds are in the log (SEMEL_SEED).
func TestFleet(t *testing.T) {
	semeltest.RunStore(t, func(t testing.TB) semeltest.StoreSetup {
		if testing.Short() && (strings.Contains(t.Name(), "cells") || strings.Contains(t.Name(), "thousand")) {
			t.Skip("-short compares cells of one process alone")
		}
		r := newFixture(t, longTimeouts(Options{}))
		s := r.setup()
		s.Store = &fleet{of: []*Store{r.Store, r.again(t, nil), r.again(t, nil)}}
		s.Sample = semeltest.Sampled(someCells) // one process compares more of them (TestStoreSuite)
		return s
	})
}
