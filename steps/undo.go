package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// Reversal is what a compensation gets.
//
// The outcome of a step that is not Done is unknown: it may have happened, it may not, and it may still be on its way. Its
// compensation must make sure that it does not happen anymore: cancel what runs under Key, and where there is nothing to
// cancel yet leave a tombstone under Key that refuses a late original. A compensation that finds nothing and does nothing
// leaves the late original standing.
type Reversal struct {
	// Step is the name of the step, Key the effect key that it was called with. UndoKey is the compensation's own, the same
	// in every attempt: hand it downstream as idempotency key.
	Step, Key, UndoKey string
	// Done: the step happened, and Result has what it returned.
	Done bool
	// Failures counts the failures of this compensation so far.
	Failures int

	result []byte
}

// Result decodes what the step returned into v, a pointer; an error when the step is not Done.
func (u Reversal) Result(v any) error {
	if !u.Done {
		return fmt.Errorf("result of step %q: it is not known to have happened", u.Step)
	}
	if err := json.Unmarshal(u.result, v); err != nil {
		return fmt.Errorf("result of step %q: %w", u.Step, err)
	}
	return nil
}

// undoFunc runs a compensation; effects are committed with its end.
type undoFunc func(ctx context.Context, r *Run, u Reversal) (effects any, err error)

// Undo gives a step its compensation, which is registered durably before the step may run. It may be called more than
// once, and for a step that never happened; see [Reversal]. An error repeats it; semel.Permanent parks the run for a
// person, semel.Deferred and semel.Unavailable repeat it later without counting a failure.
func Undo(g func(ctx context.Context, u Reversal) error) StepOption {
	return func(c *stepConfig) {
		c.undo = func(ctx context.Context, _ *Run, u Reversal) (any, error) { return nil, g(ctx, u) }
	}
}

// UndoInTx gives a step a compensation whose effects commit with the journal: exactly once. See [InTx].
func UndoInTx[T any](g func(ctx context.Context, tx T, u Reversal) error) StepOption {
	return func(c *stepConfig) {
		c.undo = func(ctx context.Context, r *Run, u Reversal) (any, error) {
			tx, err := bufferOf[T](r.a.Store())
			if err != nil {
				return nil, err
			}
			return tx, g(ctx, tx, u)
		}
	}
}

// The slog keys of a failed compensation.
const (
	logKey      = "key"
	logStep     = "step"
	logFailures = "failures"
	logErr      = "err"
)

// maxWait is the longest wait between two attempts at a compensation.
const maxWait = 5 * time.Minute

// goBack undoes every registered step, the last first. The journal says that the run compensates: it never goes forward
// again. Failures do not spend attempts, because a run must not end half undone when they are used up: it is parked.
func (r *Run) goBack(ctx context.Context, fn Func) error {
	if r.missing() != "" {
		r.collect(ctx, fn)
		if halted := r.stopped(); halted != nil {
			return halted
		}
		if name := r.missing(); name != "" {
			return semel.Park(fmt.Errorf("the run has to be undone (%s), and the code does not reach the compensation of step %q%s: "+
				"deploy code that does, then resolve the key as retry", r.reason, name, r.cfg.code()))
		}
	}
	doubt := ""
	for i := len(r.journal) - 1; i >= 0; i-- {
		s := r.journal[i]
		switch {
		case s.Undo && s.State != driver.StepUndone:
			if err := r.compensate(ctx, s); err != nil {
				return err
			}
		case !s.Undo && s.State == driver.StepStarted:
			doubt = s.Name
		}
	}
	if doubt != "" {
		return semel.Park(fmt.Errorf("%s: all compensations are done, but step %q may have happened and has none", r.reason, doubt))
	}
	return semel.Compensated(fmt.Errorf("%s (compensated)", r.reason))
}

