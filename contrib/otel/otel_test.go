package semelotel_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel"
	semelotel "github.com/semel-dev/semel/contrib/otel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// fixture is a consumer of a queue in memory, with a producer, that records spans.
type fixture struct {
	*testing.T
	db    *memory.DB
	spans *tracetest.InMemoryExporter
	o     semelotel.Options
	log   bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, db: memory.Open(), spans: tracetest.NewInMemoryExporter()}
	f.o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(f.spans))
	return f
}

func (f *fixture) send(m ...semel.Message) {
	f.Helper()
	if err := semelotel.Queue(f.db.Queue("orders"), f.o).(driver.Sender).Send(f.Context(), m...); err != nil {
		f.Fatal(err)
	}
}

// order is a message of one order: two of one order are duplicates.
func order(name string) semel.Message { return semel.Message{Body: []byte(name)} }

// config is a consumer of n deliveries.
func (f *fixture) config(n int, h semel.Handler) semel.Config {
	return semel.Config{
		Queue: f.db.Queue("orders"), Store: f.db.Store(), Handler: h, Limit: n,
		Key:    func(m *semel.Message) (string, error) { return string(m.Body), nil },
		Logger: slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func (f *fixture) consume(cfg semel.Config) {
	f.Helper()
	t, err := semelotel.Instrument(&cfg, f.o)
	if err != nil {
		f.Fatal(err)
	}
	c, err := semel.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	t.Watch(c)
	if err := c.Run(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// named returns the spans of a name, in the order in which they began.
func (f *fixture) named(name string) []tracetest.SpanStub {
	var found []tracetest.SpanStub
	for _, s := range f.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

// one returns the only span of a name.
func (f *fixture) one(name string) tracetest.SpanStub {
	f.Helper()
	all := f.named(name)
	if len(all) != 1 {
		f.Fatalf("%d spans %q", len(all), name)
	}
	return all[0]
}

func attributeOf(s tracetest.SpanStub, name string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == name {
			return a.Value.String()
		}
	}
	return ""
}

func linked(s tracetest.SpanStub, to trace.SpanContext) bool {
	return slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool {
		return l.SpanContext.SpanID() == to.SpanID() && l.SpanContext.TraceID() == to.TraceID()
	})
}

func child(s, of tracetest.SpanStub) bool {
	return s.Parent.SpanID() == of.SpanContext.SpanID() && s.SpanContext.TraceID() == of.SpanContext.TraceID()
}

// TestS0_18_ADuplicateLinksToTheRunThatTookEffect: send, process and settle are one trace; the duplicate's skip span is in the
// trace of its own sender, is no error, and links to the process span of the run that took effect.
func TestS0_18_ADuplicateLinksToTheRunThatTookEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var inside trace.SpanContext
		var header string
		h := semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
			inside, header = trace.SpanContextFromContext(ctx), a.Header("traceparent")
			slog.New(semelotel.Logs(slog.NewTextHandler(&f.log, nil))).InfoContext(ctx, "charged")
			return nil
		})
		f.send(order("7"))
		f.consume(f.config(1, h))
		f.send(order("7"))
		f.consume(f.config(1, h))
		sends, process, settle, skip := f.named("send orders"), f.one("process orders"), f.one("settle orders"), f.one("skip orders")
		if len(sends) != 2 || !child(process, sends[0]) || !child(settle, process) || !child(skip, sends[1]) {
			t.Errorf("the spans are not connected: %+v", f.spans.GetSpans())
		}
		if !linked(skip, process.SpanContext) || skip.Status.Code != codes.Unset {
			t.Errorf("the duplicate has links %+v and status %v", skip.Links, skip.Status)
		}
		for name, want := range map[string]string{
			"semel.decision": "replayed", "semel.cause": "producer_duplicate", "messaging.operation.type": "process",
			"messaging.system": "semel_memory", "messaging.consumer.group.name": "orders", "semel.key": "",
		} {
			if got := attributeOf(skip, name); got != want {
				t.Errorf("%s of the duplicate is %q, want %q", name, got, want)
			}
		}
		if attributeOf(settle, "semel.decision") != "executed" || attributeOf(process, "semel.key_hash") != attributeOf(skip, "semel.key_hash") {
			t.Errorf("settle %v, process %v", settle.Attributes, process.Attributes)
		}
		if inside.SpanID() != process.SpanContext.SpanID() || !strings.Contains(header, process.SpanContext.SpanID().String()) {
			t.Errorf("the handler runs in span %v, and its header is %q", inside, header)
		}
		if receives := f.named("receive orders"); len(receives) != 2 || !linked(receives[0], sends[0].SpanContext) {
			t.Errorf("receive: %+v", receives)
		}
		if n := strings.Count(f.log.String(), "trace_id="+inside.TraceID().String()+" span_id="+inside.SpanID().String()); n < 3 {
			t.Errorf("%d log lines carry the trace:\n%s", n, f.log.String())
		}
	})
}

