package semel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
)

// TestTheDefaultLogTellsWhatNeedsAPerson: without Config.Logger the lines go to slog.Default, failures of each kind are in
// it at the level that a person expects, the normal course is not, and each line names worker, queue and consumer once.
func TestTheDefaultLogTellsWhatNeedsAPerson(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var out bytes.Buffer
	slog.SetDefault(slog.New(slog.NewJSONHandler(&out, nil)))
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			switch {
			case a.Key.Raw == "panics":
				panic("boom")
			case a.Key.Raw == "retries" && a.Number == 1:
				return errors.New("try again")
			}
			return nil
		}), func(c *semel.Config) { c.Logger, c.MaxAttempts = nil, 2 })
		r.send(msg("fine"), msg("fine"), msg("retries"), msg("panics"))
		r.start()
		r.after(5 * time.Minute)
	})
	levels := map[string]string{}
	for line := range strings.Lines(out.String()) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e["queue"] != "orders" || e["consumer"] != "orders" || e["worker"] == "" || e["worker"] == nil || strings.Count(line, `"worker":`) != 1 {
			t.Errorf("the line does not say who writes it: %s", line)
		}
		if e["key"] == "fine" {
			t.Errorf("the normal course of a message is in the log: %s", line)
		}
		text, _ := e["msg"].(string)
		levels[text], _ = e["level"].(string)
		if stack, _ := e["stack"].(string); text == "the handler panicked" && !strings.Contains(stack, "log_test.go") {
			t.Errorf("a panic without its stack: %s", line)
		}
	}
	for text, level := range map[string]string{
		"consumer started": "INFO", "retried": "WARN", "doubt": "WARN", "dead_lettered": "ERROR", "the handler panicked": "ERROR",
	} {
		if levels[text] != level {
			t.Errorf("%q is at level %q, wanted %s:\n%s", text, levels[text], level, out.String())
		}
	}
}
