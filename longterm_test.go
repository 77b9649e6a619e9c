package semel_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// consumeFor runs a consumer for so long.
func consumeFor(t *testing.T, cfg semel.Config, d time.Duration) semel.Summary {
	t.Helper()
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return c.Summary()
}

// TestFM41_LongTerm: a copy that comes long after its record is gone becomes a letter, in every mode, and runs when a
// person says so. Sweeps are those of the consumer itself.
func TestFM41_LongTerm(t *testing.T) {
	var ran atomic.Int64
	for name, h := range map[string]semel.Handler{
		"claim": semel.HandlerFunc(func(context.Context, *semel.Attempt) error { ran.Add(1); return nil }),
		"collected": semel.InTx(func(_ context.Context, e *memory.Effects, _ *semel.Attempt) error {
			ran.Add(1)
			return nil
		}),
		"open": semel.InTx(func(_ context.Context, e *memory.Tx, _ *semel.Attempt) error { ran.Add(1); return nil }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ran.Store(0)
				db := memory.Open()
				q := db.Queue("orders")
				cfg := semel.Config{
					Queue: q, Store: db.Store(), Handler: h, Retention: time.Hour, LongTerm: 400 * 24 * time.Hour,
					Key: func(m *semel.Message) (string, error) { return m.Headers["key"], nil },
				}
				send := func(id string) {
					if err := q.Send(t.Context(), driver.Message{ID: id, Headers: map[string]string{"key": "k"}}); err != nil {
						t.Fatal(err)
					}
				}
				send("first")
				consumeFor(t, cfg, 2*time.Hour)
				if rs, _ := db.Store().Records(t.Context(), driver.RecordFilter{}); len(rs) != 0 || ran.Load() != 1 {
					t.Fatalf("%d records are there after their retention, %d runs", len(rs), ran.Load())
				}
				send("late")
				var told []string
				cfg.Events = semel.Events{Delivery: func(e semel.Event) {
					if e.Kind == semel.EventDecided {
						told = append(told, string(e.Decision)+" "+e.Reason)
					}
				}}
				var log strings.Builder
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				s := consumeFor(t, cfg, 10*time.Minute)
				letters, err := q.Letters(t.Context(), 10)
				if err != nil || len(letters) != 1 || letters[0].Kind != driver.LetterUncertain || ran.Load() != 1 {
					t.Fatalf("the late copy: %d runs, letters %+v, %v", ran.Load(), letters, err)
				}
				if s.LongTermHits != 1 || s.LongTermLookups < 1 || !strings.Contains(letters[0].Reason, "was completed on") {
					t.Errorf("%+v; the letter says %q", s, letters[0].Reason)
				}
				if len(told) != 1 || !strings.HasPrefix(told[0], string(semel.ParkedUncertain)) || !strings.HasSuffix(told[0], letters[0].Reason) ||
					!strings.Contains(log.String(), "this is a late duplicate of it") {
					t.Errorf("events told %q, the log %s", told, log.String())
				}
				cfg.Events, cfg.Logger = semel.Events{}, nil
				send("later")
				consumeFor(t, cfg, time.Minute)
				if letters, _ := q.Letters(t.Context(), 10); len(letters) != 1 || ran.Load() != 1 {
					t.Errorf("the next copy: %d letters, %d runs", len(letters), ran.Load())
				}
				_, o, err := db.Store().Operate(t.Context(), driver.Operation{
					Kind: driver.Resolve, Key: letters[0].Key, Token: letters[0].Token, As: driver.Released, Keep: time.Hour,
				})
				if err != nil || o != driver.Applied {
					t.Fatal(o, err)
				}
				send("redrive-1")
				consumeFor(t, cfg, time.Minute)
				if ran.Load() != 2 {
					t.Errorf("%d runs after a person said retry", ran.Load())
				}
			})
		})
	}
}

// TestLongTermIsRefused: what it does not go with.
func TestLongTermIsRefused(t *testing.T) {
	db := memory.Open()
	for name, change := range map[string]func(*semel.Config){
		"too short": func(c *semel.Config) { c.LongTerm = time.Hour },
		"negative":  func(c *semel.Config) { c.LongTerm = -1 },
		"versions": func(c *semel.Config) {
			c.Versions, c.Key = key.ByVersion("header:v"), func(*semel.Message) (string, error) { return "k", nil }
		},
		"no digests": func(c *semel.Config) { c.Store = struct{ driver.Store }{db.Store()} },
	} {
		cfg := semel.Config{
			Queue: db.Queue("orders"), Store: db.Store(), LongTerm: 400 * 24 * time.Hour,
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
		}
		if p, err := semel.Guarantee(cfg); err != nil || !strings.Contains(p.String(), "within 400 days after that are set aside") {
			t.Errorf("%v, %v", p, err)
		}
		change(&cfg)
		_, err := semel.New(cfg)
		if ce := (*semel.ConfigError)(nil); !errors.As(err, &ce) || ce.Field != "LongTerm" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