// missing names a step that has to be undone and whose compensation is not known.
func (r *Run) missing() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.journal) - 1; i >= 0; i-- {
		if s := r.journal[i]; s.Undo && s.State != driver.StepUndone && r.undo[s.Name] == nil {
			return s.Name
		}
	}
	return ""
}

// collect runs the function to learn the compensations: steps that are done return their results, and it stops at the first
// that is not. No step is called.
func (r *Run) collect(ctx context.Context, fn Func) {
	r.mu.Lock()
	r.collecting = true
	r.mu.Unlock()
	_ = r.call(ctx, fn) // only the compensations that it named matter
	r.mu.Lock()
	r.collecting = false
	r.mu.Unlock()
}

// compensate undoes one step: nil when it is undone.
func (r *Run) compensate(ctx context.Context, s driver.Step) error {
	if ctx.Err() != nil {
		return r.later(fmt.Errorf("undo step %q: %w", s.Name, context.Cause(ctx)), time.Second)
	}
	if err := r.write(ctx, driver.StepWrite{Kind: driver.UndoStep, Name: s.Name}); err != nil {
		return err
	}
	u := Reversal{
		Step: s.Name, Key: r.a.EffectKey(s.Name), UndoKey: r.a.EffectKey("undo\x00" + s.Name),
		Done: len(s.Result) > 0, Failures: s.Failures, result: s.Result,
	}
	pause := r.cfg.pause
	for try := 1; ; try++ {
		err := r.undoOnce(ctx, u)
		if err == nil {
			return nil
		}
		if halted := r.stopped(); halted != nil {
			return halted
		}
		cause := context.Cause(ctx)
		if errors.Is(cause, semel.ErrFenced) {
			return fmt.Errorf("undo step %q: %w", s.Name, cause)
		}
		m := semel.DispositionOf(err)
		if m.Unavailable {
			// What is in doubt is in the journal: under the policy Once the run must not be parked for it.
			err = semel.RetryAfter(fmt.Errorf("undo step %q: %w", s.Name, unmarked{err}), max(m.After, time.Second))
			return semel.NotApplied(semel.Unavailable(err))
		}
		if m.Deferred || errors.Is(cause, semel.ErrDraining) {
			return r.later(fmt.Errorf("undo step %q: %w", s.Name, unmarked{err}), m.After)
		}
		u.Failures++
		r.cfg.logger.Error("Compensation failed", logKey, r.a.Key.Raw, logStep, s.Name, logFailures, u.Failures, logErr, err)
		w := driver.StepWrite{Kind: driver.FailUndo, Name: s.Name, Failures: u.Failures, Reason: reasonOf(err)}
		if werr := r.write(ctx, w); werr != nil {
			return werr
		}
		if m.Permanent || u.Failures >= r.cfg.limit {
			return semel.Park(fmt.Errorf("%s: compensation of step %q failed %d times: %w", r.reason, s.Name, u.Failures, unmarked{err}))
		}
		if try >= r.cfg.tries || !r.cfg.sleep(ctx, pause) {
			wait := min(time.Second<<min((u.Failures-1)/r.cfg.tries, 12), maxWait)
			return r.later(fmt.Errorf("%s: compensation of step %q failed: %w", r.reason, s.Name, unmarked{err}), max(wait, m.After))
		}
		pause *= 2
	}
}

// undoOnce calls the compensation, and writes down that it is done.
func (r *Run) undoOnce(ctx context.Context, u Reversal) error {
	effects, err := r.callUndo(ctx, u)
	if err != nil {
		return err
	}
	return r.write(ctx, driver.StepWrite{Kind: driver.FinishUndo, Name: u.Step, Effects: effects})
}

// callUndo calls the compensation; its panic is an error.
func (r *Run) callUndo(ctx context.Context, u Reversal) (effects any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &semel.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return r.undo[u.Step](ctx, r, u)
}

// later ends the attempt without spending it: the next one goes on.
func (r *Run) later(err error, after time.Duration) error {
	return semel.Deferred(err, max(after, time.Second))
}
