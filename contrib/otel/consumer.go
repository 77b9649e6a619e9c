package semelotel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// Telemetry is the traces and metrics of one consumer.
type Telemetry struct {
	spans   spans
	metrics *metrics
	// deliveries are those in flight. Only the engine's goroutine uses it. The address of a message names its delivery.
	deliveries map[*semel.Message]*delivery
}

// Instrument adds traces and metrics to the configuration of a consumer, whose Queue and Handler must be set: to Queue,
// Middleware (outermost), Events and Probe. A handler of [semel.InTxBatch] has no Middleware: wrap its function in [Batch].
//
// Spans end on the engine's goroutine, so give the tracer provider a span processor that exports in the background
// (sdktrace.WithBatcher).
func Instrument(cfg *semel.Config, o Options) (*Telemetry, error) {
	if cfg.Queue == nil || cfg.Handler == nil {
		return nil, &semel.ConfigError{Field: "Queue, Handler", Problem: "are not set", Hint: "set them before Instrument"}
	}
	consumer := cfg.Consumer
	if consumer == "" {
		consumer = cfg.Queue.Features().Name
	}
	m, err := newMetrics(o.meter(), cfg.Queue, cfg.Store, consumer)
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	q := queueFor(cfg.Queue, consumer, o)
	t := &Telemetry{spans: q.spans, metrics: m, deliveries: map[*semel.Message]*delivery{}}
	cfg.Queue = q
	if !semel.IsBatch(cfg.Handler) {
		cfg.Middleware = append([]semel.Middleware{t.run}, cfg.Middleware...)
	}
	if cfg.Probe != nil {
		cfg.Probe = t.probe(cfg.Probe)
	}
	cfg.Events = semel.Tee(semel.Events{Delivery: t.delivery, Attempt: t.attempt}, m.events(), cfg.Events)
	return t, nil
}

// Watch also measures how busy the consumer is. It replaces the consumer that was watched before.
func (t *Telemetry) Watch(c *semel.Consumer) { t.metrics.consumer.Store(c) }

// run is a middleware: it makes the process span.
func (t *Telemetry) run(ctx context.Context, a *semel.Attempt, next func(context.Context) error) error {
	ctx, span := t.spans.ofAttempt(ctx, opProcess, trace.SpanKindConsumer, a)
	returned := false
	defer func() {
		if !returned {
			span.SetStatus(codes.Error, "the handler panicked")
			span.SetAttributes(attribute.String("error.type", "panic"))
		}
		span.End()
	}()
	a.SetTrace(traceparentOf(span.SpanContext()))
	t.spans.inject(ctx, &a.Message)
	from := len(a.Emitted())
	err := next(ctx)
	returned = true
	t.spans.injectEmitted(ctx, a.Emitted(), from)
	if !semel.DispositionOf(err).Dropped {
		fail(span, err)
	}
	return err
}

// ofAttempt begins the span of a run or a probe.
func (s *spans) ofAttempt(ctx context.Context, op operation, kind trace.SpanKind, a *semel.Attempt) (context.Context, trace.Span) {
	ctx, links := s.under(ctx, &a.Message, now())
	all := append(s.ofMessage(&a.Message, a.Key), attribute.Int("semel.attempt", a.Number), attribute.Int64("semel.token", int64(a.Token)))
	if a.Unknown {
		all = append(all, attribute.Bool("semel.unknown", true))
	}
	return s.tracer.Start(ctx, s.title(op), trace.WithSpanKind(kind), trace.WithLinks(links...),
		trace.WithAttributes(s.attributes(op, all...)...))
}

// injectEmitted writes the trace context into emitted messages that have none.
func (s *spans) injectEmitted(ctx context.Context, emitted []semel.Message, from int) {
	for i := min(from, len(emitted)); i < len(emitted); i++ {
		if !s.sender(&emitted[i]).IsValid() {
			s.inject(ctx, &emitted[i])
		}
	}
}

func (t *Telemetry) probe(ask semel.ProbeFunc) semel.ProbeFunc {
	return func(ctx context.Context, a *semel.Attempt) (semel.ProbeResult, error) {
		ctx, span := t.spans.ofAttempt(ctx, opProbe, trace.SpanKindClient, a)
		defer span.End()
		t.spans.inject(ctx, &a.Message)
		r, err := ask(ctx, a)
		span.SetAttributes(attribute.String("semel.probe", [...]string{"unknown", "applied", "not_applied"}[r]))
		fail(span, err)
		return r, err
	}
}

// Batch returns the function of a batch handler (semel.InTxBatch) with a process span around each call. The span links to the
// spans that sent the messages, and is that of every attempt of the batch.
func Batch[T any](q driver.Queue, o Options, fn func(ctx context.Context, tx T, batch []*semel.Attempt) error) func(
	context.Context, T, []*semel.Attempt) error {
	s := newSpans(q.Features(), "", o)
	return func(ctx context.Context, tx T, batch []*semel.Attempt) error {
		links := make([]trace.Link, 0, min(len(batch), maxLinks))
		for _, a := range batch {
			if sc := s.sender(&a.Message); sc.IsValid() && len(links) < maxLinks {
				links = append(links, trace.Link{SpanContext: sc})
			}
		}
		ctx, span := s.tracer.Start(ctx, s.title(opProcess), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithNewRoot(),
			trace.WithLinks(links...),
			trace.WithAttributes(s.attributes(opProcess, attribute.Int("messaging.batch.message_count", len(batch)))...))
		defer span.End()
		for _, a := range batch {
			a.SetTrace(traceparentOf(span.SpanContext()))
		}
		err := fn(ctx, tx, batch)
		for _, a := range batch {
			s.injectEmitted(ctx, a.Emitted(), 0)
		}
		fail(span, err)
		return err
	}
}

// errorType is the class of an error: few values, so that it can be grouped.
func errorType(err error) string {
	var p *semel.PanicError
	switch {
	case errors.As(err, &p):
		return "panic"
	case errors.Is(err, semel.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, semel.ErrFenced):
		return "fenced"
	case errors.Is(err, semel.ErrDraining), errors.Is(err, context.Canceled):
		return "canceled"
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
}

func now() time.Time { return time.Now() }
