package worker

import (
	"errors"
	"syscall"

	"github.com/semel-dev/semel"
)

// failure is how a run ended that did not succeed: what the rules of --retry look at.
type failure struct {
	exit   int            // exit status of a program; 0 = it has none
	signal syscall.Signal // that ended it; 0 = none
	status int            // of an HTTP response; 0 = there was none
	broken bool           // HTTP: no response came
	text   string
	err    error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// ruled is the user's rule for a failure, nil when there is none: the built-in meaning of its code then does not hold, but for
// what it says of the effect.
func ruled(rules []semel.RetryRule, err error) *semel.RetryRule {
	for i := range rules {
		if rules[i].Match != nil && rules[i].Match(err) {
			return &rules[i]
		}
	}
	return nil
}

// isFailure matches failures of runners.
func isFailure(ok func(*failure) bool) func(error) bool {
	return func(err error) bool {
		f := (*failure)(nil)
		return errors.As(err, &f) && ok(f)
	}
}
