package semel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

const day = 24 * time.Hour

// lateQueue says how late copies of its messages come.
type lateQueue struct {
	*memory.Queue
	kept, horizon time.Duration
}

func (q *lateQueue) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.Retention, f.Horizon = q.kept, q.horizon
	return f
}

// TestFM41_NoRetentionBelowTheHorizon: New refuses every retention that a copy of the message outlives, with the field and
// the fix, and covers the horizon by itself where nobody chose.
func TestFM41_NoRetentionBelowTheHorizon(t *testing.T) {
	const kept, horizon = 4 * day, 18 * day
	for _, c := range []struct {
		name          string
		kept, horizon time.Duration
		change        func(c *semel.Config)
		field, hint   string // of the error; "" = none
		window        time.Duration
		line          string // in the guarantee
	}{
		{"no bound", 0, 0, func(*semel.Config) {}, "", "", 14 * day, "duplicates come within 14 days, for which records are kept"},
		{"a short horizon", kept, 5 * day, func(*semel.Config) {}, "", "", 14 * day, "duplicates come within 5 days; records are kept for 14 days"},
		{"the default covers it", kept, horizon, func(*semel.Config) {}, "", "", horizon, "duplicates come within 18 days; records are kept for 18 days"},
		{"and the producers", kept, horizon, func(c *semel.Config) { c.ProducerRetries = 2 * day }, "", "", 20 * day, "duplicates come within 20 days"},
		{"equal", kept, horizon, func(c *semel.Config) { c.Retention = horizon }, "", "", horizon, "18 days"},
		{"shorter", kept, horizon, func(c *semel.Config) { c.Retention = horizon - 1 }, "Retention", "raise Retention to 18 days or more", 0, ""},
		{"the queue's own retention alone", kept, 0, func(c *semel.Config) { c.Retention = 3 * day }, "Retention", "to 4 days", 0, ""},
		{"producers alone", 0, 0, func(c *semel.Config) { c.Retention, c.ProducerRetries = day, 2*day }, "Retention", "to 2 days", 0, ""},
		{"completed", kept, horizon, func(c *semel.Config) { c.Retain.Completed = day }, "Retain.Completed", "raise Retain.Completed to 18 days", 0, ""},
		{"failed", kept, horizon, func(c *semel.Config) { c.Retain.Failed = day }, "Retain.Failed", "18 days", 0, ""},
		{"dropped", kept, horizon, func(c *semel.Config) { c.Retain.Dropped = day }, "Retain.Dropped", "18 days", 0, ""},
		{"released", kept, horizon, func(c *semel.Config) { c.Retain.Released = day }, "Retain.Released", "18 days", 0, ""},
		{"negative", 0, 0, func(c *semel.Config) { c.Retain.Failed = -1 }, "Retain.Failed", "positive", 0, ""},
		{"negative producers", 0, 0, func(c *semel.Config) { c.ProducerRetries = -1 }, "ProducerRetries", "0 for none", 0, ""},
		{
			"failed ones longer", kept, horizon, func(c *semel.Config) { c.Retain.Failed = 60 * day }, "", "", horizon,
			"records are kept for 18 days, failed ones 60 days",
		},
		{
			"completed ones shorter", 0, 0, func(c *semel.Config) { c.Retain.Completed = day }, "", "", day,
			"duplicates come within 1 day; records are kept for 14 days, completed ones 1 day",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := memory.Open()
			cfg := semel.Config{
				Queue: &lateQueue{db.Queue("orders"), c.kept, c.horizon}, Store: db.Store(),
				Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			}
			c.change(&cfg)
			got, err := semel.New(cfg)
			if c.field != "" {
				if e := (*semel.ConfigError)(nil); !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Hint, c.hint) {
					t.Errorf("error %v, want one of field %s that says %q", err, c.field, c.hint)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if w, h := got.Window(); w != c.window || h != cfg.Queue.Features().LateBy(cfg.ProducerRetries) {
				t.Errorf("window %v, horizon %v; want the window %v", w, h, c.window)
			}
			if line := got.Guarantee().String(); !strings.Contains(line, c.line) {
				t.Errorf("the guarantee does not say %q: %s", c.line, line)
			}
		})
	}
}

// TestRecordsAreKeptByTheirOutcome: in every mode.
func TestRecordsAreKeptByTheirOutcome(t *testing.T) {
	end := func(a *semel.Attempt) error {
		switch a.Key.Raw {
		case "failed":
			return semel.Permanent(errors.New("no such account"))
		case "dropped":
			return semel.Drop("too old")
		case "released":
			return errors.New("try again")
		}
		return nil
	}
	for name, h := range map[string]semel.Handler{
		"claim":  semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error { return end(a) }),
		"queued": semel.InTx(func(_ context.Context, _ *memory.Effects, a *semel.Attempt) error { return end(a) }),
		"open":   semel.InTx(func(_ context.Context, _ *memory.Tx, a *semel.Attempt) error { return end(a) }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory.Open()
				q := db.Queue("orders")
				want := map[string]time.Duration{"completed": day, "failed": 2 * day, "dropped": 3 * day, "released": 4 * day}
				for id := range want {
					if err := q.Send(t.Context(), semel.Message{ID: id}); err != nil {
						t.Fatal(err)
					}
				}
				c, err := semel.New(semel.Config{
					Queue: q, Store: db.Store(), Handler: h, Backoff: semel.Backoff{Min: time.Hour, Max: time.Hour},
					Retention: 9 * day, Retain: semel.Retain{Completed: day, Failed: 2 * day, Dropped: 3 * day, Released: 4 * day},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := c.Run(ctx); err != nil {
					t.Fatal(err)
				}
				for id, d := range want {
					r, ok, err := db.Store().Record(t.Context(), semel.Key{Consumer: "orders", Raw: id})
					if err != nil || !ok {
						t.Fatalf("record of %s: %v, %v", id, ok, err)
					}
					from := r.UpdatedAt
					if r.State == driver.Released {
						from = r.RetryAt
					}
					if got := r.RetainUntil.Sub(from); got != d {
						t.Errorf("the %s record (%v) is kept for %v, want %v", id, r.State, got, d)
					}
				}
			})
		})
	}
}
