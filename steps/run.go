package steps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/idle"
)

// Func is the function of a run: it calls its steps, and returns nil when all of them are done.
type Func func(ctx context.Context, r *Run) error

// Option changes how [Handler] and [With] run.
type Option func(*config)

type config struct {
	version  string
	logger   *slog.Logger
	tries    int
	pause    time.Duration
	limit    int
	sleep    func(ctx context.Context, d time.Duration) bool
	required []func(driver.Store) error
}

// Version names the code that runs, for the reasons of parked runs: a journal that has a step which the code does not
// know is parked with it. Defaults to "".
func Version(v string) Option { return func(c *config) { c.version = v } }

// Logger gets "Compensation failed" for each compensation that fails. Defaults to slog.Default().
func Logger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// Retry says how often a compensation is tried in one attempt (3), with what pause after the first failure, doubling (200
// ms), and after how many failures in all it is parked for an operator (20). Between attempts it waits 1 s, doubling, 5 min at
// most; they do not count towards Config.MaxAttempts.
func Retry(tries int, pause time.Duration, limit int) Option {
	return func(c *config) { c.tries, c.pause, c.limit = max(tries, 1), pause, max(limit, 1) }
}

// Uses declares that the function has [InTx] steps with a T, so that semel.New refuses a store that does not offer it.
func Uses[T any]() Option {
	return func(c *config) {
		c.required = append(c.required, func(s driver.Store) error { _, err := bufferOf[T](s); return err })
	}
}

// WithSleep replaces waiting, for simulations with a clock of their own. f waits for d or until ctx is done, and tells
// which: false = done.
func WithSleep(f func(ctx context.Context, d time.Duration) bool) Option {
	return func(c *config) { c.sleep = f }
}

func newConfig(opts []Option) *config {
	c := &config{logger: slog.Default(), tries: 3, pause: 200 * time.Millisecond, limit: 20, sleep: idle.For}
	for _, o := range opts {
		o(c)
	}
	return c
}

// ErrNoJournal reports that the store keeps no journals of steps, or no record stands behind the run.
var ErrNoJournal = errors.New("steps: no journal")

// unmarked is an error without its marks, so that those of the run count: what was dropped or deferred inside a step is
// not the run's wish.
type unmarked struct{ err error }

func (e unmarked) Error() string        { return e.err.Error() }
func (e unmarked) Is(target error) bool { return errors.Is(e.err, target) }

// Handler makes a consumer's handler of a function with steps. semel.New refuses a store that keeps no journals.
func Handler(fn Func, opts ...Option) semel.Handler { return &handler{fn: fn, cfg: newConfig(opts)} }

type handler struct {
	fn  Func
	cfg *config
}

// Handle runs the function, or what is left of it.
func (h *handler) Handle(ctx context.Context, a *semel.Attempt) error { return h.cfg.run(ctx, a, h.fn) }

