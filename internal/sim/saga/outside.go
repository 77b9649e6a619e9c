package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/steps"
)

// kind is a kind of step.
type kind uint8

const (
	keyed  kind = iota // at least once, the downstream deduplicates by effect key
	once               // at most once, the downstream deduplicates nothing
	staged             // in the store's own database
)

// plan is what a step of the function does.
type plan struct {
	name    string
	kind    kind
	undo    bool
	probe   bool // once: it can be asked about
	aborts  bool // it fails for good
	fails   int  // so often before it works
	applies bool // a failing call has its effect all the same
	stuck   int  // so often its compensation fails
}

func (w *Simulation) drawPlan() []plan {
	ps := make([]plan, 1+w.IntN(4))
	for i := range ps {
		ps[i] = plan{
			name: string(rune('a' + i)), kind: kind(w.IntN(3)), undo: w.Chance(800), probe: w.Chance(700),
			aborts: w.Chance(200), applies: w.Chance(500),
		}
		if w.Chance(300) {
			ps[i].fails = w.IntN(4)
		}
		if w.Chance(250) {
			ps[i].stuck = 1 + w.IntN(7)
		}
	}
	return ps
}

// booking is what the downstream has under one effect key.
type booking struct {
	step    string
	epoch   uint32
	times   int  // it took effect
	undone  bool // cancelled, or a tombstone: originals are refused from now on
	refuses uint64
}

// outside is the outside world.
type outside struct {
	bookings map[string]*booking
	ledger   [8]map[string]int // staged effects, by epoch and step
	tries    map[string]int    // calls that returned, by effect key
}

func (o *outside) booking(key, step string, epoch uint32) *booking {
	b := o.bookings[key]
	if b == nil {
		b = &booking{step: step, epoch: epoch}
		o.bookings[key] = b
	}
	return b
}

// buffer is the staged effects of one step.
type buffer struct {
	step string
	n    int
}

func (o *outside) commit(w *Simulation, epoch uint32, b *buffer) {
	if o.ledger[epoch] == nil {
		o.ledger[epoch] = map[string]int{}
	}
	o.ledger[epoch][b.step] += b.n
	w.Log(-1, "database: %+d %s", b.n, b.step)
	if n := o.ledger[epoch][b.step]; n < 0 || n > 1 {
		w.Fail("I2", -1, "step %s has %d staged effects", b.step, n)
	}
}

// Offers makes buffers: the store commits staged effects.
func (s *store) Offers(effects any) bool {
	b, ok := effects.(**buffer)
	if ok {
		*b = &buffer{}
	}
	return ok
}

// Commit and Joins are never asked: the function runs in a consumer's claim mode.
func (s *store) Commit(context.Context, ...driver.Work) ([]driver.Outcome, error) {
	return nil, driver.ErrUnsupported
}

// Joins is false.
func (s *store) Joins(driver.Queue) bool { return false }

var (
	errRefused = errors.New("refused: cancelled before")
	errBroken  = errors.New("it broke")
)

// book asks the downstream for an effect.
func (r *runner) book(p *plan, key string) (result string, err error) {
	w := r.w
	w.checkForward(r, p)
	c := &call{what: "effect of " + p.name}
	c.refuse = func(late error) { result, err = "", late }
	c.apply = func() {
		result = w.arrives(r, p, key)
		err = w.result(p, key, &result)
	}
	r.do(c)
	return result, err
}

// result is the error of a call that arrived.
func (w *Simulation) result(p *plan, key string, result *string) error {
	if *result == "" {
		return errRefused
	}
	w.out.tries[key]++
	switch {
	case p.aborts:
		*result = ""
		return semel.Permanent(errBroken)
	case w.out.tries[key] <= p.fails:
		*result = ""
		return errBroken
	}
	return nil
}

// arrives is a request for an effect: its result, "" when it is refused.
func (w *Simulation) arrives(r *runner, p *plan, key string) string {
	b := w.out.booking(key, p.name, r.hold.Epoch)
	if b.undone || r.hold.Token <= b.refuses {
		w.Log(-1, "downstream: %s by token %d is refused", p.name, r.hold.Token)
		return ""
	}
	if (p.aborts || w.out.tries[key] < p.fails) && !p.applies {
		return "nothing"
	}
	if p.kind == once || b.times == 0 {
		b.times++
		w.stats.Effects++
	}
	w.Log(-1, "downstream: %s by token %d, %d times now", p.name, r.hold.Token, b.times)
	if b.times > 1 {
		w.Fail("I2'", -1, "step %s, which runs at most once, happened %d times", p.name, b.times)
	}
	return "did " + key[:8]
}

