package semelotel

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/semel-dev/semel"
)

// Logs returns a handler that adds trace_id and span_id to the lines of a program that are logged with the context of a run,
// and the message ID and the attempt. semel's own lines carry these without it.
func Logs(h slog.Handler) slog.Handler { return logs{h} }

type logs struct{ slog.Handler }

func (l logs) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
		if a, ok := semel.AttemptFrom(ctx); ok {
			r.AddAttrs(slog.String("message_id", a.ID), slog.Int("attempt", a.Number))
		}
	}
	return l.Handler.Handle(ctx, r)
}

func (l logs) WithAttrs(a []slog.Attr) slog.Handler { return logs{l.Handler.WithAttrs(a)} }

func (l logs) WithGroup(name string) slog.Handler { return logs{l.Handler.WithGroup(name)} }
