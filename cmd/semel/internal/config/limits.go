package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/worker"
	"github.com/semel-dev/semel/key"
)

// Retries are the rules of --retry, in their order. The flag may be given several times; in one text rules are parted by
// semicolons.
type Retries []worker.RetryRule

// UnmarshalText reads rules and adds them to those that are there.
func (r *Retries) UnmarshalText(b []byte) error {
	for s := range strings.SplitSeq(string(b), ";") {
		if strings.TrimSpace(s) == "" {
			continue
		}
		rule, err := worker.ParseRetry(s)
		if err != nil {
			return err
		}
		*r = append(*r, rule)
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (r Retries) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Retries) String() string {
	texts := make([]string, len(r))
	for i := range r {
		texts[i] = r[i].String()
	}
	return strings.Join(texts, "; ")
}

// Set and Type make it a flag value.
func (r *Retries) Set(s string) error { return r.UnmarshalText([]byte(s)) }

// Type names the flag's value in help texts.
func (r *Retries) Type() string { return "rule" }

// Rate is a number of starts in a second, a minute or an hour, and how many may come at once: 50, 0.5, 90/m, 100/h,burst=5.
type Rate struct {
	text string
	rate semel.Rate
}

// UnmarshalText reads a rate; 0 is none.
func (r *Rate) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	bad := fmt.Errorf("%q is not a rate (like 50, 0.5, 90/m, 100/h,burst=5)", s)
	number, burst, given := strings.Cut(s, ",")
	got := Rate{text: s}
	if given {
		n, ok := strings.CutPrefix(strings.TrimSpace(burst), "burst=")
		v, err := strconv.Atoi(n)
		if !ok || err != nil || v < 1 {
			return bad
		}
		got.rate.Burst = v
	}
	number, unit, _ := strings.Cut(number, "/")
	per, known := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[unit]
	v, err := strconv.ParseFloat(number, 64)
	if !known || err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0) || (v == 0 && given) {
		return bad
	}
	got.rate.PerSecond = v / per
	*r = got
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Rate) String() string {
	if r.text == "" {
		return "0"
	}
	return r.text
}

// Set and Type make it a flag value.
func (r *Rate) Set(s string) error { return r.UnmarshalText([]byte(s)) }

// Type names the flag's value in help texts.
func (r *Rate) Type() string { return "rate" }

// Limits are the settings that bound how runs are started, and when they are not.
func (w *Work) Limits(cfg *semel.Config) error {
	by, err := w.groupBy()
	if err != nil {
		return err
	}
	cfg.Rate = w.Rate.rate
	cfg.PerGroup = semel.GroupLimit{By: by, Concurrency: w.GroupConcurrency, Rate: w.GroupRate.rate}
	cfg.Retry = worker.Rules(w.Retry)
	cfg.Breaker = semel.Breaker{Failures: w.Breaker, Open: backoff(w.BreakerOpen)}
	if w.Breaker == 0 {
		cfg.Breaker.Failures = -1
	}
	return nil
}

func backoff(r Range) semel.Backoff {
	return semel.Backoff{Min: time.Duration(r.Min), Max: time.Duration(r.Max)}
}

// groupBy is what --group-by says; nil = the message's own group. A message that has no such value is not limited.
func (w *Work) groupBy() (func(*semel.Message) string, error) {
	if w.GroupConcurrency == 0 && w.GroupRate.rate.PerSecond == 0 {
		if w.GroupBy != "group" {
			return nil, fmt.Errorf("--group-by %s limits nothing on its own", w.GroupBy)
		}
		return nil, nil //nolint:nilnil // no function is the default one
	}
	kind, name, _ := strings.Cut(w.GroupBy, ":")
	switch {
	case w.GroupBy == "group":
		return nil, nil //nolint:nilnil // no function is the default one
	case kind == "header" && name != "":
		return func(m *semel.Message) string { return m.Header(name) }, nil
	case kind == "json" && name != "":
		key, err := key.Parse(w.GroupBy)
		if err != nil {
			return nil, fmt.Errorf("--group-by %q: %w", w.GroupBy, err)
		}
		return func(m *semel.Message) string {
			s, err := key(m)
			if err != nil {
				return ""
			}
			return s
		}, nil
	}
	return nil, fmt.Errorf("--group-by %q is unknown (known: group, header:NAME, json:/POINTER)", w.GroupBy)
}
