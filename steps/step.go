package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// StepOption changes one step.
type StepOption func(*stepConfig)

type stepConfig struct {
	undo undoFunc
	item any // func(ctx, item I, u Reversal) error, of UndoItem
	many int
}

func stepConfigOf(opts []StepOption) stepConfig {
	c := stepConfig{many: 8}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// MaxName is the longest name of a step, in bytes.
const MaxName = 512

// errCompensating is what steps return while the function runs only to name its compensations.
var errCompensating = errors.New("steps: the run is being undone: no step runs")

// place is a step that a run has reached.
type place struct {
	r    *Run
	name string
	row  driver.Step
	cfg  stepConfig
	memo bool // it is done: the result is in row
}

// enter begins a step: its name is checked, and what the journal has of it is found.
func (r *Run) enter(name string, c stepConfig) (*place, error) {
	if err := r.reserve(name); err != nil {
		return nil, err
	}
	return r.reached(name, c)
}

// reserve takes a name for this run.
func (r *Run) reserve(names ...string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.halted != nil {
		return r.halted
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return r.mistake(err)
		}
		if r.seen[name] {
			return r.mistake(fmt.Errorf("step %q is there twice in one run: steps are known by their names: give each its own", name))
		}
		r.seen[name] = true
		if _, ok := r.rows[name]; ok {
			r.unseen--
		}
	}
	return nil
}

// reached looks a reserved step up.
func (r *Run) reached(name string, c stepConfig) (*place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.halted != nil {
		return nil, r.halted
	}
	if c.undo != nil {
		r.undo[name] = c.undo
	}
	p := &place{r: r, name: name, cfg: c}
	row, known := r.rows[name]
	p.row = row
	if r.collecting {
		// A step that was done keeps its result while it is undone.
		if p.memo = known && row.State != driver.StepRegistered && row.State != driver.StepStarted && len(row.Result) > 0; !p.memo {
			return nil, errCompensating
		}
		return p, nil
	}
	if !known && r.unseen > 0 {
		// The journal has a step that this code did not come by, and now it begins another: the code has changed, and the
		// new step may be the old one under another name.
		for _, s := range r.journal {
			if !r.seen[s.Name] {
				r.halted = r.unknownStep(s.Name)
				return nil, r.halted
			}
		}
	}
	p.memo = row.State == driver.StepDone
	return p, nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a step has no name: give it one that stays the same for years")
	case len(name) > MaxName:
		return fmt.Errorf("step %.40q…: its name has %d bytes: use %d at most", name, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("step %q: its name is no UTF-8", name)
	}
	for _, c := range name {
		if unicode.IsControl(c) {
			return fmt.Errorf("step %q: its name has a control character", name)
		}
	}
	return nil
}

// register makes the compensation durable, before the step may run.
func (p *place) register(ctx context.Context, more ...driver.StepWrite) error {
	var w []driver.StepWrite
	if p.cfg.undo != nil && !p.row.Undo && p.row.State != driver.StepStarted {
		w = append(w, driver.StepWrite{Kind: driver.RegisterStep, Name: p.name, Undo: true})
	}
	if w = append(w, more...); len(w) == 0 {
		return nil
	}
	if err := p.r.write(ctx, w...); err != nil {
		return err
	}
	p.r.note(p.name, func(s *driver.Step) {
		s.Undo = s.Undo || p.cfg.undo != nil
		s.State = driver.StepRegistered
		if len(more) > 0 {
			s.State = driver.StepStarted
		}
	})
	return nil
}

// begin registers a step that may run again. A step that earlier code began as Once must not.
func (p *place) begin(ctx context.Context) error {
	if p.row.State == driver.StepStarted {
		return p.r.halt(semel.Park(fmt.Errorf("step %q was begun as one that runs at most once, and may have happened%s",
			p.name, p.r.cfg.code())))
	}
	return p.register(ctx)
}

// key is the effect key of the step.
func (p *place) key() string { return p.r.a.EffectKey(p.name) }

