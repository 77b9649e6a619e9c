package semel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// A busy downstream is not asked again to find out for whom it was meant.
func TestBatchIsDeferredAsAWhole(t *testing.T) {
	bothKinds(t, func(t *testing.T, handler func(func([]*semel.Attempt) error) semel.Handler) {
		var seen batches
		r := newFixture(t, handler(func(batch []*semel.Attempt) error {
			if seen.call(batch); len(seen.all()) == 1 {
				return semel.Deferred(errors.New("busy"), 5*time.Second)
			}
			return nil
		}))
		r.sendNumbers(20)
		r.start()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if len(seen.all()) != 1 {
			t.Errorf("calls %v", seen.all())
		}
		r.after(time.Minute)
		r.wantEffects(20)
		for i := range 20 {
			if rec := r.record(strconv.Itoa(i)); rec.Failures != 0 || rec.Attempt != 2 {
				t.Errorf("a deferral is no failure: %+v", rec)
			}
		}
	})
}

// What the database refuses of a batch's queued effects is everybody's: halving finds whose it was.
func TestRefusedEffectsOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.InTxBatch(func(_ context.Context, tx *memory.Effects, batch []*semel.Attempt) error {
			for _, a := range batch {
				tx.Append("ledger", a.Key.Raw)
				if a.Key.Raw == "9" && a.Number == 1 {
					tx.Refuse(errors.New("constraint"))
				}
			}
			return nil
		}))
		r.sendNumbers(30)
		r.start()
		s := r.after(time.Minute)
		r.wantEffects(30)
		if rec := r.record("9"); rec.Failures != 1 || rec.Uncertainty != 0 || s.Retried != 1 || s.Effects != 30 {
			t.Errorf("record %+v, summary %+v", rec, s)
		}
	})
}

// A message that came before runs alone: its attempt counts even when it kills the process.
func TestRedeliveryRunsInABatchOfItsOwn(t *testing.T) {
	bothKinds(t, func(t *testing.T, handler func(func([]*semel.Attempt) error) semel.Handler) {
		var seen batches
		r := newFixture(t, handler(func(batch []*semel.Attempt) error { seen.call(batch); return nil }))
		r.sendNumbers(5)
		ds, err := r.queue.Receive(context.Background(), 1)
		if err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		if _, err := r.queue.Settle(context.Background(), driver.Settlement{Receipt: ds[0].Receipt, Action: driver.Retry}); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.after(time.Minute)
		r.wantEffects(5)
		if !slices.ContainsFunc(seen.all(), func(c []string) bool { return len(c) == 1 && c[0] == ds[0].ID }) || seen.longest() != 4 {
			t.Errorf("calls %v", seen.all())
		}
	})
}

// The order of groups outlives failures and halving.
func TestFM60_BatchKeepsTheOrderOfGroups(t *testing.T) {
	bothKinds(t, func(t *testing.T, handler func(func([]*semel.Attempt) error) semel.Handler) {
		r := newFixture(t, handler(func(batch []*semel.Attempt) error {
			for _, a := range batch {
				if a.Key.Raw == "10" && a.Number <= 2 {
					return errors.New("not yet")
				}
			}
			return nil
		}), func(c *semel.Config) { c.Committers = 2 })
		for i := range 40 {
			m := msg(strconv.Itoa(i))
			m.Group = "g" + strconv.Itoa(i%2)
			r.send(m)
		}
		r.start()
		r.after(time.Minute)
		r.wantEffects(40)
		last := map[int]int{0: -1, 1: -1}
		for _, row := range r.db.Tables().Rows("ledger") {
			k, _ := strconv.Atoi(row.Value)
			if k < last[k%2] {
				t.Errorf("%d took effect after %d of its group", k, last[k%2])
			}
			last[k%2] = k
		}
	})
}

func TestBatchIsCancelledByTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.InTxBatch(func(ctx context.Context, tx *memory.Effects, batch []*semel.Attempt) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		r.sendNumbers(20)
		r.start()
		s := r.after(time.Second)
		if s.Effects != 0 || s.Retried != 0 || s.Returned != 20 {
			t.Errorf("summary %+v: the worker stopped, and no message failed", s)
		}
		r.wantEffects(0)
		if _, ok, err := r.store.Record(context.Background(), semel.Key{Consumer: "orders", Raw: "3"}); ok || err != nil {
			t.Errorf("a record survived: %v", err)
		}
	})
}

