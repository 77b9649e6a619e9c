package open

import (
	"context"
	"io"
	"os"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/ops"
)

// Effects calls each with the effects of a journal: a file of JSON lines, "-" for stdin, or the URL of a database with a query.
// What is wrong in it is an error of usage.
func Effects(ctx context.Context, place, query string, stdin io.Reader, each func(ops.Effect) error) error {
	if IsURL(place) {
		return effectRows(ctx, place, query, each)
	}
	name := "stdin"
	if place != "-" {
		f, err := os.Open(place)
		if err != nil {
			return output.Usage("--effects: %w", err)
		}
		defer func() { _ = f.Close() }()
		stdin, name = f, place
	}
	if err := ops.ReadEffects(name, stdin, each); err != nil {
		return output.Usage("--effects: %w", err).WithHint(`one JSON object a line, with "key" or "effect_key"`)
	}
	return nil
}

func effectRows(ctx context.Context, place, query string, each func(ops.Effect) error) error {
	var row func([]any) (ops.Effect, error)
	n := 0
	return Query(ctx, "effects", place, query, func(columns []string) (err error) {
		if row, err = ops.EffectRows(columns); err != nil {
			return output.Usage("--query: %w", err)
		}
		return nil
	}, func(values []any) error {
		n++
		e, err := row(values)
		if err == nil {
			err = each(e)
		}
		if err != nil {
			return output.Usage("--query: row %d: %w", n, err)
		}
		return nil
	})
}
