package semel_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
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
		"Config.PreviousKey.Key": func(c *semel.Config) {
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

// A handler that ends its goroutine (as FailNow of a test does) is a failure, and costs neither its slot nor the drain.
func TestGoexitIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			if runs.Add(1) <= 2 {
				runtime.Goexit()
			}
			return nil
		}), func(c *semel.Config) { c.Concurrency = 1 })
		r.send(msg("a"), msg("b"))
		r.start()
		if s := r.after(5 * time.Minute); s.Effects != 2 || s.Retried != 2 || !r.record("a").State.Terminal() {
			t.Errorf("%d runs, summary %+v", runs.Load(), s)
		}
	})
}

func TestGoexitOfAProbeParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			runs++
			return context.Canceled
		}), func(c *semel.Config) {
			c.Takeover = semel.Probe
			c.Probe = func(context.Context, *semel.Attempt) (semel.ProbeResult, error) {
				runtime.Goexit()
				return semel.ProbeNotApplied, nil
			}
		})
		r.send(msg("a"))
		r.start()
		if s := r.after(5 * time.Minute); runs != 1 || s.Rejected+s.Uncertain != 1 || len(r.deadLetters()) != 1 {
			t.Errorf("%d runs, summary %+v", runs, s)
		}
	})
}