// fail is a step that failed in this attempt.
func (p *place) fail(err error) error {
	err = fmt.Errorf("step %q: %w", p.name, err)
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if p.r.halted != nil {
		return p.r.halted
	}
	if p.r.failed == nil {
		p.r.failed = err
	}
	return err
}

// finish makes the step's result durable, with its effects.
func (p *place) finish(ctx context.Context, result []byte, effects any) error {
	if limit := p.r.a.Store().Features().MaxResult; limit > 0 && len(result) > limit {
		return semel.Permanent(fmt.Errorf("its result has %d bytes, the store takes %d: return less", len(result), limit))
	}
	w := driver.StepWrite{Kind: driver.FinishStep, Name: p.name, Result: result, Effects: effects}
	if err := p.r.write(ctx, w); err != nil {
		return err
	}
	p.r.note(p.name, func(s *driver.Step) { s.State, s.Result = driver.StepDone, result })
	return nil
}

// memoised is the result that the journal has.
func memoised[T any](p *place) (v T, err error) {
	if err := json.Unmarshal(p.row.Result, &v); err != nil {
		return v, p.r.halt(semel.Park(fmt.Errorf("step %q is done, and its result does not fit %s%s: %w",
			p.name, reflect.TypeFor[T](), p.r.cfg.code(), err)))
	}
	return v, nil
}

// encode is the result as the journal keeps it: never empty.
func encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		// It would not be stored by a repetition either, which would only repeat the effect.
		return nil, semel.Permanent(fmt.Errorf("its result cannot be stored: %w", err))
	}
	return raw, nil
}

// Do runs a step that may happen more than once: f is called with its effect key until it returned nil and that is in the
// journal; from then on every attempt gets the stored result, and f is not called. The result is kept as JSON.
//
// f's error is returned, with the step's name and all its marks; return it. A step of unknown outcome is called
// again with the same key: downstreams that deduplicate by it make it exactly once.
func Do[T any](
	ctx context.Context, r *Run, name string, f func(ctx context.Context, key string) (T, error), opts ...StepOption,
) (T, error) {
	var zero T
	p, err := r.enter(name, stepConfigOf(opts))
	if err != nil {
		return zero, err
	}
	return atLeastOnce(ctx, p, f)
}

func atLeastOnce[T any](ctx context.Context, p *place, f func(ctx context.Context, key string) (T, error)) (T, error) {
	var zero T
	if p.memo {
		return memoised[T](p)
	}
	if err := p.begin(ctx); err != nil {
		return zero, err
	}
	v, err := f(ctx, p.key())
	if err != nil {
		return zero, p.fail(err)
	}
	raw, err := encode(v)
	if err == nil {
		err = p.finish(ctx, raw, nil)
	}
	if err != nil {
		return zero, p.fail(err)
	}
	return v, nil
}

// ProbeFunc asks whether a step happened that an earlier attempt started under the effect key: semel.ProbeApplied with
// its result, semel.ProbeNotApplied, or semel.ProbeUnknown. An error asks again in the next attempt. Not applied allows a
// second call. It has to stay true, so the probe must also refuse the original if it is still on its way (a tombstone, or a
// token that the resource compares).
type ProbeFunc[T any] func(ctx context.Context, key string) (T, semel.ProbeResult, error)