// TestNoTraceForUnsampledRuns: a duplicate has no link to a run that nobody recorded.
func TestNoTraceForUnsampledRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		h := semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil })
		sampled := f.o
		f.o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
		f.send(order("7"))
		f.consume(f.config(1, h))
		f.o = sampled
		f.send(order("7"))
		f.consume(f.config(1, h))
		if skip := f.one("skip orders"); len(skip.Links) != 0 {
			t.Errorf("links %+v", skip.Links)
		}
	})
}

// TestFailuresAndLateMessages: a failed run has an error status, and its repetition is a span of its own; a message that is
// older than a quarter of an hour begins a new trace, with a link.
func TestFailuresAndLateMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		runs := 0
		f.send(order("7"))
		cfg := f.config(2, semel.HandlerFunc(func(context.Context, *semel.Attempt) error {
			if runs++; runs == 1 {
				return errors.New("card service: 503")
			}
			return nil
		}))
		cfg.Backoff = semel.Backoff{Min: 20 * time.Minute, Max: 20 * time.Minute}
		f.consume(cfg)
		send, runsOf, settles := f.one("send orders"), f.named("process orders"), f.named("settle orders")
		if len(runsOf) != 2 || len(settles) != 2 {
			t.Fatalf("%d runs, %d settlements", len(runsOf), len(settles))
		}
		if !child(runsOf[0], send) || runsOf[0].Status.Code != codes.Error || attributeOf(settles[0], "semel.decision") != "retried" {
			t.Errorf("the failed run: %+v", runsOf[0])
		}
		if runsOf[1].Parent.IsValid() || !linked(runsOf[1], send.SpanContext) || runsOf[1].Status.Code != codes.Unset ||
			runsOf[1].SpanContext.TraceID() == send.SpanContext.TraceID() {
			t.Errorf("the late run: %+v", runsOf[1])
		}
	})
}

// TestEmittedMessagesContinueTheTrace: messages that a handler emits carry the process span, and a batch that is sent has a
// span for each of its messages.
func TestEmittedMessagesContinueTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		shared := map[string]string{"kind": "mail"}
		f.send(order("7"), order("8"))
		var last map[string]string
		f.consume(f.config(2, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			a.Emit(semel.Message{Queue: "mails", Headers: shared})
			return nil
		})))
		ds, err := f.db.Queue("mails").Receive(t.Context(), 2)
		if err != nil || len(ds) != 2 {
			t.Fatal(ds, err)
		}
		runs, creates := f.named("process orders"), f.named("create orders")
		if len(runs) != 2 || len(creates) != 2 || !linked(f.one("send orders"), creates[0].SpanContext) {
			t.Fatalf("%+v", f.spans.GetSpans())
		}
		for i := range ds {
			last = ds[i].Headers
			if !slices.ContainsFunc(runs, func(s tracetest.SpanStub) bool {
				return strings.Contains(last["traceparent"], s.SpanContext.SpanID().String()) && child(s, creates[0]) != child(s, creates[1])
			}) {
				t.Errorf("an emitted message has headers %v", last)
			}
		}
		if len(shared) != 1 {
			t.Errorf("the handler's own map was changed: %v", shared)
		}
	})
}

// TestPanicsAndProbes: the span of a run that panics ends with an error, and a probe has a span.
func TestPanicsAndProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.send(order("7"))
		cfg := f.config(2, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { panic("boom") }))
		cfg.Takeover, cfg.Probe = semel.Probe, func(context.Context, *semel.Attempt) (semel.ProbeResult, error) { return semel.ProbeApplied, nil }
		f.consume(cfg)
		if run := f.one("process orders"); run.Status.Code != codes.Error || attributeOf(run, "error.type") != "panic" {
			t.Errorf("the run that panicked: %+v", run)
		}
		if probe := f.one("probe orders"); attributeOf(probe, "semel.probe") != "applied" {
			t.Errorf("the probe: %+v", probe)
		}
	})
}

// TestConfigIsChecked: what Instrument needs has to be there.
func TestConfigIsChecked(t *testing.T) {
	if _, err := semelotel.Instrument(&semel.Config{}, semelotel.Options{}); !errors.As(err, new(*semel.ConfigError)) {
		t.Errorf("an empty configuration gives %v", err)
	}
}
