package worker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/semel-dev/semel"
)

// RetryRule is one rule of --retry: CONDITION:ACTION,… as docs/worker.md has it.
type RetryRule struct {
	text string
	rule semel.RetryRule
}

func (r RetryRule) String() string { return r.text }

// Handler is the kind of handlers that fail as the rule's condition says: program, http, or "" for both.
func (r RetryRule) Handler() string {
	switch name, _, _ := strings.Cut(strings.TrimSpace(strings.SplitN(r.text, ":", 2)[0]), "="); name {
	case "exit", "signal":
		return "program"
	case "status", "connection":
		return "http"
	}
	return ""
}

// Rules are the rules in the engine's terms.
func Rules(rs []RetryRule) []semel.RetryRule {
	if len(rs) == 0 {
		return nil
	}
	out := make([]semel.RetryRule, len(rs))
	for i := range rs {
		out[i] = rs[i].rule
	}
	return out
}

// Named are those rules that name how a handler ended: they stand above what its exit status or HTTP status means otherwise.
// timeout and any do not: they are for what has no meaning of its own.
func Named(rs []RetryRule) []semel.RetryRule {
	var out []RetryRule
	for _, r := range rs {
		if r.Handler() != "" {
			out = append(out, r)
		}
	}
	return Rules(out)
}

// ParseRetry reads one rule. An error says what is wrong, and what would do.
func ParseRetry(s string) (RetryRule, error) {
	s = strings.TrimSpace(s)
	cond, actions, ok := strings.Cut(s, ":")
	if !ok || strings.TrimSpace(actions) == "" {
		return RetryRule{}, fmt.Errorf("rule %q has no action (like exit=3:attempts=10,backoff=5s..1m)", s)
	}
	match, err := condition(strings.TrimSpace(cond))
	if err != nil {
		return RetryRule{}, fmt.Errorf("rule %q: %w", s, err)
	}
	r := RetryRule{text: s, rule: semel.RetryRule{Match: match}}
	ends := 0
	for a := range strings.SplitSeq(actions, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(a), "=")
		if err := r.set(name, value, &ends); err != nil {
			return RetryRule{}, fmt.Errorf("rule %q: %w", s, err)
		}
	}
	if ends > 1 {
		return RetryRule{}, fmt.Errorf("rule %q: use one of dead, defer and unavailable", s)
	}
	return r, nil
}

const knownActions = "attempts=N, backoff=MIN..MAX, dead, defer, unavailable, not-applied"

func (r *RetryRule) set(name, value string, ends *int) error {
	switch name {
	case "attempts":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("attempts=%s is no number of attempts (1 or more)", value)
		}
		r.rule.MaxAttempts = n
		return nil
	case "backoff":
		b, err := backoffOf(value)
		r.rule.Backoff = b
		return err
	}
	if value != "" {
		return fmt.Errorf("action %q is unknown, or takes no value (known: %s)", name, knownActions)
	}
	switch name {
	case "dead":
		r.rule.Permanent = true
		*ends++
	case "defer":
		r.rule.Deferred = true
		*ends++
	case "unavailable":
		r.rule.Unavailable = true
		*ends++
	case "not-applied":
		r.rule.NotApplied = true
	default:
		return fmt.Errorf("action %q is unknown (known: %s)", name, knownActions)
	}
	return nil
}

func backoffOf(s string) (semel.Backoff, error) {
	lo, hi, ok := strings.Cut(s, "..")
	if !ok {
		hi = lo
	}
	from, err := time.ParseDuration(lo)
	to, err2 := time.ParseDuration(hi)
	if err != nil || err2 != nil || from <= 0 || to < from {
		return semel.Backoff{}, fmt.Errorf("backoff=%s is no range of durations (like 5s..1m)", s)
	}
	return semel.Backoff{Min: from, Max: to}, nil
}

const knownConditions = "exit=N, signal, signal=NAME, status=N, status=5xx, connection, timeout, any"

// condition is what a rule matches.
func condition(s string) (func(error) bool, error) {
	name, value, given := strings.Cut(s, "=")
	if given && value == "" {
		return nil, fmt.Errorf("condition %q has no value (known: %s)", s, knownConditions)
	}
	switch {
	case name == "exit" && given:
		from, to, err := span(value, 1, 255)
		if err != nil || overlaps(from, to, exitCannotRun, exitNotFound) {
			return nil, fmt.Errorf("%s is no exit status with a rule: 1 to 125 and 128 to 255, or FROM-TO", s)
		}
		return isFailure(func(f *failure) bool { return f.exit != 0 && f.exit >= from && f.exit <= to }), nil
	case name == "status" && given:
		if len(value) == 3 && value[1:] == "xx" {
			value = value[:1] + "00-" + value[:1] + "99"
		}
		from, to, err := span(value, 300, 599)
		if err != nil {
			return nil, fmt.Errorf("%s is no HTTP status of a failure: 300 to 599, FROM-TO, or 4xx", s)
		}
		return isFailure(func(f *failure) bool { return f.status >= from && f.status <= to }), nil
	case name == "signal" && !given:
		return isFailure(func(f *failure) bool { return f.signal != 0 }), nil
	case name == "signal":
		sig := signalOf(value)
		if sig == 0 {
			return nil, fmt.Errorf("signal %q is unknown: use a number, or HUP, INT, QUIT, ILL, ABRT, BUS, FPE, KILL, SEGV, PIPE, TERM", value)
		}
		return isFailure(func(f *failure) bool { return f.signal == sig }), nil
	case name == "connection" && !given:
		return isFailure(func(f *failure) bool { return f.broken }), nil
	case name == "timeout" && !given:
		return func(err error) bool { return errors.Is(err, semel.ErrTimeout) }, nil
	case name == "any" && !given:
		return func(error) bool { return true }, nil
	}
	return nil, fmt.Errorf("condition %q is unknown (known: %s)", s, knownConditions)
}

func overlaps(from, to, a, b int) bool { return from <= b && a <= to }

// span reads N or FROM-TO.
func span(s string, least, most int) (from, to int, err error) {
	lo, hi, ok := strings.Cut(s, "-")
	if !ok {
		hi = lo
	}
	if from, err = strconv.Atoi(lo); err != nil {
		return 0, 0, err
	}
	if to, err = strconv.Atoi(hi); err != nil {
		return 0, 0, err
	}
	if from < least || to > most || to < from {
		return 0, 0, errors.New("out of range")
	}
	return from, to, nil
}

// signals are those that a rule can name.
var signals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "ILL": syscall.SIGILL, "ABRT": syscall.SIGABRT,
	"BUS": syscall.SIGBUS, "FPE": syscall.SIGFPE, "KILL": syscall.SIGKILL, "SEGV": syscall.SIGSEGV, "PIPE": syscall.SIGPIPE,
	"TERM": syscall.SIGTERM,
}

// signalOf is the signal of a name or number; 0 if there is none.
func signalOf(s string) syscall.Signal {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n)
	}
	return signals[strings.TrimPrefix(strings.ToUpper(s), "SIG")]
}
