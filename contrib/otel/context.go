package semelotel

import (
	"context"
	"maps"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel/driver"
)

// headers reads and writes trace context in the headers of a message, whose names may be in any case.
type headers map[string]string

// Get implements propagation.TextMapCarrier.
func (h headers) Get(name string) string {
	if v, ok := h[name]; ok {
		return v
	}
	for k, v := range h {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (h headers) Set(name, value string) {
	for k := range h {
		if k != name && strings.EqualFold(k, name) {
			delete(h, k)
		}
	}
	h[name] = value
}

// Keys implements propagation.TextMapCarrier.
func (h headers) Keys() []string {
	names := make([]string, 0, len(h))
	for k := range h {
		names = append(names, k)
	}
	return names
}

// inject writes the trace context of ctx into a copy of the headers of m.
func (s *spans) inject(ctx context.Context, m *driver.Message) {
	h := headers(maps.Clone(m.Headers))
	if h == nil {
		h = headers{}
	}
	s.propagator.Inject(ctx, h)
	m.Headers = h
}

// sender returns the span that sent a message, or none.
func (s *spans) sender(m *driver.Message) trace.SpanContext {
	return trace.SpanContextFromContext(s.propagator.Extract(context.Background(), headers(m.Headers)))
}

// under returns the context for the spans of a delivery. The span that sent the message is their parent, or the links have it.
func (s *spans) under(ctx context.Context, m *driver.Message, now time.Time) (context.Context, []trace.Link) {
	ctx = s.propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), headers(m.Headers))
	from := trace.SpanContextFromContext(ctx)
	switch {
	case !from.IsValid():
		return ctx, nil
	case now.Sub(m.SentAt) <= parentAge && !driver.IsRedrive(m.ID):
		return ctx, nil
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{}), []trace.Link{{SpanContext: from}}
}

// traceparentOf returns the position of a span as a record keeps it.
func traceparentOf(sc trace.SpanContext) driver.Traceparent {
	t, _ := driver.ParseTraceparent("00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String())
	return t
}

// spanOf is the reverse of traceparentOf.
func spanOf(t driver.Traceparent) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": string(t)})
	return trace.SpanContextFromContext(ctx)
}

func contextOf(sc trace.SpanContext) context.Context {
	return trace.ContextWithSpanContext(context.Background(), sc)
}
