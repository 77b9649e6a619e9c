package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/semel-dev/semel"
	semelotel "github.com/semel-dev/semel/contrib/otel"
)

// flushTimeout bounds the export of the last spans when a worker stops.
const flushTimeout = 5 * time.Second

// tracing exports spans; a nil one does not.
type tracing struct {
	provider *sdktrace.TracerProvider
	log      *slog.Logger
}

// trace wires the spans that --traces asks for, after the handler and everything else that observes. Everything about the
// exporter is in OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER).
func (s *shift) trace(ctx context.Context, cfg *semel.Config) (*tracing, error) {
	if s.w.Traces == "" {
		return nil, nil //nolint:nilnil // there is nothing to close
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}
	named, err := resource.Merge(resource.NewSchemaless(attribute.String("service.name", "semel")), resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { s.log.Warn("spans are lost", "err", err) }))
	t := &tracing{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(named)), s.log}
	if _, err := semelotel.Instrument(cfg, semelotel.Options{TracerProvider: t.provider}); err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}
	return t, nil
}

// Close exports the last spans. Lost ones are no failure of the worker.
func (t *tracing) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans are lost", "err", err)
	}
	return nil
}
