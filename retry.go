package semel

import (
	"errors"
	"log/slog"
	"slices"
	"time"

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

// Backoff bounds delays that double: none is shorter than Min or longer than Max. The zero value is 1 s to 5 min.
type Backoff struct{ Min, Max time.Duration }
