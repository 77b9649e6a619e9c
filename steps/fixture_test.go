package steps_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/steps"
)

var errBroken = errors.New("broken")

// journals is a store with journals of steps.
type journals interface {
	driver.Store
	driver.StepStore
}

// fixture runs attempts at one key, one after the other, and checks their results.
type fixture struct {
	t     *testing.T
	store journals
	max   int // attempts
	opts  []steps.Option
	key   driver.Key
	last  driver.Hold
	nonce byte
	calls []string // what was called, in order
	slept []time.Duration
}

func newFixture(t *testing.T) *fixture {
	g := &fixture{t: t, store: memory.NewStore(), max: 5, key: driver.Key{Consumer: "trips", Raw: "trip-1"}}
	g.opts = []steps.Option{steps.WithSleep(func(ctx context.Context, d time.Duration) bool {
		g.slept = append(g.slept, d)
		return ctx.Err() == nil
	})}
	return g
}

func (g *fixture) claim() driver.Grant {
	g.t.Helper()
	g.nonce++
	c := driver.Claim{Key: g.key, Nonce: driver.Nonce{g.nonce}, Lease: time.Hour}
	gs, err := g.store.Claim(context.Background(), c)
	if err != nil || gs[0].Verdict != driver.Acquired {
		g.t.Fatalf("claim: %v, %v", gs, err)
	}
	g.last = gs[0].Hold
	return gs[0]
}

// attempt runs fn once, and does the engine's part.
func (g *fixture) attempt(fn steps.Func) error { return g.attemptIn(context.Background(), g.store, fn) }

func (g *fixture) attemptIn(ctx context.Context, st driver.Store, fn steps.Func) error {
	g.t.Helper()
	grant := g.claim()
	a := semel.NewAttempt(semel.Message{ID: "m-1"}, grant, st)
	a.MaxAttempts = g.max
	err := steps.With(ctx, a, fn, g.opts...)
	f := driver.Finish{Hold: grant.Hold, Final: driver.Complete, Keep: time.Hour}
	if m := semel.DispositionOf(err); err != nil {
		f.Reason = err.Error()
		switch {
		case m.Parked:
			f.Final = driver.Park
		case m.Permanent || a.Last() && !m.Deferred:
			f.Final, f.Compensated = driver.Fail, m.Compensated
		default:
			f.Final, f.Refund, f.Ran = driver.Release, m.Deferred, driver.MaybeApplied
		}
	}
	if !errors.Is(err, semel.ErrFenced) {
		if _, ferr := g.store.Finish(context.Background(), f); ferr != nil {
			g.t.Fatal(ferr)
		}
	}
	return err
}

// step is a step of that name that records its calls and fails with the error fail.
func (g *fixture) step(ctx context.Context, r *steps.Run, name string, fail error) error {
	_, err := steps.Do(ctx, r, name, func(context.Context, string) (string, error) {
		g.calls = append(g.calls, name)
		return "did " + name, fail
	}, steps.Undo(func(_ context.Context, u steps.Reversal) error {
		g.calls = append(g.calls, "undo "+u.Step)
		return nil
	}))
	return err
}

func (g *fixture) called(want ...string) {
	g.t.Helper()
	if fmt.Sprint(g.calls) != fmt.Sprint(want) {
		g.t.Errorf("called %q, wanted %q", g.calls, want)
	}
	g.calls = nil
}

// journal is the rows of the last attempt's run as text.
func (g *fixture) journal() string {
	g.t.Helper()
	rows, err := g.store.Steps(context.Background(), g.last)
	if err != nil {
		g.t.Fatal(err)
	}
	var all []string
	for _, s := range rows {
		all = append(all, fmt.Sprintf("%s:%v", s.Name, s.State))
	}
	return strings.Join(all, " ")
}

func (g *fixture) record() driver.Record {
	g.t.Helper()
	r, _, err := as[driver.RecordInspector](g.store).Record(context.Background(), g.key)
	if err != nil {
		g.t.Fatal(err)
	}
	return r
}

func (g *fixture) state(want driver.State) {
	g.t.Helper()
	if r := g.record(); r.State != want {
		g.t.Errorf("the record is %v (%s), wanted %v", r.State, r.Reason, want)
	}
}

func (g *fixture) has(err error, parts ...string) {
	g.t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			g.t.Errorf("the error is %v, wanted one with %q", err, p)
		}
	}
}

// operate is an operator's act on the record as it stands.
func (g *fixture) operate(op driver.Operation) {
	g.t.Helper()
	r := g.record()
	op.Key, op.Token, op.Generation, op.Keep = g.key, r.Token, r.Generation, time.Hour
	if _, o, err := as[driver.Operator](g.store).Operate(context.Background(), op); err != nil || o != driver.Applied {
		g.t.Fatalf("operate: %v, %v", o, err)
	}
}

// crash ends an attempt without a release: the key is taken away from it.
func (g *fixture) crash(fn steps.Func) {
	g.t.Helper()
	grant := g.claim()
	a := semel.NewAttempt(semel.Message{ID: "m-1"}, grant, g.store)
	a.MaxAttempts = g.max
	func() {
		defer func() { _ = recover() }()
		_ = steps.With(context.Background(), a, fn, g.opts...)
	}()
	g.operate(driver.Operation{Kind: driver.ForceRelease})
}

// as finds an interface that a store or a queue is known to have.
func as[T any](s any) T {
	t, ok := driver.As[T](s)
	if !ok {
		panic("the interface is missing")
	}
	return t
}
