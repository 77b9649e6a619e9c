package steps_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/steps"
)

type item struct {
	SKU string
	N   int
}

func sku(i item) string { return i.SKU }

func itemsOf(n int) (all []item) {
	for i := range n {
		all = append(all, item{fmt.Sprintf("sku-%d", i), i})
	}
	return all
}

// shop counts the calls of items.
type shop struct {
	mu    sync.Mutex
	calls []string
}

func (s *shop) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, what)
}

func (s *shop) called(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(s.calls)
	slices.Sort(want)
	if !slices.Equal(s.calls, want) {
		t.Errorf("called %q, wanted %q", s.calls, want)
	}
	s.calls = nil
}

// TestS135FailedItemsOnly: the retry of a message runs its failed items only, and so does a redrive of its dead letter.
func TestS135FailedItemsOnly(t *testing.T) {
	g, s := newFixture(t), &shop{}
	g.max = 2
	bad := map[int]error{3: errBroken, 7: semel.Permanent(errors.New("no such article"))}
	var got []string
	fn := func(ctx context.Context, r *steps.Run) (err error) {
		got, err = steps.Each(ctx, r, "items", itemsOf(10), sku, func(_ context.Context, i item, key string) (string, error) {
			s.note(i.SKU)
			return "did " + i.SKU, bad[i.N]
		})
		return err
	}
	err := g.attempt(fn)
	g.has(err, `step "items": 2 of 10 items failed: sku-3 (broken), sku-7 (no such article)`)
	if semel.DispositionOf(err).Permanent {
		t.Error("one item's permanent failure took the others' retry")
	}
	var e *steps.ItemsError
	if !errors.As(err, &e) || len(e.Failed) != 2 || e.Failed[1].ID != "sku-7" || !semel.DispositionOf(e.Failed[1].Err).Permanent {
		t.Errorf("the error is %#v", err)
	}
	if got[2] != "did sku-2" || got[3] != "" {
		t.Errorf("the results are %q", got)
	}
	s.called(t, "sku-0", "sku-1", "sku-2", "sku-3", "sku-4", "sku-5", "sku-6", "sku-7", "sku-8", "sku-9")
	delete(bad, 3)
	err = g.attempt(fn)
	s.called(t, "sku-3", "sku-7")
	g.has(err, `1 of 10 items failed: sku-7 (no such article)`)
	if !semel.DispositionOf(err).Permanent {
		t.Error("all failed items failed for good, and the message does not")
	}
	g.state(driver.FailedState)
	if r := g.record(); !strings.Contains(r.Reason, "sku-7") || r.Epoch != 0 {
		t.Errorf("the dead letter's reason is %q, epoch %d", r.Reason, r.Epoch)
	}
	g.operate(driver.Operation{Kind: driver.Redrive})
	delete(bad, 7)
	if err := g.attempt(fn); err != nil {
		t.Error(err)
	}
	s.called(t, "sku-7")
	g.state(driver.Completed)
}

// TestEachIsBounded: not more than Parallel items at a time; a thousand of them, a panic among them.
func TestEachIsBounded(t *testing.T) {
	g := newFixture(t)
	var now, most atomic.Int32
	fn := func(fail bool) steps.Func {
		return func(ctx context.Context, r *steps.Run) error {
			_, err := steps.Each(ctx, r, "items", itemsOf(1000), sku, func(_ context.Context, i item, _ string) (int, error) {
				n := now.Add(1)
				defer now.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if fail && i.N == 500 {
					panic("item 500")
				}
				return i.N, nil
			}, steps.Parallel(4))
			return err
		}
	}
	g.has(g.attempt(fn(true)), "1 of 1000 items failed: sku-500 (panic: item 500)")
	if err := g.attempt(fn(false)); err != nil {
		t.Error(err)
	}
	if m := most.Load(); m > 4 {
		t.Errorf("%d items ran at the same time", m)
	}
}

// TestItemsThatEndTheirGoroutine fail, and take no other item with them.
func TestItemsThatEndTheirGoroutine(t *testing.T) {
	g := newFixture(t)
	g.has(g.attempt(func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Each(ctx, r, "items", itemsOf(20), sku, func(_ context.Context, i item, _ string) (int, error) {
			if i.N%10 == 3 {
				runtime.Goexit()
			}
			return 0, nil
		}, steps.Parallel(4))
		return err
	}), "2 of 20 items failed: sku-3 (the item ended its goroutine), sku-13")
}

// TestEachIsUndone: the items of a run that fails for good are undone, those that failed among them.
func TestEachIsUndone(t *testing.T) {
	g, s := newFixture(t), &shop{}
	fn := func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Each(ctx, r, "items", itemsOf(3), sku, func(_ context.Context, i item, _ string) (int, error) {
			s.note(i.SKU)
			if i.N == 1 {
				return 0, steps.Abort(errBroken)
			}
			return i.N, nil
		}, steps.UndoItem(func(_ context.Context, i item, u steps.Reversal) error {
			if u.Done != (i.N != 1) || u.Step != "items/"+i.SKU {
				t.Errorf("item %d is undone with %+v", i.N, u)
			}
			s.note("undo " + i.SKU)
			return nil
		}))
		return err
	}
	if err := g.attempt(fn); !semel.DispositionOf(err).Compensated {
		t.Errorf("returned %v", err)
	}
	s.called(t, "sku-0", "sku-1", "sku-2", "undo sku-0", "undo sku-1", "undo sku-2")
}

