package semelotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

// delivery is what events reported of a delivery in flight.
type delivery struct {
	received, ended time.Time
	ran             bool
	decision        semel.Decision
	skip            trace.SpanContext
}

// of returns the delivery of an event. A delivery whose settlement was not reported is forgotten when its message's place is
// used again.
func (t *Telemetry) of(e *semel.Event) *delivery {
	d := t.deliveries[e.Message]
	if d == nil || e.Kind == semel.EventReceived {
		d = &delivery{received: e.At}
		t.deliveries[e.Message] = d
	}
	return d
}

func (t *Telemetry) attempt(e semel.Event) {
	if e.Message == nil {
		return
	}
	d := t.of(&e)
	switch e.Kind {
	case semel.EventStarted:
		d.ran = true
	case semel.EventEnded:
		d.ended = e.At
	}
}

func (t *Telemetry) delivery(e semel.Event) {
	if e.Message == nil {
		return
	}
	d := t.of(&e)
	switch e.Kind {
	case semel.EventDecided:
		d.decision = e.Decision
		if !d.ran {
			t.skipped(d, &e)
		}
		if e.Decision == semel.Fenced || e.Decision == semel.Expired {
			if d.ran {
				t.settled(d, &e)
			}
			delete(t.deliveries, e.Message) // it is not settled
		}
	case semel.EventSettled:
		if failed := e.Outcome != driver.Applied && e.Outcome != driver.Settled; d.ran || failed {
			t.settled(d, &e)
		}
		delete(t.deliveries, e.Message)
	}
}

// problems are the decisions that somebody has to look at. A suppressed duplicate is not one of them.
var problems = map[semel.Decision]bool{
	semel.Retried: true, semel.DeadLettered: true, semel.ParkedUncertain: true, semel.Mismatched: true, semel.Fenced: true,
}

func decided(span trace.Span, d semel.Decision, reason string) {
	span.SetAttributes(attribute.String("semel.decision", string(d)))
	if problems[d] {
		span.SetAttributes(attribute.String("error.type", string(d)))
		span.SetStatus(codes.Error, reason)
	}
}

// skipped makes the span of a delivery that ends without a run.
func (t *Telemetry) skipped(d *delivery, e *semel.Event) {
	ctx, links := t.spans.under(context.Background(), e.Message, d.received)
	if e.EffectTrace != "" {
		links = append(links, trace.Link{
			SpanContext: spanOf(e.EffectTrace), Attributes: []attribute.KeyValue{attribute.String("semel.link", "effect")},
		})
	}
	all := t.spans.ofMessage(e.Message, e.Key)
	if e.Cause != "" {
		all = append(all, attribute.String("semel.cause", string(e.Cause)))
	}
	_, span := t.spans.tracer.Start(ctx, t.spans.title(opSkip), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(d.received), trace.WithLinks(links...), trace.WithAttributes(t.spans.attributes(opSkip, all...)...))
	decided(span, e.Decision, e.Reason)
	d.skip = span.SpanContext()
	span.End(trace.WithTimestamp(e.At))
}

// settled makes the span of what followed a run: the write of its record and the settlement.
func (t *Telemetry) settled(d *delivery, e *semel.Event) {
	parent, from := d.skip, e.At
	if e.Trace != "" {
		parent = spanOf(e.Trace)
	}
	if !d.ended.IsZero() {
		from = d.ended
	}
	ctx := contextOf(parent)
	_, span := t.spans.tracer.Start(ctx, t.spans.title(opSettle), trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(from),
		trace.WithAttributes(t.spans.attributes(opSettle, attribute.String("messaging.message.id", e.MessageID))...))
	decided(span, d.decision, e.Reason)
	if e.Kind == semel.EventSettled {
		span.SetAttributes(attribute.String("semel.action", e.Action.String()), attribute.String("semel.outcome", e.Outcome.String()))
		if e.Outcome != driver.Applied && e.Outcome != driver.Settled {
			span.SetStatus(codes.Error, "not settled: "+e.Outcome.String())
		}
	}
	span.End(trace.WithTimestamp(e.At))
}
