package semelotel

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel/driver"
)

// Queue returns q with spans for what it sends and receives. Messages that are sent carry the trace context of their span,
// unless they carry one already (a relay sends what a handler emitted): then the span links to it. Everything else is q's own.
func Queue(q driver.Queue, o Options) driver.Queue { return queueFor(q, "", o) }

func queueFor(q driver.Queue, consumer string, o Options) *queue {
	w := &queue{Queue: q, spans: newSpans(q.Features(), consumer, o)}
	w.to, _ = driver.As[driver.Sender](q)
	return w
}

type queue struct {
	driver.Queue
	spans spans
	to    driver.Sender // nil: it only receives
}

// Unwrap implements driver.Wrapper.
func (q *queue) Unwrap() any { return q.Queue }

// Passes implements driver.Passer: Settle and dead letters need no span here.
func (q *queue) Passes() []driver.Interface {
	return []driver.Interface{
		driver.InterfaceOf[driver.Settler](), driver.InterfaceOf[driver.DeadLetterQueue](),
		driver.InterfaceOf[driver.DeadLetterKeeper](), driver.InterfaceOf[driver.Purger](),
	}
}

// maxLinks is how many links a span has: more are dropped by the SDK's default limit.
const maxLinks = 128

// Receive implements driver.Queue.
func (q *queue) Receive(ctx context.Context, limit int) ([]driver.Delivery, error) {
	from := now()
	ds, err := q.Queue.Receive(ctx, limit)
	if len(ds) == 0 {
		return ds, err
	}
	var links []trace.Link
	for i := range ds {
		if sc := q.spans.sender(&ds[i].Message); sc.IsValid() && len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	_, span := q.spans.tracer.Start(ctx, q.spans.title(opReceive), trace.WithSpanKind(trace.SpanKindClient), trace.WithNewRoot(),
		trace.WithTimestamp(from), trace.WithLinks(links...),
		trace.WithAttributes(q.spans.attributes(opReceive, attribute.Int("messaging.batch.message_count", len(ds)))...))
	fail(span, err)
	span.End()
	return ds, err
}

// Send implements driver.Sender.
func (q *queue) Send(ctx context.Context, m ...driver.Message) error {
	if q.to == nil {
		return errors.ErrUnsupported // driver.As does not find this method then
	}
	m = slices.Clone(m)
	batch := len(m) != 1
	more := []attribute.KeyValue{attribute.Int("messaging.batch.message_count", len(m))}
	kind := trace.SpanKindClient
	if !batch {
		more, kind = q.spans.ofMessage(&m[0], driver.Key{}), trace.SpanKindProducer
	}
	var links []trace.Link
	for i := range m {
		if sc := q.spans.sender(&m[i]); sc.IsValid() {
			links = append(links, trace.Link{SpanContext: sc})
		} else if batch {
			created, span := q.spans.tracer.Start(ctx, q.spans.title(opCreate), trace.WithSpanKind(trace.SpanKindProducer),
				trace.WithAttributes(q.spans.attributes(opCreate, q.spans.ofMessage(&m[i], driver.Key{})...)...))
			q.spans.inject(created, &m[i])
			links = append(links, trace.Link{SpanContext: span.SpanContext()})
			span.End()
		}
	}
	ctx, span := q.spans.tracer.Start(ctx, q.spans.title(opSend), trace.WithSpanKind(kind), trace.WithLinks(links[:min(len(links), maxLinks)]...),
		trace.WithAttributes(q.spans.attributes(opSend, more...)...))
	defer span.End()
	if !batch && len(links) == 0 {
		q.spans.inject(ctx, &m[0])
	}
	err := q.to.Send(ctx, m...)
	fail(span, err)
	return err
}

// fail marks a span as failed.
func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(attribute.String("error.type", errorType(err)))
	}
}
