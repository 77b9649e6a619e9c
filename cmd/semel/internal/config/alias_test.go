package config

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/simulate"
)

// applied is what the arguments and the environment make of the settings of semel work.
func applied(t *testing.T, args, environ []string) (Work, string, *Applied, error) {
	t.Helper()
	w := Default()
	fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
	Bind(fs, &w)
	level := fs.String("log-level", "info", "")
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	a, err := Apply(fs, Source{Environ: environ, Worker: true})
	return w, *level, a, err
}

// knobsOf are the knobs after --simulate=flag in an environment.
func knobsOf(t *testing.T, flag string, environ ...string) simulate.Knobs {
	t.Helper()
	w, _, _, err := applied(t, []string{"--simulate=" + flag}, environ)
	if err != nil {
		t.Fatal(err)
	}
	return w.Simulate
}

// turned are the variables of the experiments (S3-19 to S3-32): each with a value, another one that the flag says, and
// where both end up.
var turned = []struct {
	variable, value, flag string
	knob                  func(simulate.Knobs) any
	want, wantFlag        any
}{
	{"SLEEP_MIN_SECONDS", "0.25", "sleep-min=0.5", func(k simulate.Knobs) any { return k.SleepMin }, 250 * time.Millisecond, 500 * time.Millisecond},
	{"SLEEP_MAX_SECONDS", "3", "sleep-max=4s", func(k simulate.Knobs) any { return k.SleepMax }, 3 * time.Second, 4 * time.Second},
	{"LONG_SLEEP_SECONDS", "10", "long-sleep=7", func(k simulate.Knobs) any { return k.LongSleep }, 10 * time.Second, 7 * time.Second},
	{"LONG_SLEEP_EVERY", "2", "long-every=3", func(k simulate.Knobs) any { return k.LongEvery }, 2, 3},
	{"CRASH_RATE", "0.2", "crash-rate=0.5", func(k simulate.Knobs) any { return k.CrashRate }, 0.2, 0.5},
	{"CRASH_SEED", "7", "seed=8", func(k simulate.Knobs) any { return k.Seed }, uint64(7), uint64(8)},
	{"CRASH_AFTER_RECEIVE", "1", "crash-after-receive=0", func(k simulate.Knobs) any { return k.CrashAfterReceive }, true, false},
	{"CRASH_AFTER_SIDE_EFFECT", "1", "crash-after-side-effect=0", func(k simulate.Knobs) any { return k.CrashAfterSideEffect }, true, false},
	{"REJECT_PAYLOAD_MARKER", "poison, 5%", "reject=bad", func(k simulate.Knobs) any { return k.Reject }, "poison, 5%", "bad"},
	{"USE_TRANSACTIONAL_WRITES", "1", "transactional=0", func(k simulate.Knobs) any { return k.Transactional }, true, false},
}

// TestVariablesTurnTheirKnobs shows S3-19 to S3-24, S3-28, S3-31 and S3-32: each variable turns its own knob and no other,
// and the flag beats it.
func TestVariablesTurnTheirKnobs(t *testing.T) {
	for _, v := range turned {
		set := v.variable + "=" + v.value
		got := knobsOf(t, "on", set)
		if is := v.knob(got); is != v.want {
			t.Errorf("%s: the knob is %v, want %v", set, is, v.want)
		}
		for _, other := range turned {
			if is, was := other.knob(got), other.knob(simulate.Default()); other.variable != v.variable && is != was {
				t.Errorf("%s: the knob of %s is %v, was %v", set, other.variable, is, was)
			}
		}
		if is := v.knob(knobsOf(t, v.flag, set)); is != v.wantFlag {
			t.Errorf("--simulate=%s and %s: the knob is %v, want %v", v.flag, set, is, v.wantFlag)
		}
		// SEMEL_OPT_SIMULATE comes before it, too.
		w, _, _, err := applied(t, nil, []string{set, "SEMEL_OPT_SIMULATE=" + v.flag})
		if is := v.knob(w.Simulate); err != nil || is != v.wantFlag {
			t.Errorf("SEMEL_OPT_SIMULATE=%s and %s: the knob is %v (%v), want %v", v.flag, set, is, err, v.wantFlag)
		}
	}
	for _, al := range knobs() { // those that the list above forgot
		found := false
		for _, v := range turned {
			found = found || v.variable == al.Var
		}
		if !found {
			t.Errorf("nothing here sets %s", al.Var)
		}
	}
}

func TestVariablesTogether(t *testing.T) {
	var environ []string
	for _, v := range turned {
		environ = append(environ, v.variable+"="+v.value)
	}
	got := knobsOf(t, "on", environ...)
	for _, v := range turned {
		if is := v.knob(got); is != v.want {
			t.Errorf("%s=%s among the others: the knob is %v, want %v", v.variable, v.value, is, v.want)
		}
	}
	w, _, a, err := applied(t, nil, environ)
	if err != nil || w.Simulate.On || len(a.Aliases) > 0 {
		t.Errorf("without --simulate: %+v, %+v, %v", w.Simulate, a.Aliases, err)
	}
}

// TestS3_33_LogLevel: a bad LOG_LEVEL is refused where the worker is one on AWS; elsewhere it is some other program's.
func TestS3_33_LogLevel(t *testing.T) {
	lite := []string{"--queue", "sqlite:q.db?queue=a"}
	aws := []string{"--queue", "sqs://orders", "--store", "dynamodb://records"}
	for _, c := range []struct {
		args, environ     []string
		level, note, fail string
	}{
		{lite, []string{"LOG_LEVEL=WARNING"}, "warn", "", ""},
		{aws, []string{"LOG_LEVEL=DEBUG"}, "debug", "", ""},
		{lite, []string{"LOG_LEVEL=trace"}, "info", `LOG_LEVEL: "trace" is no level`, ""},
		{lite, []string{"LOG_LEVEL=trace", "MAX_MESSAGES=5"}, "", "", "environment variable LOG_LEVEL"},
		{append(lite, "--simulate"), []string{"LOG_LEVEL=trace", "SLEEP_MIN_SECONDS=0"}, "", "", "environment variable LOG_LEVEL"},
		{aws, []string{"LOG_LEVEL=trace"}, "", "", "environment variable LOG_LEVEL"},
		{[]string{"--store", "dynamodb://records"}, []string{"LOG_LEVEL=trace"}, "", "", "environment variable LOG_LEVEL"},
		{nil, []string{"LOG_LEVEL=trace", "QUEUE_URL=https://sqs.eu-west-1.amazonaws.com/123456789012/orders"}, "", "", "environment variable LOG_LEVEL"},
		{append(aws, "--log-level", "error"), []string{"LOG_LEVEL=trace"}, "error", "", ""},
	} {
		_, level, a, err := applied(t, c.args, c.environ)
		switch {
		case c.fail != "":
			if err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%v %v: %v, want %q", c.environ, c.args, err, c.fail)
			}
		case err != nil || level != c.level:
			t.Errorf("%v %v: %q %v, want %q", c.environ, c.args, level, err, c.level)
		case c.note == "" && len(a.Notes) > 0, c.note != "" && (len(a.Notes) != 1 || !strings.HasPrefix(a.Notes[0], c.note)):
			t.Errorf("%v %v: logged %q, want %q", c.environ, c.args, a.Notes, c.note)
		}
	}
}
