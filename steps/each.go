package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/semel-dev/semel"
)

// ItemFailure is one failed item of [Each].
type ItemFailure struct {
	ID  string
	Err error
}

// ItemsError names the items of a message that failed. It carries no item's marks: Each puts on it what holds for all.
type ItemsError struct {
	Step   string
	Total  int
	Failed []ItemFailure
}

// listed is how many failed items the text of an error has.
const listed = 50

func (e *ItemsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "step %q: %d of %d items failed: ", e.Step, len(e.Failed), e.Total)
	for i, f := range e.Failed {
		if i == listed {
			fmt.Fprintf(&b, " and %d more", len(e.Failed)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%v)", f.ID, f.Err)
	}
	return b.String()
}

// errItemGone is the failure of an item whose call never returned.
var errItemGone = errors.New("the item ended its goroutine")

// Parallel is how many items of one [Each] run at the same time. Defaults to 8.
func Parallel(n int) StepOption { return func(c *stepConfig) { c.many = max(n, 1) } }

// UndoItem gives every item of an [Each] its compensation. See [Undo].
func UndoItem[I any](g func(ctx context.Context, item I, u Reversal) error) StepOption {
	return func(c *stepConfig) { c.item = g }
}

// Each runs f for every item, each as a step of its own, which is named name/id(item). A failed item does not stop the
// others: all are tried. The error is then an *ItemsError that names those that failed, and results has the results of the
// others, at their items' places. The next attempt, and a redrive of the message's dead letter, runs the failed ones only.
//
// The error is semel.Permanent when it is for all failed items (a dead letter at once), and an ordinary one when a retry may
// fix some. An id that is there twice is an error: an id names one item for good, so a position is no id. An item that is
// missing in a later attempt is an unknown step, which parks the run. An item's panic is its failure.
func Each[I, T any](
	ctx context.Context, r *Run, name string, items []I, id func(item I) string,
	f func(ctx context.Context, item I, key string) (T, error), opts ...StepOption,
) (results []T, err error) {
	c := stepConfigOf(opts)
	undo, err := itemUndo[I](&c)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return nil, r.mistake(err)
	}
	results, failures := make([]T, len(items)), make([]error, len(items))
	names := make([]string, len(items))
	for i := range items {
		names[i], failures[i] = name+"/"+id(items[i]), errItemGone
	}
	if err := r.reserve(names...); err != nil {
		return nil, fmt.Errorf("items of step %q: %w", name, err)
	}
	one := func(i int) {
		mine := c
		if undo != nil {
			mine.undo = func(ctx context.Context, _ *Run, u Reversal) (any, error) { return nil, undo(ctx, items[i], u) }
		}
		defer func() {
			if v := recover(); v != nil {
				failures[i] = &semel.PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		p, err := r.reached(names[i], mine)
		switch { // each assigns: an item without a result has failed
		case err != nil:
			failures[i] = err
		case ctx.Err() != nil && !p.memo && !r.collecting:
			failures[i] = semel.NotApplied(fmt.Errorf("not run: %w", context.Cause(ctx)))
		default:
			results[i], failures[i] = atLeastOnce(ctx, p, func(ctx context.Context, key string) (T, error) { return f(ctx, items[i], key) })
		}
	}
	inParallel(len(items), c.many, one)
	if r.collecting {
		return results, cmp.Or(failures...)
	}
	if halted := r.stopped(); halted != nil {
		return results, halted
	}
	return results, itemsError(r, name, names, failures)
}

// itemUndo is the compensation of items, where it is of their type.
func itemUndo[I any](c *stepConfig) (func(ctx context.Context, item I, u Reversal) error, error) {
	if c.undo != nil {
		return nil, errors.New("Each with Undo: use UndoItem, which gets the item")
	}
	if c.item == nil {
		return nil, nil
	}
	g, ok := c.item.(func(ctx context.Context, item I, u Reversal) error)
	if !ok {
		return nil, fmt.Errorf("UndoItem is a %T, and the items are of type %s", c.item, reflect.TypeFor[I]())
	}
	return g, nil
}

// inParallel calls f with 0 to n-1, many at a time. A call that ends its goroutine (runtime.Goexit) ends no other.
func inParallel(n, many int, f func(i int)) {
	if many = min(many, n); many <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(i)
		}
	}
	for range many {
		wg.Go(work)
	}
	wg.Wait()
	work() // what is left when all of them ended their goroutines
}

// itemsError joins the failures of items, with the marks that hold for all of them; nil when there is none.
func itemsError(r *Run, name string, names []string, failures []error) error {
	e := &ItemsError{Step: name, Total: len(names)}
	all := semel.Disposition{Permanent: true, NotApplied: true, Deferred: true, Unavailable: true}
	parked := false
	for i, err := range failures {
		if err == nil {
			continue
		}
		// The text without the step's name, which the list has already.
		text := err
		if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "step ") {
			text = inner
		}
		e.Failed = append(e.Failed, ItemFailure{ID: strings.TrimPrefix(names[i], name+"/"), Err: text})
		m := semel.DispositionOf(err)
		all.Permanent, all.NotApplied = all.Permanent && m.Permanent, all.NotApplied && m.NotApplied
		all.Deferred, all.Unavailable = all.Deferred && m.Deferred, all.Unavailable && m.Unavailable
		all.After = max(all.After, m.After)
		parked = parked || m.Parked
	}
	if len(e.Failed) == 0 {
		return nil
	}
	var err error = e
	if all.NotApplied {
		err = semel.NotApplied(err)
	}
	switch {
	case parked:
		err = semel.Park(err)
	case all.Permanent:
		err = semel.Permanent(err)
	case all.Deferred:
		err = semel.Deferred(err, all.After)
	case all.Unavailable:
		err = semel.Unavailable(err)
	case all.After > 0:
		err = semel.RetryAfter(err, all.After)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err // one for all of them
	return err
}
