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

// sendKeyed sends a message of the key k.
func sendKeyed(t *testing.T, q *memory.Queue, id string) {
	t.Helper()
	if err := q.Send(t.Context(), driver.Message{ID: id, Headers: map[string]string{"key": "k"}}); err != nil {
		t.Fatal(err)
	}
}

func recordsOf(t *testing.T, db *memory.DB) []driver.Record {
	t.Helper()
	rs, err := db.Store().Records(t.Context(), driver.RecordFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// TestFM41_LongTerm: a copy that comes long after the retention becomes a dead letter, in every mode, and runs only when a
// person reopens its key. Sweeps are those of the consumer itself.
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
				sendKeyed(t, q, "first")
				s := consumeFor(t, cfg, 2*time.Hour)
				rs := recordsOf(t, db)
				if len(rs) != 1 || rs[0].State != driver.Expired || rs[0].Ended != driver.Completed || ran.Load() != 1 || s.Expired != 1 {
					t.Fatalf("after the retention: %+v, %d runs, %+v", rs, ran.Load(), s)
				}
				sendKeyed(t, q, "late")
				var events []string
				cfg.Events = semel.Events{Delivery: func(e semel.Event) {
					if e.Kind == semel.EventDecided {
						events = append(events, string(e.Decision)+" "+e.Reason)
					}
				}}
				s = consumeFor(t, cfg, 10*time.Minute)
				deadLetters, err := q.DeadLetters(t.Context(), 10)
				if err != nil || len(deadLetters) != 1 || deadLetters[0].Kind != driver.DeadLetterLate || deadLetters[0].Token != rs[0].Token || ran.Load() != 1 {
					t.Fatalf("the late copy: %d runs, dead letters %+v, %v", ran.Load(), deadLetters, err)
				}
				if s.Late != 1 || s.Rejected != 1 || !strings.Contains(deadLetters[0].Reason, "was completed on") {
					t.Errorf("%+v; the dead letter says %q", s, deadLetters[0].Reason)
				}
				if len(events) != 1 || events[0] != string(semel.DeadLettered)+" "+deadLetters[0].Reason {
					t.Errorf("events %q", events)
				}
				cfg.Events = semel.Events{}
				sendKeyed(t, q, "later")
				consumeFor(t, cfg, time.Minute)
				if deadLetters, _ := q.DeadLetters(t.Context(), 10); len(deadLetters) != 2 || ran.Load() != 1 {
					t.Errorf("the next copy: %d dead letters, %d runs", len(deadLetters), ran.Load())
				}
				op := driver.Operation{Kind: driver.Redrive, Key: deadLetters[0].Key, Token: deadLetters[0].Token, Keep: time.Hour}
				if _, o, err := db.Store().Operate(t.Context(), op); err != nil || o != driver.Lost {
					t.Fatalf("a redrive that is not deliberate: %v, %v", o, err)
				}
				op.NewGeneration = true
				if r, o, err := db.Store().Operate(t.Context(), op); err != nil || o != driver.Applied || r.Generation != 2 || r.Epoch != 1 {
					t.Fatal(r, o, err)
				}
				sendKeyed(t, q, "redrive-1")
				consumeFor(t, cfg, time.Minute)
				if ran.Load() != 2 {
					t.Errorf("%d runs after a person reopened the key", ran.Load())
				}
			})
		})
	}
}

// TestFM41_LongTermOfOthers: the sweeps of a worker without Config.LongTerm obey the period that the store keeps, and so do
// its claims and semel.Do.
func TestFM41_LongTermOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		q := db.Queue("orders")
		ran := 0
		cfg := semel.Config{
			Queue: q, Store: db.Store(), Retention: time.Hour, LongTerm: 30 * 24 * time.Hour,
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { ran++; return nil }),
			Key:     func(m *semel.Message) (string, error) { return m.Headers["key"], nil },
		}
		sendKeyed(t, q, "first")
		consumeFor(t, cfg, time.Minute)
		cfg.LongTerm = 0
		consumeFor(t, cfg, 2*time.Hour)
		sendKeyed(t, q, "late")
		consumeFor(t, cfg, time.Minute)
		if deadLetters, err := q.DeadLetters(t.Context(), 10); err != nil || len(deadLetters) != 1 || deadLetters[0].Kind != driver.DeadLetterLate || ran != 1 {
			t.Fatalf("%d runs, dead letters %+v, %v", ran, deadLetters, err)
		}
		_, _, err := semel.Do(t.Context(), db.Store(), driver.Key{Consumer: "orders", Raw: "k"},
			func(context.Context, *semel.Attempt) (int, error) { ran++; return 1, nil })
		if !errors.Is(err, semel.ErrLate) || ran != 1 {
			t.Errorf("Do: %v, %d runs", err, ran)
		}
		consumeFor(t, cfg, 31*24*time.Hour)
		if rs := recordsOf(t, db); len(rs) != 0 {
			t.Fatalf("after the period: %+v", rs)
		}
		sendKeyed(t, q, "much-later")
		consumeFor(t, cfg, time.Minute)
		if ran != 2 {
			t.Errorf("%d runs after the period", ran)
		}
	})
}

// flaky fails to register at first.
type flaky struct {
	*memory.Store
	fails int
}

func (f *flaky) SetLongTerm(ctx context.Context, consumer string, d time.Duration) error {
	if f.fails > 0 {
		f.fails--
		return errors.New("no response")
	}
	return f.Store.SetLongTerm(ctx, consumer, d)
}

// TestFM41_UnregisteredIsNotSwept: a consumer whose period is not registered yet purges nothing.
func TestFM41_UnregisteredIsNotSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		q := db.Queue("orders")
		var log strings.Builder
		cfg := semel.Config{
			Queue: q, Store: &flaky{db.Store(), 3 * 720}, Retention: time.Minute, LongTerm: 30 * 24 * time.Hour,
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
			Key:     func(m *semel.Message) (string, error) { return m.Headers["key"], nil },
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
		}
		sendKeyed(t, q, "first")
		consumeFor(t, cfg, 4*time.Hour)
		if rs := recordsOf(t, db); len(rs) != 1 || rs[0].State != driver.Expired {
			t.Errorf("%+v", rs)
		}
		if !strings.Contains(log.String(), "not registered yet") {
			t.Errorf("the log says %s", log.String())
		}
	})
}

// likeDynamoDB is a store that calls itself DynamoDB.
type likeDynamoDB struct{ driver.Store }

func (likeDynamoDB) Features() driver.StoreFeatures {
	return driver.StoreFeatures{Name: "t", Kind: "dynamodb"}
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
		"no expiry": func(c *semel.Config) { c.Store = struct{ driver.Store }{db.Store()} },
		"dynamodb":  func(c *semel.Config) { c.Store = likeDynamoDB{db.Store()} },
	} {
		cfg := semel.Config{
			Queue: db.Queue("orders"), Store: db.Store(), LongTerm: 400 * 24 * time.Hour,
			Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }),
		}
		if p, err := semel.Guarantee(cfg); err != nil || !strings.Contains(p.String(), "within 400 days after that become dead letters") {
			t.Errorf("%v, %v", p, err)
		}
		change(&cfg)
		_, err := semel.New(cfg)
		if ce := (*semel.ConfigError)(nil); !errors.As(err, &ce) || ce.Field != "LongTerm" {
			t.Errorf("%s: %v", name, err)
		}
		if name == "dynamodb" && !strings.Contains(err.Error(), "raise Retention") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
