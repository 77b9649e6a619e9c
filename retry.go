package semel

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/semel-dev/semel/internal/machine"
)

// RetryRule decides how a class of failures is retried. The first rule of Config.Retry that matches an error applies. A
// failure that no rule matches is retried according to Config.MaxAttempts and Config.Backoff.
//
// Marks of the handler win: no rule applies to an error marked Permanent, Deferred, Unavailable, Drop or Park, and an error
// marked RetryAfter takes only MaxAttempts from its rule. Rules also apply to panics (*PanicError), timeouts (ErrTimeout) and
// effects that the store refused.
type RetryRule struct {
	// Match reports whether the rule applies to an error: [ErrorIs], [ErrorAs] or any function that does not block. nil
	// matches all.
	Match func(err error) bool
	// MaxAttempts is the number of failed runs after which the message becomes a dead letter, if its latest failure is of
	// this class. All failures of the key count, whatever their class. Defaults to Config.MaxAttempts.
	MaxAttempts int
	// Backoff bounds the delay before the next attempt. Defaults to Config.Backoff.
	Backoff Backoff
	// NotApplied: the failure certainly had no effect. See the function of that name.
	NotApplied bool
	// At most one of these may be set. Each has the effect of the function of its name, with Backoff as the delay. Deferred
	// implies NotApplied.
	Permanent, Deferred, Unavailable bool
}

// ErrorIs returns a function that matches errors as [errors.Is] does with any of the targets.
func ErrorIs(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
}

// ErrorAs returns a function that matches errors as [errors.As] does with the type T. If ok is not nil, it must also return
// true for the error.
func ErrorAs[T error](ok func(T) bool) func(error) bool {
	return func(err error) bool {
		var t T
		return errors.As(err, &t) && (ok == nil || ok(t))
	}
}

// check returns the field of a rule that cannot be used, and a hint. The hint is empty if the rule is valid.
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

// Unavailable marks a failure of the downstream, not of the message: the downstream cannot be reached or is under
// maintenance. No attempt is spent, however long that lasts. The breaker counts the failure (Config.Breaker): after several in
// a row nothing runs until a trial run meets no outage. The outcome of the run is unknown unless the error is also marked
// NotApplied. Under the policy Once such a run is parked like any other that began.
func Unavailable(err error) error {
	return wrapOutcome(err, func(o *outcomeError) { o.unavailable = true })
}

// ruleSet is Config.Retry in the machine's terms.
type ruleSet struct {
	rules    []RetryRule
	bounds   []machine.Rule // one per rule
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

// apply classes a failure that has no mark. cause is the cause of its context's end, or nil.
func (s *ruleSet) apply(res *machine.Result, err, cause error) {
	if len(s.rules) == 0 && s.classify == nil {
		return
	}
	if cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err) // a driver's error may hide its cause
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

// ask calls a function of the program. If it panics, it does not match, and the process goes on.
func (s *ruleSet) ask(match func(error) bool, err error) (yes bool) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("a function that classes errors panicked: it counts as no match", "panic", v, logErr, err)
			yes = false
		}
	}()
	return match(err)
}

// Backoff bounds delays that double: none is shorter than Min or longer than Max. Config.Backoff defaults to 1 s to 5 min.
type Backoff struct{ Min, Max time.Duration }
