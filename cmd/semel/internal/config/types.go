package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/internal/words"
)

// Duration is a time.Duration that may be given in days: 14d, 36h, 1d12h, 500ms.
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// ParseDuration is time.ParseDuration with days (d) as the first unit. Negative durations are refused.
func ParseDuration(s string) (time.Duration, error) {
	days, rest := 0.0, s
	n, after, inDays := strings.Cut(s, "d")
	if inDays {
		v, err := strconv.ParseFloat(n, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration (like 500ms, 30s, 15m, 14d)", s)
		}
		days, rest = v, after
	}
	var d time.Duration
	if rest != "" || !inDays {
		v, err := time.ParseDuration(rest)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration (like 500ms, 30s, 15m, 14d)", s)
		}
		d = v
	}
	total := days*float64(24*time.Hour) + float64(d)
	if total < 0 || total >= math.MaxInt64 || math.IsNaN(total) {
		return 0, fmt.Errorf("%q is negative or too long for a duration", s)
	}
	if !inDays {
		return d, nil
	}
	return time.Duration(total), nil
}

// MarshalText writes what UnmarshalText reads, in days where it is whole days.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return words.Duration(time.Duration(d)) }

// Set and Type make it a flag value.
func (d *Duration) Set(s string) error { return d.UnmarshalText([]byte(s)) }

// Type names the flag's value in help texts.
func (d *Duration) Type() string { return "duration" }

// DurationVar adds a flag that is a Duration.
func DurationVar(fs *pflag.FlagSet, d *time.Duration, name, usage string) {
	fs.Var((*Duration)(d), name, usage)
}

// Size is a number of bytes: 65536, 64KiB, 1MB.
type Size int64

var units = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"B", 1},
}

// UnmarshalText reads a size.
func (n *Size) UnmarshalText(b []byte) error {
	s, factor := strings.TrimSpace(string(b)), 1.0
	for _, u := range units {
		if strings.HasSuffix(s, u.name) {
			s, factor = strings.TrimSpace(strings.TrimSuffix(s, u.name)), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v < 0 || math.IsNaN(v) || v*factor > 1<<40 {
		return fmt.Errorf("%q is not a size (like 65536, 64KiB, 1MB)", b)
	}
	*n = Size(v * factor)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (n Size) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

func (n Size) String() string {
	for _, u := range []int{2, 1, 0} {
		if b := Size(units[u].bytes); n >= b && n%b == 0 {
			return strconv.FormatInt(int64(n/b), 10) + units[u].name
		}
	}
	return strconv.FormatInt(int64(n), 10)
}

// Set and Type make it a flag value.
func (n *Size) Set(s string) error { return n.UnmarshalText([]byte(s)) }

// Type names the flag's value in help texts.
func (n *Size) Type() string { return "size" }

// Range is a lower and an upper duration: 1s..5m.
type Range struct{ Min, Max Duration }

// UnmarshalText reads a range; one duration alone is both ends.
func (r *Range) UnmarshalText(b []byte) error {
	lo, hi, ok := strings.Cut(string(b), "..")
	if !ok {
		hi = lo
	}
	var got Range
	if err := got.Min.UnmarshalText([]byte(lo)); err != nil {
		return fmt.Errorf("range %q (like 1s..5m): %w", b, err)
	}
	if err := got.Max.UnmarshalText([]byte(hi)); err != nil {
		return fmt.Errorf("range %q (like 1s..5m): %w", b, err)
	}
	if got.Min > got.Max || got.Min <= 0 {
		return fmt.Errorf("range %q must grow and start above zero (like 1s..5m)", b)
	}
	*r = got
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Range) String() string { return r.Min.String() + ".." + r.Max.String() }

// Set and Type make it a flag value.
func (r *Range) Set(s string) error { return r.UnmarshalText([]byte(s)) }

// Type names the flag's value in help texts.
func (r *Range) Type() string { return "min..max" }