// Once runs a step that must not happen twice: its start is in the journal before f is called. An attempt that finds it
// started by an earlier one asks the probe: applied finishes it, not applied calls f again. If the outcome stays unknown,
// the run goes back if the step has a compensation, which is made for unknown outcomes. Else the key is parked for an
// operator. Without a probe (nil) the outcome always stays unknown, also after f returned an error, unless that is
// semel.NotApplied, which undoes the start.
func Once[T any](
	ctx context.Context, r *Run, name string, f func(ctx context.Context, key string) (T, error), probe ProbeFunc[T],
	opts ...StepOption,
) (T, error) {
	var zero T
	p, err := r.enter(name, stepConfigOf(opts))
	if err != nil {
		return zero, err
	}
	if p.memo {
		return memoised[T](p)
	}
	started := p.row.State == driver.StepStarted
	if started {
		v, found, err := askProbe(ctx, p, probe)
		if err != nil {
			return zero, err
		}
		if found == semel.ProbeApplied {
			return v, storeResult(ctx, p, v)
		}
	}
	if err := p.register(ctx, driver.StepWrite{Kind: driver.StartStep, Name: p.name, Again: started}); err != nil {
		return zero, err
	}
	v, err := f(ctx, p.key())
	if err == nil {
		return v, storeResult(ctx, p, v)
	}
	switch {
	case semel.DispositionOf(err).NotApplied:
		w := driver.StepWrite{Kind: driver.RegisterStep, Name: p.name, Undo: p.cfg.undo != nil, Again: true}
		if werr := r.write(ctx, w); werr != nil {
			return zero, werr
		}
		r.note(p.name, func(s *driver.Step) { s.State = driver.StepRegistered })
	case probe == nil:
		return zero, p.inDoubt(err)
	}
	return zero, p.fail(err)
}

// storeResult finishes a step that happened.
func storeResult[T any](ctx context.Context, p *place, v T) error {
	raw, err := encode(v)
	if err == nil {
		err = p.finish(ctx, raw, nil)
	}
	if err != nil {
		return p.fail(err)
	}
	return nil
}

// inDoubt ends a run at a step that may have happened: it goes back if the step has a compensation, else it is parked.
func (p *place) inDoubt(why error) error {
	if p.cfg.undo != nil && (p.row.Undo || p.row.State != driver.StepStarted) {
		return p.fail(semel.Permanent(fmt.Errorf("it is unknown whether it happened: %w", why)))
	}
	return p.r.halt(semel.Park(fmt.Errorf("step %q may have happened, and its outcome is unknown%s: %w", p.name, p.r.cfg.code(), unmarked{why})))
}

// askProbe asks whether a started step happened.
func askProbe[T any](ctx context.Context, p *place, probe ProbeFunc[T]) (v T, found semel.ProbeResult, err error) {
	if probe == nil {
		return v, found, p.inDoubt(errors.New("it was started and interrupted, and has no probe"))
	}
	v, found, err = probe(ctx, p.key())
	switch {
	case err != nil && (ctx.Err() != nil || !p.r.a.Ends(ctx, err)):
		return v, found, p.fail(semel.NotApplied(fmt.Errorf("ask whether it happened: %w", err))) // asked again later
	case err != nil:
		return v, found, p.inDoubt(err)
	case found == semel.ProbeApplied || found == semel.ProbeNotApplied:
		return v, found, nil
	}
	return v, found, p.inDoubt(errors.New("it was started and interrupted, and the probe cannot tell"))
}

// InTx runs a step whose effects are in the store's own database: what f queues in tx commits together with the journal,
// both or neither, so exactly once. T is *semel.Statements on SQL stores and *memory.Effects in memory; a store that
// does not offer it is an error that matches semel.ErrNoTx. f may be called again when an attempt failed.
func InTx[T any](
	ctx context.Context, r *Run, name string, f func(ctx context.Context, tx T) error, opts ...StepOption,
) error {
	p, err := r.enter(name, stepConfigOf(opts))
	if err != nil || p.memo {
		return err
	}
	tx, err := bufferOf[T](r.a.Store())
	if err != nil {
		return p.fail(err)
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return p.fail(semel.NotApplied(err))
	}
	if err := p.finish(ctx, []byte("true"), tx); err != nil {
		return p.fail(err)
	}
	return nil
}

// bufferOf makes an empty buffer of effects.
func bufferOf[T any](s driver.Store) (tx T, err error) {
	if c, ok := driver.As[driver.Committer](s); ok && c.Offers(&tx) {
		return tx, nil
	}
	return tx, semel.Permanent(fmt.Errorf("a step wants effects of type %s, store %s: %w",
		reflect.TypeFor[T](), s.Features().Name, semel.ErrNoTx))
}
