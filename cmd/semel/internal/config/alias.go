package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/simulate"
)

// Alias is an environment variable that existing workers on SQS and DynamoDB are configured with. It stands for one of our
// settings where nothing of ours says otherwise: flag, SEMEL_OPT_* and --config come first. Commands without a queue and
// a store take none.
type Alias struct {
	// Var is the variable. An empty one is one that is not set.
	Var string
	// Setting is the flag that it sets.
	Setting string
	// Convert makes the setting's text of the variable's; nil leaves it as it is. A note tells what had to be changed. An
	// error says what is wrong with the value: Apply names the variable.
	Convert func(value string) (text, note string, err error)
	// Merge adds the value to the setting (as a parameter of its URL) and returns the result, which is unchanged if the setting
	// has that parameter. nil: the value is the setting, unless that is given.
	Merge func(current, value string) (string, error)
	// When says that the variable is meant for this command, whose other settings it may ask for; nil: always.
	When func(get func(setting string) string) bool
	// Common: programs without SQS read this variable, too. A bad value is an error if the worker is set up for AWS (by a URL,
	// or by another of these variables), and otherwise logged and ignored.
	Common bool
}

// Used is an alias that had an effect.
type Used struct {
	Var     string `json:"variable"`
	Setting string `json:"setting"`
	Value   string `json:"value"`
}

// Aliases are the variables in the order in which they are looked at.
func Aliases() []Alias {
	return append([]Alias{
		{Var: "QUEUE_URL", Setting: "queue"},
		{Var: "TABLE_NAME", Setting: "store", Convert: tableURL, When: onAWS},
		{Var: "MESSAGE_STATUS_TABLE", Setting: "store", Convert: tableURL, When: onAWS},
		{Var: "MESSAGE_COMPLETED_TABLE", Setting: "store", Convert: gateTable, Merge: inURL("gate")},
		{Var: "WAIT_TIME_SECONDS", Setting: "queue", Convert: seconds, Merge: inURL("wait")},
		{Var: "MAX_MESSAGES", Setting: "batch", Convert: batchOfTen},
		{Var: "SQS_BATCH_SIZE", Setting: "batch", Convert: batchOfTen},
		{Var: "SQS_VISIBILITY_TIMEOUT", Setting: "visibility", Convert: seconds},
		{Var: "MESSAGE_LIMIT", Setting: "limit", Convert: wholeNumber},
		{Var: "IDEMPOTENCY_CACHE_SIZE", Setting: "cache-size", Convert: wholeNumber},
		{Var: "IDLE_TIMEOUT_SECONDS", Setting: "idle-timeout", Convert: seconds},
	}, append(knobs(), Alias{Var: "LOG_LEVEL", Setting: "log-level", Convert: logLevel, Common: true})...)
}

