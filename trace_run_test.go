package semel_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

const (
	sampledRun   = driver.Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	unsampledRun = driver.Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
)

func orderOf(m *semel.Message) (string, error) { return m.Header("order"), nil }

func sendOrder(t *testing.T, db *memory.DB, order string) {
	t.Helper()
	if err := db.Queue("jobs").Send(t.Context(), semel.Message{Headers: map[string]string{"order": order}}); err != nil {
		t.Fatal(err)
	}
}

func consume(t *testing.T, cfg semel.Config) {
	t.Helper()
	c, err := semel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestS0_18_TracesReachTheirDuplicates: the trace of a run is in its events and log lines, and in those of a later duplicate,
// however the run ended. A run that is not sampled leaves no trace in the record, and an item that is used again none of
// another message.
func TestS0_18_TracesReachTheirDuplicates(t *testing.T) {
	for name, c := range map[string]struct {
		trace, kept driver.Traceparent
		fails       error
		want        semel.Decision
		ends        semel.Decision
		reason      string
	}{
		"completed":   {sampledRun, sampledRun, nil, semel.Replayed, semel.Executed, ""},
		"failed":      {sampledRun, sampledRun, semel.Permanent(errors.New("no such card")), semel.DeadLettered, semel.DeadLettered, "no such card"},
		"parked":      {sampledRun, sampledRun, semel.Park(errors.New("no response")), semel.ParkedUncertain, semel.ParkedUncertain, "no response"},
		"not sampled": {unsampledRun, "", nil, semel.Replayed, semel.Executed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory.Open()
				var lines bytes.Buffer
				var decided []semel.Event
				cfg := semel.Config{
					Queue: db.Queue("jobs"), Store: db.Store(), Limit: 1, Key: orderOf,
					Handler: semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return c.fails }),
					Middleware: []semel.Middleware{func(ctx context.Context, a *semel.Attempt, next func(context.Context) error) error {
						if a.Header("order") == "7" {
							a.SetTrace(c.trace)
						}
						return next(ctx)
					}},
					Events: semel.Events{Delivery: func(e semel.Event) {
						if e.Kind == semel.EventDecided {
							e.MessageID = e.Message.Header("order")
							decided = append(decided, e)
						}
					}},
					Logger: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})),
				}
				for _, order := range []string{"7", "7", "8"} {
					sendOrder(t, db, order)
					consume(t, cfg)
				}
				if len(decided) != 3 {
					t.Fatalf("%d deliveries were decided", len(decided))
				}
				first, second, other := decided[0], decided[1], decided[2]
				if first.Decision != c.ends || first.Trace != c.trace || first.EffectTrace != "" || first.MessageID != "7" {
					t.Errorf("the run: %+v", first)
				}
				if second.Decision != c.want || second.Trace != "" || second.EffectTrace != c.kept || !strings.HasPrefix(second.Reason, c.reason) ||
					strings.Contains(second.Reason, "trace ") {
					t.Errorf("the duplicate: %+v", second)
				}
				if other.Trace != "" || other.EffectTrace != "" {
					t.Errorf("another message has a trace: %+v", other)
				}
				if n := strings.Count(lines.String(), "trace_id="+c.trace.TraceID()+" span_id="+c.trace.SpanID()); n < 2 {
					t.Errorf("%d log lines carry the trace:\n%s", n, lines.String())
				}
			})
		})
	}
}

// TestTracesOfRetriedRuns: a run that is repeated leaves no trace in the record, because a later one ends the key.
func TestTracesOfRetriedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		runs := 0
		var effects []driver.Traceparent
		cfg := semel.Config{
			Queue: db.Queue("jobs"), Store: db.Store(), Limit: 2, Key: orderOf, Logger: slog.New(slog.DiscardHandler),
			Backoff: semel.Backoff{Min: time.Second, Max: time.Second},
			Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
				if runs++; runs == 1 {
					a.SetTrace(sampledRun)
					return errors.New("again")
				}
				return nil
			}),
			Events: semel.Events{Delivery: func(e semel.Event) { effects = append(effects, e.EffectTrace) }},
		}
		sendOrder(t, db, "7")
		consume(t, cfg)
		sendOrder(t, db, "7")
		cfg.Limit = 1
		consume(t, cfg)
		for _, e := range effects {
			if e != "" {
				t.Errorf("a duplicate is linked to %s, which did not end the key", e)
			}
		}
	})
}
