//go:build unix

package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

func rules(t *testing.T, texts ...string) (all []RetryRule) {
	t.Helper()
	for _, s := range texts {
		r, err := ParseRetry(s)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != s {
			t.Errorf("%q is shown as %q", s, r)
		}
		all = append(all, r)
	}
	return all
}

// The rules of --retry on what programs do, through the engine; the first that matches decides, over the built-in meaning.
func TestRetryRulesOfPrograms(t *testing.T) {
	dead := semel.Summary{Executed: 1, Dead: 1}
	tries := func(n int64) semel.Summary { return semel.Summary{Executed: n, Retried: n - 1, Dead: 1} }
	for _, c := range []struct {
		script string
		rules  []string
		want   semel.Summary
	}{
		{"exit 3", nil, tries(2)},
		{"exit 3", []string{"exit=3:attempts=4,backoff=1ms..2ms"}, tries(4)},
		{"exit 3", []string{"exit=1-3:attempts=1"}, tries(1)},
		{"exit 4", []string{"exit=3:attempts=4", "exit=4:dead", "any:attempts=5"}, dead},
		{"exit 5", []string{"exit=4:dead", "any:attempts=3"}, tries(3)},
		{"exit 75", []string{"exit=75:dead"}, dead},
		{"exit 65", []string{"exit=65:attempts=2"}, tries(2)},
		{"exit 69", []string{"exit=69:attempts=1"}, dead},
		{"kill -9 $$", []string{"signal=TERM:dead", "signal=KILL:attempts=3"}, tries(3)},
		{"kill -15 $$", []string{"signal:dead"}, dead},
		{"exec sleep 60", []string{"timeout:dead"}, dead},
		{"exit 0", []string{"any:dead"}, semel.Summary{Executed: 1, Effects: 1}},
		{"exit 99", []string{"any:dead"}, semel.Summary{Executed: 1, Dropped: 1}},
		{"exit 65", []string{"any:attempts=9"}, dead},
		{"exit 99", []string{"exit=99:dead"}, dead},
	} {
		t.Run(c.script+" "+strings.Join(c.rules, " "), func(t *testing.T) {
			e := program(c.script)
			e.KillGrace = time.Second
			all := rules(t, c.rules...)
			e.Retry = Named(all)
			got, _ := run(t, Plain(e, quiet()), func(cfg *semel.Config) {
				cfg.Retry = Rules(all)
				if strings.Contains(c.script, "sleep") {
					cfg.Timeout = 50 * time.Millisecond
				}
			}, semel.Message{})
			got.Received, got.ElapsedMS, got.Returned = 0, 0, 0
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// A rule with not-applied takes the doubt away that policy once parks for.
func TestRetryRuleNotApplied(t *testing.T) {
	for text, want := range map[string]semel.Summary{
		"exit=7:attempts=3":             {Executed: 1, Uncertain: 1},
		"exit=7:attempts=3,not-applied": {Executed: 3, Retried: 2, Dead: 1},
	} {
		e := program("exit 7")
		e.Retry = Rules(rules(t, text))
		got, _ := run(t, Plain(e, quiet()), func(cfg *semel.Config) {
			cfg.Retry, cfg.Takeover = e.Retry, semel.Once
		}, semel.Message{})
		got.Received, got.ElapsedMS, got.Returned = 0, 0, 0
		if got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

func TestRetryRulesOfHTTP(t *testing.T) {
	for _, c := range []struct {
		status int
		rules  []string
		want   semel.Summary
	}{
		{502, []string{"status=502:attempts=4,backoff=1ms..2ms"}, semel.Summary{Executed: 4, Retried: 3, Dead: 1}},
		{418, []string{"status=4xx:dead"}, semel.Summary{Executed: 1, Dead: 1}},
		{503, []string{"status=500-599:dead"}, semel.Summary{Executed: 1, Dead: 1}},
		{404, []string{"status=404:attempts=1"}, semel.Summary{Executed: 1, Dead: 1}},
		{422, []string{"status=422:attempts=2"}, semel.Summary{Executed: 2, Retried: 1, Dead: 1}},
		{200, []string{"any:dead"}, semel.Summary{Executed: 1, Effects: 1}},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(c.status)
		}))
		h := NewHTTP(HTTP{URL: srv.URL, Log: quiet(), Retry: Named(rules(t, c.rules...))}, 1)
		got, _ := run(t, Plain(h, quiet()), func(cfg *semel.Config) { cfg.Retry = Rules(rules(t, c.rules...)) }, semel.Message{})
		srv.Close()
		got.Received, got.ElapsedMS, got.Returned = 0, 0, 0
		if got != c.want {
			t.Errorf("%d %v: got %+v, want %+v", c.status, c.rules, got, c.want)
		}
	}
}

// What cannot be meant is refused, with what is known.
func TestRetryRuleMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "no action",
		"exit=3":                      "no action",
		"exit=3:":                     "no action",
		"exit=0:dead":                 "no exit status",
		"exit=127:dead":               "no exit status",
		"exit=100-130:dead":           "no exit status",
		"exit=x:dead":                 "no exit status",
		"exit=:dead":                  "has no value",
		"exit:dead":                   "is unknown",
		"status=200:dead":             "no HTTP status",
		"status=9xx:dead":             "no HTTP status",
		"signal=FOO:dead":             `signal "FOO" is unknown`,
		"panic:dead":                  `condition "panic" is unknown`,
		"any:explode":                 `action "explode" is unknown`,
		"any:dead=1":                  "takes no value",
		"any:attempts=0":              "no number of attempts",
		"any:backoff=5m..1s":          "no range of durations",
		"any:dead,defer":              "one of dead, defer and unavailable",
		"any:attempts=1,,":            `action "" is unknown`,
		"exit=3:attempts=2,backoff=x": "no range of durations",
	} {
		if _, err := ParseRetry(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if got := fmt.Sprint(signalOf("sigterm"), signalOf("9")); got != "terminated killed" {
		t.Error(got)
	}
}