// A handler that takes too long fails; halves take less long.
func TestTimeoutOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, queuedSlowly(time.Second), func(c *semel.Config) { c.Timeout = 10 * time.Second })
		r.sendNumbers(30)
		r.start()
		s := r.after(5 * time.Minute)
		r.wantEffects(30)
		if s.Retried != 0 || s.Effects != 30 {
			t.Errorf("summary %+v", s)
		}
	})
}

func queuedSlowly(each time.Duration) semel.Handler {
	return semel.InTxBatch(func(ctx context.Context, tx *memory.Effects, batch []*semel.Attempt) error {
		for _, a := range batch {
			select {
			case <-time.After(each):
			case <-ctx.Done():
				return ctx.Err()
			}
			tx.Append("ledger", a.Key.Raw)
		}
		return nil
	})
}

func TestNewRefusesBatchHandlers(t *testing.T) {
	type other struct{}
	h := semel.InTxBatch(func(context.Context, *other, []*semel.Attempt) error { return nil })
	r := newFixture(t, h)
	if _, err := semel.New(r.cfg); !errors.Is(err, semel.ErrNoTx) || !strings.Contains(err.Error(), "other") {
		t.Errorf("New returned %v", err)
	}
	r = newFixture(t, queuedBatch(func([]*semel.Attempt) error { return nil }), func(c *semel.Config) {
		c.Middleware = []semel.Middleware{func(ctx context.Context, _ *semel.Attempt, next func(context.Context) error) error { return next(ctx) }}
	})
	var bad *semel.ConfigError
	if _, err := semel.New(r.cfg); !errors.As(err, &bad) || bad.Field != "Middleware" {
		t.Errorf("New returned %v", err)
	}
	r = newFixture(t, queuedBatch(func([]*semel.Attempt) error { return nil }), unkeyed)
	if _, err := semel.New(r.cfg); !errors.As(err, &bad) || bad.Field != "AllowUnkeyed" {
		t.Errorf("New returned %v", err)
	}
}

// flakyStore's transactions tell a deadlock.
type flakyStore struct{ *memory.Store }

var errDeadlock = errors.New("deadlock detected")

func (s flakyStore) Begin(ctx context.Context, c ...driver.Claim) (driver.Tx, []driver.Grant, error) {
	tx, g, err := s.Store.Begin(ctx, c...)
	if tx == nil {
		return nil, g, err
	}
	return flakyTx{tx}, g, err
}

type flakyTx struct{ driver.Tx }

func (flakyTx) Transient(err error) error {
	if errors.Is(err, errDeadlock) {
		return driver.ErrNotCommitted
	}
	return nil
}

// A deadlock inside a handler is nobody's failure: the handlers run again, and no attempt is spent.
func TestFM46_DeadlockInAHandlerIsNoAttempt(t *testing.T) {
	n := 0
	fails := func() error {
		if n++; n <= 3 {
			return fmt.Errorf("update: %w", errDeadlock)
		}
		return nil
	}
	for name, h := range map[string]semel.Handler{
		"batch": openBatch(func([]*semel.Attempt) error { return fails() }),
		"each": semel.InTx(func(_ context.Context, tx *memory.Tx, a *semel.Attempt) error {
			_ = tx.Append("ledger", a.Key.Raw)
			return fails()
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n = 0
				r := newFixture(t, h)
				r.cfg.Store = flakyStore{r.store}
				r.sendNumbers(10)
				r.start()
				s := r.after(time.Minute)
				r.wantEffects(10)
				if s.Effects != 10 || s.Retried != 0 || s.Executed != 10 {
					t.Errorf("summary %+v", s)
				}
				if rec := r.record("0"); rec.Failures != 0 || rec.Attempt != 1 {
					t.Errorf("record %+v", rec)
				}
			})
		})
	}
}
