package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/ops"
)

// Retention is how long records are kept: 14d for all, or by how a message ended: completed=14d,failed=60d. Both may be
// given; ends that are not named are kept as long as all. The zero value is the default of [semel.Config].
type Retention struct {
	all Duration // 0 = the default
	by  semel.Retain
}

// ends are the names of the kinds of ends.
func (r *Retention) ends() []struct {
	name string
	d    *time.Duration
} {
	return []struct {
		name string
		d    *time.Duration
	}{{"completed", &r.by.Completed}, {"failed", &r.by.Failed}, {"dropped", &r.by.Dropped}, {"released", &r.by.Released}}
}

// UnmarshalText reads a retention.
func (r *Retention) UnmarshalText(b []byte) error {
	var got Retention
	for part := range strings.SplitSeq(string(b), ",") {
		name, value, named := strings.Cut(strings.TrimSpace(part), "=")
		to := (*time.Duration)(&got.all)
		if named {
			to = nil
			for _, e := range got.ends() {
				if e.name == strings.TrimSpace(name) {
					to = e.d
				}
			}
		} else {
			value = name
		}
		if to == nil {
			return fmt.Errorf("%q is no end of a message (like 14d, or completed=14d,failed=60d,dropped=14d,released=14d)", name)
		}
		d, err := ParseDuration(strings.TrimSpace(value))
		switch {
		case err != nil:
			return err
		case d <= 0:
			return fmt.Errorf("%q: a retention must be positive (like 14d, or completed=14d,failed=60d)", part)
		case *to != 0:
			return fmt.Errorf("%q: said twice", part)
		}
		*to = d
	}
	*r = got
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (r Retention) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Retention) String() string {
	var parts []string
	if r.all > 0 || r.by == (semel.Retain{}) {
		parts = append(parts, Duration(r.All()).String())
	}
	for _, e := range r.ends() {
		if *e.d > 0 {
			parts = append(parts, e.name+"="+Duration(*e.d).String())
		}
	}
	return strings.Join(parts, ",")
}

// Set and Type make it a flag value.
func (r *Retention) Set(s string) error { return r.UnmarshalText([]byte(s)) }

// Type names the flag's value in help texts.
func (r *Retention) Type() string { return "duration" }

// All is how long ends are kept that nothing else is said of.
func (r *Retention) All() time.Duration {
	if r.all == 0 {
		return semel.DefaultRetention
	}
	return time.Duration(r.all)
}

// settled is the retention that a consumer settles on whose queue can bring copies for so long: what nobody gave covers it.
func (r Retention) settled(horizon time.Duration) Retention {
	if r.all == 0 {
		r.all = Duration(ops.RetentionFor(horizon))
	}
	return r
}

// Shown is the text of it for a queue that can bring copies for so long.
func (r *Retention) Shown(horizon time.Duration) string { return r.settled(horizon).String() }

// Window is for how long a finished message is known at least.
func (r *Retention) Window(horizon time.Duration) time.Duration {
	s := r.settled(horizon)
	window := time.Duration(s.all)
	for _, e := range s.ends() {
		if *e.d > 0 {
			window = min(window, *e.d)
		}
	}
	return window
}

// Of is how long a record in that state is kept.
func (r *Retention) Of(s driver.State) time.Duration {
	d := map[driver.State]time.Duration{
		driver.Completed: r.by.Completed, driver.FailedState: r.by.Failed, driver.Released: r.by.Released,
	}[s]
	if d == 0 {
		return r.All()
	}
	return d
}

// For is Of for a queue that can bring copies of a message for so long: law 10 for what a person ends or reopens. The error
// is one of usage.
func (r *Retention) For(s driver.State, horizon time.Duration) (time.Duration, error) {
	settled := r.settled(horizon)
	d := settled.Of(s)
	if d < horizon {
		return 0, output.Usage("--retention: the record would be kept for %s, and a copy of its message can come %s after the first: it "+
			"would run again", Duration(d), Duration(horizon)).WithHint("--retention %s", Duration(horizon))
	}
	return d, nil
}

// Apply sets it in a consumer's configuration. What nobody gave stays to be settled there: it may be longer than the default.
func (r *Retention) Apply(cfg *semel.Config) { cfg.Retention, cfg.Retain = time.Duration(r.all), r.by }
