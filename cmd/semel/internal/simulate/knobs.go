// Package simulate is a handler for experiments: it sleeps, leaves one effect a run in a ledger that can be counted from
// outside, and fails as configured. Its knobs are those of a well-known demonstration of SQS, so that its experiments can be
// repeated on every queue and store.
package simulate

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Knobs say what the simulated handler does. The text form, which is that of --simulate, is a list: "on", or for example
// "sleep-min=100ms,sleep-max=1s,crash-rate=0.2,seed=7,ledger=effects.jsonl". In a value , is written %2C and % is %25.
type Knobs struct {
	On bool
	// SleepMin and SleepMax bound how long a message works; LongSleep is for every LongEvery-th. A message that has the
	// field "sleep" (seconds) works that long.
	SleepMin, SleepMax, LongSleep time.Duration
	LongEvery                     int
	// CrashRate is the share of messages in whose first run the process dies before the effect. Which, and where in the
	// run, follows from Seed and the message's key alone. Seed 0 draws one.
	CrashRate float64
	Seed      uint64
	// CrashAfterReceive: the process dies when a run is recorded and before its message is deleted: the first time that
	// a message is received it costs a process.
	CrashAfterReceive bool
	// CrashAfterSideEffect: the process dies right after the effect. With Transactional that is after the commit of effect
	// and record; else it is between the two, in the first run of each message.
	CrashAfterSideEffect bool
	// Reject is a text that bodies are refused for: as a failure for good, or one that is repeated up to --max-attempts
	// with RetryRejected.
	Reject        string
	RetryRejected bool
	// Transactional: the effect commits together with the record.
	Transactional bool
	// Ledger is where effects go: a file that lines of JSON are appended to, or, with Transactional, a table of the store.
	Ledger string

	said uint16 // the knobs that were turned, by their place in names
}

// Default are the knobs of a plain --simulate.
func Default() Knobs { return Knobs{On: true, SleepMin: 100 * time.Millisecond, SleepMax: time.Second} }

// Names of the knobs in the text form.
const (
	SleepMin             = "sleep-min"
	SleepMax             = "sleep-max"
	LongSleep            = "long-sleep"
	LongEvery            = "long-every"
	CrashRate            = "crash-rate"
	Seed                 = "seed"
	CrashAfterReceive    = "crash-after-receive"
	CrashAfterSideEffect = "crash-after-side-effect"
	Reject               = "reject"
	RetryRejected        = "retry-rejected"
	Transactional        = "transactional"
	Ledger               = "ledger"
)

// names lists the knobs in the order in which they are written.
func names() []string {
	return []string{
		SleepMin, SleepMax, LongSleep, LongEvery, CrashRate, Seed, CrashAfterReceive, CrashAfterSideEffect, Reject, RetryRejected,
		Transactional, Ledger,
	}
}

// UnmarshalText reads the text form; "" and "off" are no simulation.
func (k *Knobs) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	if text == "" || text == "off" {
		*k = Knobs{}
		return nil
	}
	got := Default()
	for _, item := range strings.Split(text, ",") {
		if item = strings.TrimSpace(item); item == "on" || item == "" {
			continue
		}
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			value = "1"
		}
		if err := got.Turn(strings.TrimSpace(name), unescape(value)); err != nil {
			return err
		}
	}
	*k = got
	return nil
}

