package semel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// RetryRule says what becomes of a class of failures. Of Config.Retry the first rule that matches an error decides; a
// failure that no rule matches is retried as Config.MaxAttempts and Config.Backoff say. What the handler says itself wins:
// an error marked Permanent, Deferred, Unavailable, Drop or Park is judged by no rule, one marked RetryAfter takes only
// MaxAttempts from its rule. Rules also judge panics (*PanicError), runs whose time was up (ErrTimeout) and effects that the
// store refused.
type RetryRule struct {
	// Match picks the failures: [ErrorIs], [ErrorAs] or any function of the error that does not block. nil matches all.
	Match func(err error) bool
	// MaxAttempts is the number of failed runs after which the message becomes a dead letter when its latest failure is of
	// this class: all failures of the key count, whatever their class. Defaults to Config.MaxAttempts.
	MaxAttempts int
	// Backoff bounds the delay before the next attempt. Defaults to Config.Backoff.
	Backoff Backoff
	// NotApplied: such a failure certainly had no effect, as the mark of that name says.
	NotApplied bool
	// At most one of these three, each as the mark of its name says; the delay is Backoff. Deferred implies NotApplied.
	Permanent, Deferred, Unavailable bool
}

// ErrorIs matches errors as [errors.Is] does with any of the targets.
func ErrorIs(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
}

// ErrorAs matches errors as [errors.As] does with the type T; ok may narrow it further, nil = any.
func ErrorAs[T error](ok func(T) bool) func(error) bool {
	return func(err error) bool {
		var t T
		return errors.As(err, &t) && (ok == nil || ok(t))
	}
}

// check names what is wrong with a rule.
func (r *RetryRule) check() (field, hint string) {
	n := 0
	for _, set := range [...]bool{r.Permanent, r.Deferred, r.Unavailable} {
		if set {
			n++
		}
	}
	switch {
	case n > 1:
		return "", "set one of Permanent, Deferred and Unavailable"
	case r.MaxAttempts < 0:
		return ".MaxAttempts", "use 1 or more, or 0 for Config.MaxAttempts"
	case r.Backoff.Min < 0 || r.Backoff.Max < 0 || (r.Backoff.Max > 0 && r.Backoff.Max < r.Backoff.Min):
		return ".Backoff", "use 0 < Min ≤ Max"
	}
	return "", ""
}

// Unavailable marks a failure that is the downstream's, not the message's: it cannot be reached, or is being repaired. No
// attempt is spent, however long that lasts, and the breaker counts it (Config.Breaker): after some in a row nothing is run
// until a message that tries finds the downstream back. The run's outcome stays in doubt unless it is marked NotApplied,
// too; under the policy Once such a run is parked like any other that began.
func Unavailable(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.unavailable = true })
}

// ruleSet is Config.Retry, made ready.
type ruleSet struct {
	rules    []RetryRule
	bounds   []machine.Rule // of each
	classify func(error) bool
	log      *slog.Logger
}

func newRuleSet(c *Config) ruleSet {
	s := ruleSet{rules: c.Retry, bounds: make([]machine.Rule, len(c.Retry)), classify: c.Breaker.Classify, log: c.Logger}
	for i := range c.Retry {
		r := &c.Retry[i]
		b := machine.Rule{MaxAttempts: r.MaxAttempts, BackoffMin: r.Backoff.Min, BackoffMax: r.Backoff.Max}
		switch {
		case b.BackoffMin == 0 && b.BackoffMax > 0:
			b.BackoffMin = min(DefaultBackoffMin, b.BackoffMax)
		case b.BackoffMin > 0 && b.BackoffMax == 0:
			b.BackoffMax = max(c.Backoff.Max, b.BackoffMin)
		}
		s.bounds[i] = b
	}
	return s
}

// apply judges a failure whose class nobody named. cause is why its context had ended, if it had.
func (s *ruleSet) apply(res *machine.Result, err, cause error) {
	if len(s.rules) == 0 && s.classify == nil {
		return
	}
	if cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err) // a driver's error may hide why it came
	}
	if i := slices.IndexFunc(s.rules, func(r RetryRule) bool { return r.Match == nil || s.ask(r.Match, err) }); i >= 0 {
		res.Rule = &s.bounds[i]
		if r := &s.rules[i]; !res.HasAfter {
			res.NotApplied = res.NotApplied || r.NotApplied || r.Deferred
			switch {
			case r.Permanent:
				res.Class = machine.Permanent
			case r.Deferred:
				res.Class = machine.Deferred
			case r.Unavailable:
				res.Class = machine.Unavailable
			}
		}
	}
	if res.Class == machine.Failed && s.classify != nil && s.ask(s.classify, err) {
		res.Class = machine.Unavailable
	}
}

// ask calls a user's function; one that panics does not match, and must not end the process.
func (s *ruleSet) ask(match func(error) bool, err error) (yes bool) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("a function that classes errors panicked; it does not match", "panic", v, logErr, err)
			yes = false
		}
	}()
	return match(err)
}

// failure is the result of a run that returned an error.
func (r *runner) failure(x *order, ctx *runContext, err error) machine.Result {
	res := machine.Result{Class: machine.Failed, Err: err}
	// The effects of an InTx handler were never sent, or are rolled back: its failure is certain to have had none.
	res.NotApplied = r.tx != nil
	var o *outcomeError
	cause := ctx.ended()
	switch {
	case errors.As(err, &o):
		res.NotApplied = res.NotApplied || o.notApplied
		res.After, res.HasAfter, res.Compensated = o.after, o.hasAfter, o.compensated
		if res.Class = o.class(); res.Class == machine.Failed {
			r.rules.apply(&res, err, cause)
		}
	default:
		if refusal := r.transient(x, err); refusal != nil {
			res.Class, res.Err = machine.Transient, refusal
			break
		}
		if cause != nil && errors.Is(err, context.Canceled) {
			res.Err = fmt.Errorf("%w (%w)", cause, err) // say why the context ended, not only that it did
		}
		r.rules.apply(&res, res.Err, cause)
	}
	return res
}

// class is what the handler named; Failed when it named none.
func (e *outcomeError) class() machine.Class {
	switch {
	case e.drop:
		return machine.Dropped
	case e.parked:
		return machine.Parked
	case e.permanent:
		return machine.Permanent
	case e.unavailable:
		return machine.Unavailable
	case e.busy:
		return machine.Deferred
	}
	return machine.Failed
}

// refused is what effects are judged as that the store would not write; nothing when err is no refusal.
func (r *runner) refused(err error) (res machine.Result) {
	culprit := (*driver.ItemError)(nil)
	switch {
	case err == nil:
		return res
	case errors.As(err, &culprit):
		err = culprit.Err
	case !errors.Is(err, driver.ErrNotCommitted):
		return res
	}
	res = machine.Result{Class: machine.Failed, Err: fmt.Errorf("effects refused: %w", err)}
	r.rules.apply(&res, res.Err, nil)
	return res
}

// outage tells that a probe could not ask because the downstream is gone.
func (r *runner) outage(res *machine.Result, err error) {
	var o *outcomeError
	if errors.As(err, &o) {
		if o.unavailable {
			res.Class, res.After, res.HasAfter = machine.Unavailable, o.after, o.hasAfter
		}
		return
	}
	judged := machine.Result{Class: machine.Failed}
	if r.rules.apply(&judged, err, nil); judged.Class == machine.Unavailable {
		res.Class, res.Rule = machine.Unavailable, judged.Rule
	}
}

// Backoff bounds delays that double: none is shorter than Min or longer than Max. The zero value is 1 s to 5 min.
type Backoff struct{ Min, Max time.Duration }
