package semelotel

import (
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel/driver"
)

// scope is the name of the tracer and the meter.
const scope = "github.com/semel-dev/semel/contrib/otel"

// Options say where spans and metrics go. The zero value uses OpenTelemetry's global providers.
type Options struct {
	// TracerProvider and MeterProvider make the spans and the instruments. Default to the global ones.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator reads and writes the headers of messages. Defaults to the global one if that has any fields, else to W3C
	// Trace Context and Baggage.
	Propagator propagation.TextMapPropagator
	// RawKeys adds semel.key to the spans. A key can be personal data: without RawKeys spans have only semel.key_hash.
	RawKeys bool
}

func (o Options) tracer() trace.Tracer {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return o.TracerProvider.Tracer(scope)
}

func (o Options) meter() metric.Meter {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	return o.MeterProvider.Meter(scope)
}

func (o Options) propagator() propagation.TextMapPropagator {
	if o.Propagator != nil {
		return o.Propagator
	}
	if p := otel.GetTextMapPropagator(); len(p.Fields()) > 0 {
		return p
	}
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}

// spans makes the spans of one queue.
type spans struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	rawKeys    bool
	queue      string
	consumer   string // "" for a producer
	system     string
}

func newSpans(f driver.QueueFeatures, consumer string, o Options) spans {
	system := "semel_" + f.Kind
	if f.Kind == "sqs" {
		system = "aws_sqs" // the name that the conventions give it
	}
	return spans{o.tracer(), o.propagator(), o.RawKeys, f.Name, consumer, system}
}

// parentAge is the age up to which the span that sent a message is the parent of the spans of its consumer.
const parentAge = 15 * time.Minute

// operation is the name of a span, before the queue's, and the type that the conventions give it.
type operation struct{ name, kind string }

var (
	opSend    = operation{"send", "send"}
	opCreate  = operation{"create", "create"}
	opReceive = operation{"receive", "receive"}
	opProcess = operation{"process", "process"}
	opSkip    = operation{"skip", "process"}
	opSettle  = operation{"settle", "settle"}
	opProbe   = operation{"probe", "process"}
)

func (s *spans) title(op operation) string { return op.name + " " + s.queue }

func (s *spans) attributes(op operation, more ...attribute.KeyValue) []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, 5+len(more)),
		attribute.String("messaging.system", s.system),
		attribute.String("messaging.destination.name", s.queue),
		attribute.String("messaging.operation.name", op.name),
		attribute.String("messaging.operation.type", op.kind))
	if s.consumer != "" {
		all = append(all, attribute.String("messaging.consumer.group.name", s.consumer))
	}
	return append(all, more...)
}

// ofMessage are the attributes of a message and its key.
func (s *spans) ofMessage(m *driver.Message, k driver.Key) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("messaging.message.id", m.ID), attribute.Int("messaging.message.body.size", len(m.Body)),
	}
	if k.Raw == "" {
		return all
	}
	hash := k.Hash()
	all = append(all, attribute.String("semel.key_hash", hex.EncodeToString(hash[:8])))
	if k.Tenant != "" {
		all = append(all, attribute.String("semel.tenant", k.Tenant))
	}
	if s.rawKeys {
		all = append(all, attribute.String("semel.key", k.Raw))
	}
	return all
}