// Turn sets one knob to a text. Durations may be plain numbers of seconds.
func (k *Knobs) Turn(name, value string) (err error) {
	switch name {
	case SleepMin:
		k.SleepMin, err = duration(value)
	case SleepMax:
		k.SleepMax, err = duration(value)
	case LongSleep:
		k.LongSleep, err = duration(value)
	case LongEvery:
		k.LongEvery, err = strconv.Atoi(value)
	case CrashRate:
		k.CrashRate, err = strconv.ParseFloat(value, 64)
	case Seed:
		k.Seed, err = strconv.ParseUint(value, 10, 64)
	case CrashAfterReceive:
		k.CrashAfterReceive, err = truth(value)
	case CrashAfterSideEffect:
		k.CrashAfterSideEffect, err = truth(value)
	case Reject:
		k.Reject = value
	case RetryRejected:
		k.RetryRejected, err = truth(value)
	case Transactional:
		k.Transactional, err = truth(value)
	case Ledger:
		k.Ledger = value
	default:
		return fmt.Errorf("%q is no knob of the simulation (known: %s)", name, strings.Join(names(), ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %q does not fit: %w", name, value, err)
	}
	k.said |= bit(name)
	return nil
}

// Says reports that a knob was turned, if only to its default.
func (k *Knobs) Says(name string) bool { return k.said&bit(name) != 0 }

func bit(name string) uint16 { return 1 << max(slices.Index(names(), name), 0) }

// Check refuses what cannot be.
func (k *Knobs) Check() error {
	switch {
	case k.SleepMin < 0 || k.LongSleep < 0:
		return fmt.Errorf("%s and %s must not be negative", SleepMin, LongSleep)
	case k.SleepMin > k.SleepMax:
		return fmt.Errorf("%s (%s) is more than %s (%s)", SleepMin, k.SleepMin, SleepMax, k.SleepMax)
	case k.LongEvery < 0:
		return fmt.Errorf("%s must be 0 for never, or 1 and more", LongEvery)
	case k.CrashRate < 0 || k.CrashRate > 1 || math.IsNaN(k.CrashRate):
		return fmt.Errorf("%s must be from 0 to 1", CrashRate)
	case k.Transactional && k.Ledger == "":
		return fmt.Errorf("%s needs %s: a table of the store for the effects", Transactional, Ledger)
	case k.Transactional && !tableName.MatchString(k.Ledger):
		return fmt.Errorf("%s=%q is no name of a table", Ledger, k.Ledger)
	}
	return nil
}

// tableName is what a table may be called, with its schema, in SQL and on DynamoDB.
var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// OneByOne reports that one handler must run at a time: the effect does not commit with the record, so what others had done
// and not yet recorded would be in doubt with every crash, and the experiment would measure that instead.
func (k *Knobs) OneByOne() bool {
	return !k.Transactional && (k.CrashRate > 0 || k.CrashAfterReceive || k.CrashAfterSideEffect)
}

// MarshalText writes what UnmarshalText reads.
func (k Knobs) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

func (k Knobs) String() string {
	if !k.On {
		return ""
	}
	all := []string{"on"}
	d := Default()
	for _, name := range names() {
		if v := k.value(name); v != d.value(name) || k.Says(name) {
			all = append(all, name+"="+escape(v))
		}
	}
	return strings.Join(all, ",")
}

// value is the text of a knob.
func (k *Knobs) value(name string) string {
	number := func(on bool) string {
		if on {
			return "1"
		}
		return "0"
	}
	return map[string]string{
		SleepMin: k.SleepMin.String(), SleepMax: k.SleepMax.String(), LongSleep: k.LongSleep.String(), LongEvery: strconv.Itoa(k.LongEvery),
		CrashRate: strconv.FormatFloat(k.CrashRate, 'g', -1, 64), Seed: strconv.FormatUint(k.Seed, 10),
		CrashAfterReceive: number(k.CrashAfterReceive), CrashAfterSideEffect: number(k.CrashAfterSideEffect), Reject: k.Reject,
		RetryRejected: number(k.RetryRejected), Transactional: number(k.Transactional), Ledger: k.Ledger,
	}[name]
}

// Set and Type make it a flag value.
func (k *Knobs) Set(s string) error { return k.UnmarshalText([]byte(s)) }

// Type names the flag's value in help texts.
func (k *Knobs) Type() string { return "knobs" }

// Alone is what the flag without a value means.
func (k *Knobs) Alone() string { return "on" }

func escape(s string) string { return strings.NewReplacer("%", "%25", ",", "%2C").Replace(s) }

func unescape(s string) string {
	return strings.NewReplacer("%2C", ",", "%2c", ",", "%25", "%").Replace(s)
}

// duration is a duration, or a number of seconds.
func duration(s string) (time.Duration, error) {
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(v) || math.Abs(v) > 1e9 {
			return 0, fmt.Errorf("%q is no number of seconds", s)
		}
		return time.Duration(v * float64(time.Second)), nil
	}
	return time.ParseDuration(s)
}

// truth is a switch: any whole number but 0 is on.
func truth(s string) (bool, error) {
	if n, err := strconv.Atoi(s); err == nil {
		return n != 0, nil
	}
	return strconv.ParseBool(s)
}