// probeOf asks whether a step happened; not applied refuses what may still be on its way.
func (r *runner) probeOf(p *plan) steps.ProbeFunc[string] {
	if !p.probe {
		return nil
	}
	return func(_ context.Context, key string) (v string, found semel.ProbeResult, err error) {
		w := r.w
		w.checkCalls(r, "a probe")
		c := &call{what: "probe of " + p.name}
		c.refuse = func(late error) { err = late }
		c.apply = func() {
			b := w.out.booking(key, p.name, r.hold.Epoch)
			if b.times > 0 {
				v, found, err = "did "+key[:8], semel.ProbeApplied, nil
				return
			}
			b.refuses = max(b.refuses, r.hold.Token-1)
			found, err = semel.ProbeNotApplied, nil
		}
		r.do(c)
		w.Log(-1, "token %d: probe of %s: %v %v", r.hold.Token, p.name, found, err)
		return v, found, err
	}
}

// cancelBooking is the compensation: it cancels what is there, and leaves a tombstone for what is not there yet.
func (r *runner) cancelBooking(p *plan, u steps.Reversal) (err error) {
	w := r.w
	w.checkBackward(r, p)
	w.stats.Compensations++
	fails := u.Failures < p.stuck
	c := &call{what: "compensation of " + p.name}
	c.refuse = func(late error) { err = late }
	c.apply = func() {
		err = nil
		if fails {
			w.Log(-1, "downstream: %s cannot be cancelled now", p.name)
			err = errBroken
			return
		}
		b := w.out.booking(u.Key, p.name, r.hold.Epoch)
		if w.mut == mutNoTombstone && b.times == 0 {
			return
		}
		b.undone = true
		w.Log(-1, "downstream: %s is cancelled", p.name)
	}
	r.do(c)
	if w.mut == mutFailureDropped && !r.ghost {
		return nil
	}
	return err
}

// function is the function under test. A careless one goes on behind a failed step, and says that all is well.
func (w *Simulation) function(r *runner) steps.Func {
	return func(ctx context.Context, run *steps.Run) error {
		for i := range w.plan {
			p := &w.plan[i]
			if err := w.runStep(ctx, run, r, p); err != nil && !w.careless {
				return err
			}
		}
		return nil
	}
}

func (w *Simulation) runStep(ctx context.Context, run *steps.Run, r *runner, p *plan) error {
	var opts []steps.StepOption
	f := func(_ context.Context, key string) (string, error) { return r.book(p, key) }
	if p.undo && p.kind != staged {
		opts = append(opts, steps.Undo(func(_ context.Context, u steps.Reversal) error { return r.cancelBooking(p, u) }))
	}
	var result string
	var err error
	switch p.kind {
	case keyed:
		result, err = steps.Do(ctx, run, p.name, f, opts...)
	case once:
		result, err = steps.Once(ctx, run, p.name, f, r.probeOf(p), opts...)
	case staged:
		return w.runStaged(ctx, run, r, p)
	}
	if want := "did " + semel.EffectKey(r.hold, p.name)[:8]; err == nil && result != want {
		w.Fail("I11", -1, "step %s came to %q, and its effect to %q", p.name, result, want)
	}
	return err
}

func (w *Simulation) runStaged(ctx context.Context, run *steps.Run, r *runner, p *plan) error {
	var opts []steps.StepOption
	if p.undo {
		opts = append(opts, steps.UndoInTx(func(_ context.Context, b *buffer, u steps.Reversal) error {
			w.checkBackward(r, p)
			w.stats.Compensations++
			if u.Failures < p.stuck && w.mut != mutFailureDropped {
				return errBroken
			}
			if u.Done {
				*b = buffer{p.name, -1}
			}
			return nil
		}))
	}
	return steps.InTx(ctx, run, p.name, func(_ context.Context, b *buffer) error {
		w.checkForward(r, p)
		*b = buffer{p.name, 1}
		key := fmt.Sprint(r.hold.Epoch, p.name)
		w.out.tries[key]++
		switch {
		case p.aborts:
			return semel.Permanent(errBroken)
		case w.out.tries[key] <= p.fails:
			return errBroken
		}
		return nil
	}, opts...)
}

func textOf(ws []driver.StepWrite) string {
	names := [...]string{"", "register", "start", "finish", "compensate", "undo", "undo failed", "undone"}
	all := make([]string, len(ws))
	for i, x := range ws {
		all[i] = names[x.Kind] + " " + x.Name
	}
	return strings.Join(all, ", ")
}
