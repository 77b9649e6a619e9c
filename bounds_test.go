package semel_test

import (
	"context"
	"errors"
	"testing"

	"github.com/semel-dev/semel"
)

// Memory is set aside for what Concurrency and Batch allow: a slip of the finger must not end the process.
func TestHugeBoundsAreRefused(t *testing.T) {
	for name, tweak := range map[string]func(*semel.Config){
		"Concurrency": func(c *semel.Config) { c.Concurrency = 1 << 50 },
		"Batch":       func(c *semel.Config) { c.Batch = 1 << 62 },
	} {
		r := newRig(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }), tweak)
		var bad *semel.ConfigError
		if _, err := semel.New(r.cfg); !errors.As(err, &bad) || bad.Field != name {
			t.Errorf("%s: New answered %v", name, err)
		}
	}
}