// TestEachResumesBackwards: an interrupted compensation of items finds them all again.
func TestEachResumesBackwards(t *testing.T) {
	g, s := newFixture(t), &shop{}
	stuck := true
	fn := func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Each(ctx, r, "items", itemsOf(4), sku, func(_ context.Context, i item, _ string) (int, error) {
			s.note(i.SKU)
			return i.N, nil
		}, steps.Parallel(1), steps.UndoItem(func(_ context.Context, i item, u steps.Reversal) error {
			s.note("undo " + i.SKU)
			if stuck && i.N == 2 {
				return errBroken
			}
			return nil
		}))
		if err != nil {
			return err
		}
		return steps.Abort(errBroken)
	}
	g.opts = append(g.opts, steps.Retry(1, 0, 9))
	_ = g.attempt(fn)
	s.called(t, "sku-0", "sku-1", "sku-2", "sku-3", "undo sku-3", "undo sku-2")
	stuck = false
	_ = g.attempt(fn)
	s.called(t, "undo sku-2", "undo sku-1", "undo sku-0")
	g.state(driver.FailedState)
}

// TestEachNamesItsMistakes: ids that are there twice, a compensation of another type.
func TestEachNamesItsMistakes(t *testing.T) {
	nothing := func(context.Context, item, string) (int, error) { return 0, nil }
	for _, c := range []struct {
		name  string
		items []item
		opt   steps.StepOption
		want  string
	}{
		{"twice", []item{{"a", 1}, {"a", 2}}, steps.Parallel(2), `step "items/a" is there twice`},
		{"another type", itemsOf(1), steps.UndoItem(func(context.Context, int, steps.Reversal) error { return nil }), "steps_test.item"},
		{"undo", itemsOf(1), steps.Undo(func(context.Context, steps.Reversal) error { return nil }), "UndoItem"},
	} {
		g := newFixture(t)
		g.has(g.attempt(func(ctx context.Context, r *steps.Run) error {
			_, err := steps.Each(ctx, r, "items", c.items, sku, nothing, c.opt)
			return err
		}), c.want)
		g.state(driver.FailedState)
	}
}

// TestEachMarks: what holds for all failed items holds for the message.
func TestEachMarks(t *testing.T) {
	for name, c := range map[string]struct {
		a, b error
		want func(m semel.Disposition) bool
	}{
		"all deferred":    {semel.Deferred(errBroken, 5), semel.Deferred(errBroken, 9), func(m semel.Disposition) bool { return m.Deferred && m.After == 9 }},
		"one deferred":    {semel.Deferred(errBroken, 5), errBroken, func(m semel.Disposition) bool { return !m.Deferred }},
		"all unavailable": {semel.Unavailable(errBroken), semel.Unavailable(errBroken), func(m semel.Disposition) bool { return m.Unavailable }},
		"one dropped":     {semel.Drop("x"), errBroken, func(m semel.Disposition) bool { return !m.Dropped }},
		"one parked":      {semel.Park(errBroken), errBroken, func(m semel.Disposition) bool { return m.Parked }},
		"all not applied": {semel.NotApplied(errBroken), semel.NotApplied(errBroken), func(m semel.Disposition) bool { return m.NotApplied }},
	} {
		g := newFixture(t)
		err := g.attempt(func(ctx context.Context, r *steps.Run) error {
			_, err := steps.Each(ctx, r, "items", itemsOf(2), sku, func(_ context.Context, i item, _ string) (int, error) {
				return 0, []error{c.a, c.b}[i.N]
			})
			return err
		})
		if m := semel.DispositionOf(err); !c.want(m) {
			t.Errorf("%s: the marks are %+v", name, m)
		}
	}
}

// BenchmarkRun is a run of ten steps with compensations on the store in memory.
func BenchmarkRun(b *testing.B) {
	store := memory.NewStore()
	for i := range b.N {
		_, _, err := semel.Do(b.Context(), store, semel.Key{Consumer: "bench", Raw: fmt.Sprint(i)},
			func(ctx context.Context, a *semel.Attempt) (any, error) {
				return nil, steps.With(ctx, a, func(ctx context.Context, r *steps.Run) error {
					for n := range 10 {
						_, err := steps.Do(ctx, r, fmt.Sprint("step-", n), func(context.Context, string) (int, error) { return n, nil },
							steps.Undo(func(context.Context, steps.Reversal) error { return nil }))
						if err != nil {
							return err
						}
					}
					return nil
				})
			})
		if err != nil {
			b.Fatal(err)
		}
	}
}
