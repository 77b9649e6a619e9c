package semel_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
)

// TestFM6_PanicNamesTheFunction: a function of the configuration that panics costs its own message, and the dead letter and
// the log name that function.
func TestFM6_PanicNamesTheFunction(t *testing.T) {
	bad := func(m *semel.Message) bool { return m.ID == "bad" && string(m.Body) == "bad" }
	boom := func(m *semel.Message) {
		if bad(m) {
			panic("boom")
		}
	}
	for name, set := range map[string]func(*semel.Config){
		"Config.Tenant": func(c *semel.Config) { c.Tenant = func(m *semel.Message) string { boom(m); return "" } },
		"Config.Key":    func(c *semel.Config) { c.Key = func(m *semel.Message) (string, error) { boom(m); return m.ID, nil } },
		"Config.Former.Key": func(c *semel.Config) {
			c.PreviousKey = &semel.PreviousKey{Consumer: "before", Key: func(m *semel.Message) (string, error) { boom(m); return m.ID, nil }}
		},
		"Config.Fingerprint": func(c *semel.Config) {
			c.Fingerprint = func(m *semel.Message) (semel.Fingerprint, error) { boom(m); return "f", nil }
		},
		"Config.Versions.Of": func(c *semel.Config) {
			c.Key = key.ByID
			c.Versions = &key.Versions{Of: func(m *semel.Message) (semel.Version, error) { boom(m); return "1", nil }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }), set, func(c *semel.Config) {
					c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				r.send(msg("bad"), msg("good"))
				r.start()
				s := r.after(time.Hour)
				deadLetters := r.deadLetters()
				if s.Effects != 1 || len(deadLetters) != 1 || !strings.Contains(deadLetters[0].Reason, name) || !strings.Contains(deadLetters[0].Reason, "boom") {
					t.Fatalf("%+v, dead letters %+v", s, deadLetters)
				}
				if !strings.Contains(log.String(), name+" panicked") || !strings.Contains(log.String(), "panic_test.go") ||
					strings.Contains(log.String(), "the handler panicked") {
					t.Errorf("the log does not name it:\n%s", &log)
				}
			})
		})
	}
}