// CheckStore is semel.StoreChecker.
func (h *handler) CheckStore(s semel.Store) error {
	if _, ok := driver.As[driver.StepStore](s); !ok {
		return fmt.Errorf("a handler with steps on store %s: %w: use a store that is a driver.StepStore, as those of semel are", s.Features().Name, ErrNoJournal)
	}
	for _, check := range h.cfg.required {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

// With runs a function with steps inside of a handler or of semel.Do, whose attempt it gets. Its error is to be returned
// as it is: it carries what the engine has to do. Inside an open transaction (semel.InTx with *sql.Tx or pgx.Tx) and for
// messages without a key it is refused: there is no record that could guard a journal.
//
// Call it once in an attempt: a second function finds steps in the journal that it does not know, and parks the key. What
// the handler does around it is no part of the run: when it fails after With returned nil, nothing is undone.
func With(ctx context.Context, a *semel.Attempt, fn Func, opts ...Option) error {
	return newConfig(opts).run(ctx, a, fn)
}

// Abort makes a run that returns it go back: every registered step is compensated. It is semel.Permanent.
func Abort(err error) error { return semel.Permanent(err) }

// Run is one attempt at a function with steps.
type Run struct {
	a     *semel.Attempt
	store driver.StepStore
	cfg   *config

	mu      sync.Mutex
	journal []driver.Step // in the order of Seq, as it was read last
	rows    map[string]driver.Step
	reason  string // why the run compensates
	// backwards: the run compensates. collecting: the function runs only to name its compensations.
	backwards, collecting bool
	seen                  map[string]bool
	unseen                int // rows of earlier attempts that this one has not reached
	undo                  map[string]undoFunc
	failed                error // of the first step that failed
	halted                error // why nothing may be called anymore
}

// Attempt is the attempt that runs.
func (r *Run) Attempt() *semel.Attempt { return r.a }

// run goes forward, or backward, and returns the error for the engine.
func (c *config) run(ctx context.Context, a *semel.Attempt, fn Func) error {
	st, ok := driver.As[driver.StepStore](a.Store())
	switch {
	case a.Store() == nil:
		return semel.Permanent(fmt.Errorf("%w: no record that others can see stands behind this run (it has no key, or an open "+
			"transaction)", ErrNoJournal))
	case !ok:
		return semel.Permanent(fmt.Errorf("%w: store %s keeps none", ErrNoJournal, a.Store().Features().Name))
	}
	r := &Run{a: a, store: st, cfg: c, undo: map[string]undoFunc{}}
	if err := r.load(ctx); err != nil {
		return err
	}
	if r.backwards {
		return r.goBack(ctx, fn)
	}
	err := r.call(ctx, fn)
	if halted := r.stopped(); halted != nil {
		return halted // whatever the function made of it
	}
	if err == nil {
		err = r.finished()
	}
	return r.judge(ctx, fn, err)
}

// call runs the function; its panic is an error.
func (r *Run) call(ctx context.Context, fn Func) (err error) {
	r.mu.Lock()
	r.seen, r.unseen, r.failed = map[string]bool{}, len(r.journal), nil
	if r.backwards {
		r.unseen--
	}
	r.mu.Unlock()
	defer func() {
		if v := recover(); v != nil {
			err = &semel.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(ctx, r)
}

// finished checks a run whose function returned nil: all steps have to be done (I20).
func (r *Run) finished() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return fmt.Errorf("the run went on although a step failed: %w", r.failed)
	}
	for _, s := range r.journal {
		if !r.seen[s.Name] {
			return r.unknownStep(s.Name)
		}
	}
	name := r.open()
	for n := range r.seen { // one that panicked may have left no row
		if r.rows[n].State != driver.StepDone && (name == "" || n < name) {
			name = n
		}
	}
	if name != "" {
		return fmt.Errorf("the run returned nil although step %q is not done", name)
	}
	return nil
}

// mistake is a step that was refused before it was looked up. The caller holds mu.
func (r *Run) mistake(err error) error {
	err = semel.Permanent(err)
	if r.failed == nil {
		r.failed = err
	}
	return err
}

// unknownStep parks a run whose journal has a step that the code does not reach.
func (r *Run) unknownStep(name string) error {
	return semel.Park(fmt.Errorf("step %q is in the journal (%v), and the code does not reach it%s: deploy code that does, "+
		"then resolve the key as retry", name, r.rows[name].State, r.cfg.code()))
}

func (c *config) code() string {
	if c.version == "" {
		return ""
	}
	return " (code version " + c.version + ")"
}

// judge decides what becomes of a run that went forward.
func (r *Run) judge(ctx context.Context, fn Func, err error) error {
	m := semel.DispositionOf(err)
	switch {
	case err == nil, m.Parked:
		return err
	case m.Dropped:
		r.mu.Lock()
		open := r.open()
		r.mu.Unlock()
		if open != "" {
			return semel.Park(fmt.Errorf("the run was dropped although its step %q is not done: %w", open, unmarked{err}))
		}
		return err
	case !r.a.Ends(ctx, err), !m.Permanent && errors.Is(context.Cause(ctx), semel.ErrDraining):
		return err // the next attempt goes on
	}
	if errors.Is(context.Cause(ctx), semel.ErrFenced) || !r.undoable() {
		return err
	}
	if werr := r.write(ctx, driver.StepWrite{Kind: driver.CompensateRun, Reason: reasonOf(err)}); werr != nil {
		return werr
	}
	// What the journal has is what is undone, in its order.
	if lerr := r.load(ctx); lerr != nil {
		return lerr
	}
	return r.goBack(ctx, fn)
}

// open names a step that began and is not done. The caller holds mu.
func (r *Run) open() (name string) {
	for _, s := range r.rows {
		if s.State != driver.StepDone && s.State != driver.RunCompensating && (name == "" || s.Name < name) {
			name = s.Name
		}
	}
	return name
}

// undoable reports that a step has a compensation.
func (r *Run) undoable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.rows {
		if s.Undo {
			return true
		}
	}
	return false
}
