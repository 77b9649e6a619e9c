package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/wait"
)

// canaryLook is how often a batch looks whether the keys of its canary have ended.
const canaryLook = 250 * time.Millisecond

// Batch says how many dead letters are worked on.
type Batch struct {
	// Rate is how many are worked on in a second. 0: as fast as possible.
	Rate float64
	// Canary is how many are redriven first. The others follow when each of these keys is completed, and are left alone
	// otherwise. 0: none.
	Canary int
	// CanaryTimeout is how long the keys of the canary may take.
	CanaryTimeout time.Duration
}

// due is when the dead letter i is worked on, from the begin.
func (o Batch) due(i int) time.Duration {
	if o.Rate == 0 {
		return 0
	}
	return time.Duration(float64(i) / o.Rate * float64(time.Second))
}

// CanaryError reports that the first dead letters of a batch did not complete. The others are unchanged.
type CanaryError struct {
	Key   string
	State driver.State
	// Timeout is how long the batch waited; 0 if the key ended otherwise than completed.
	Timeout time.Duration
}

func (e *CanaryError) Error() string {
	if e.Timeout > 0 {
		return fmt.Sprintf("the canary %q is still %s after %s: is a worker running?", e.Key, e.State, driver.DurationText(e.Timeout))
	}
	return fmt.Sprintf("the canary %q is %s again", e.Key, e.State)
}

// Each calls do with one dead letter after another, and done with each result. Where it waits between them it refuses those that
// were redriven or discarded meanwhile. It ends at the first error, which is a [CanaryError] if the canary did not complete.
func (q Queue) Each(
	ctx context.Context, ls []driver.DeadLetter, o Batch, do func(context.Context, driver.DeadLetter) (Result, error), done func(Result),
) error {
	began := time.Now()
	var canary []driver.Key
	for i, l := range ls {
		if o.Canary > 0 && i == o.Canary {
			if err := q.await(ctx, canary, o.CanaryTimeout); err != nil {
				return err
			}
			began = time.Now().Add(-o.due(i))
		}
		if err := wait.Until(ctx, began.Add(o.due(i))); err != nil {
			return err
		}
		r, there, err := refuse(Result{ID: l.ID, Key: l.Key.Raw}, "it was redriven or discarded meanwhile"), true, error(nil)
		if i > 0 && o.Rate > 0 || o.Canary > 0 && i >= o.Canary {
			l, there, err = q.DeadLetters.DeadLetter(ctx, l.ID)
		}
		if err == nil && there {
			r, err = do(ctx, l)
		}
		if err != nil {
			return err
		}
		if done(r); r.Outcome == Redriven && !r.DryRun && i < o.Canary && l.Key.Raw != "" {
			canary = append(canary, l.Key)
		}
	}
	return nil
}

// await waits until each key is completed.
func (q Queue) await(ctx context.Context, keys []driver.Key, timeout time.Duration) error {
	until := time.Now().Add(timeout)
	for len(keys) > 0 {
		r, there, err := q.record(ctx, keys[0])
		switch {
		case err != nil:
			return err
		case r.State == driver.FailedState, r.State == driver.Uncertain:
			return &CanaryError{Key: keys[0].Raw, State: r.State}
		case there && (r.State == driver.Completed || r.State == driver.Expired):
			keys = keys[1:]
			continue
		case time.Now().After(until):
			return &CanaryError{Key: keys[0].Raw, State: r.State, Timeout: timeout}
		}
		if err := wait.Until(ctx, time.Now().Add(canaryLook)); err != nil {
			return err
		}
	}
	return nil
}