// applyAliases sets what is not set otherwise.
func (a *Applied) applyAliases(flags *pflag.FlagSet, environ []string, takes func(name string) bool) error {
	if flags.Lookup("queue") == nil && flags.Lookup("store") == nil {
		return nil
	}
	get := func(name string) string {
		if f := flags.Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	by := map[string]Used{}
	for _, al := range Aliases() {
		value := getenv(environ, al.Var)
		if value == "" || flags.Lookup(al.Setting) == nil || !takes(al.Setting) || al.When != nil && !al.When(get) {
			continue
		}
		if _, other := by[al.Setting]; a.Origin[al.Setting] != "" && al.Merge == nil && !other {
			continue
		}
		text, note := value, ""
		if al.Convert != nil {
			var err error
			if text, note, err = al.Convert(value); err != nil && al.Common && !a.forAWS(get) {
				a.Notes = append(a.Notes, fmt.Sprintf("%s: %v: left alone", al.Var, err))
				continue
			}
			if err != nil {
				return output.Usage("environment variable %s: %w", al.Var, err).WithHint("unset %s, or give --%s", al.Var, al.Setting)
			}
		}
		if al.Merge == nil {
			if first, twice := by[al.Setting]; twice {
				if first.Value != text {
					return output.Usage("environment variables %s and %s say different things about --%s", first.Var, al.Var, al.Setting).
						WithHint("unset one of them, or give --%s", al.Setting)
				}
				continue
			}
		} else {
			merged, err := al.Merge(get(al.Setting), text)
			if err != nil {
				return output.Usage("environment variable %s: %w", al.Var, err)
			}
			if merged == get(al.Setting) {
				continue
			}
			text = merged
		}
		if err := flags.Set(al.Setting, text); err != nil {
			return output.Usage("environment variable %s: %w", al.Var, unwrapFlag(err)).WithHint("unset %s, or give --%s", al.Var, al.Setting)
		}
		u := Used{al.Var, al.Setting, open.Redact(value)}
		a.Aliases = append(a.Aliases, u)
		if al.Merge == nil {
			by[al.Setting] = Used{al.Var, al.Setting, text}
			a.Origin[al.Setting] = al.Var
		}
		if note != "" {
			a.Notes = append(a.Notes, al.Var+": "+note)
		}
	}
	return nil
}

// forAWS reports that the worker is set up as one on AWS: a place is there, or a variable of such workers was used.
func (a *Applied) forAWS(get func(string) string) bool {
	return len(a.Aliases) > 0 || open.OnAWS(get("queue")) || open.OnAWS(get("store"))
}

// environ is the environment that settings are read from.
func (s Source) environ() []string {
	if s.Environ == nil {
		return os.Environ()
	}
	return s.Environ
}

func getenv(environ []string, name string) string {
	value := ""
	for _, e := range environ { // the last one counts, as in os/exec
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// onAWS keeps the name of a table from becoming the store of a queue elsewhere.
func onAWS(get func(string) string) bool {
	q := get("queue")
	return q == "" || open.OnAWS(q)
}

// tableURL is the store of a table's name.
func tableURL(name string) (text, note string, err error) {
	raw := "dynamodb://" + name
	if strings.Contains(name, "://") {
		raw = name
	}
	if t, err := open.Parse("store", raw); err != nil || t.Scheme != "dynamodb" {
		return "", "", errors.New("not the name of a DynamoDB table (3 to 255 of a-z A-Z 0-9 _ . -)")
	}
	return raw, "", nil
}

// gateTable is a second table's name.
func gateTable(name string) (text, note string, err error) {
	_, _, err = tableURL(name)
	return name, "", err
}

// inURL puts a value into a URL of AWS as a parameter, unless the URL has it.
func inURL(param string) func(current, value string) (string, error) {
	return func(current, value string) (string, error) {
		if !open.OnAWS(current) {
			return current, nil
		}
		return open.AddParam(current, param, value)
	}
}

// seconds is a number of seconds as a duration.
func seconds(value string) (text, note string, err error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || v < 0 || math.IsNaN(v) || v > math.MaxInt64/1e9 {
		return "", "", fmt.Errorf("%q is not a number of seconds", value)
	}
	return time.Duration(v * float64(time.Second)).String(), "", nil
}

func wholeNumber(value string) (text, note string, err error) {
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil || n < 0 {
		return "", "", fmt.Errorf("%q is not a whole number of 0 or more", value)
	}
	return strconv.Itoa(n), "", nil
}

// batchOfTen is a number of messages of one call: SQS gives and takes ten at most.
func batchOfTen(value string) (text, note string, err error) {
	text, _, err = wholeNumber(value)
	if n, _ := strconv.Atoi(text); err == nil && n > 10 {
		return "10", value + " is capped at 10, which is the most that SQS gives in one call", nil
	}
	if text == "0" {
		return "", "", errors.New("0 messages of a call: use 1 to 10")
	}
	return text, "", err
}

// logLevel takes the names that Python's and Node's loggers use.
func logLevel(value string) (text, note string, err error) {
	switch l := strings.ToLower(strings.TrimSpace(value)); l {
	case "debug", "info", "warn", "error":
		return l, "", nil
	case "warning":
		return "warn", "", nil
	}
	return "", "", fmt.Errorf("%q is no level (known: DEBUG, INFO, WARNING, ERROR)", value)
}

// knobs are the variables that turn the knobs of --simulate. Without that flag they mean nothing.
func knobs() []Alias {
	var out []Alias
	for _, v := range []struct{ name, knob string }{
		{"SLEEP_MIN_SECONDS", simulate.SleepMin},
		{"SLEEP_MAX_SECONDS", simulate.SleepMax},
		{"LONG_SLEEP_SECONDS", simulate.LongSleep},
		{"LONG_SLEEP_EVERY", simulate.LongEvery},
		{"CRASH_RATE", simulate.CrashRate},
		{"CRASH_SEED", simulate.Seed},
		{"CRASH_AFTER_RECEIVE", simulate.CrashAfterReceive},
		{"CRASH_AFTER_SIDE_EFFECT", simulate.CrashAfterSideEffect},
		{"REJECT_PAYLOAD_MARKER", simulate.Reject},
		{"USE_TRANSACTIONAL_WRITES", simulate.Transactional},
	} {
		out = append(out, Alias{
			Var: v.name, Setting: "simulate",
			When: func(get func(string) string) bool { return get("simulate") != "" },
			Merge: func(current, value string) (string, error) {
				var k simulate.Knobs
				if err := k.Set(current); err != nil || k.Says(v.knob) {
					return current, err
				}
				err := k.Turn(v.knob, value)
				return k.String(), err
			},
		})
	}
	return out
}
