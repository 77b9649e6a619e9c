package steps_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/steps"
)

// TestMistakesAreNotPassedOver: a step that was refused for its name, or that panicked, is not done; the run does not
// complete.
func TestMistakesAreNotPassedOver(t *testing.T) {
	for name, fn := range map[string]func(ctx context.Context, g *fixture, r *steps.Run){
		"twice": func(ctx context.Context, g *fixture, r *steps.Run) {
			_ = g.step(ctx, r, "a", nil)
			_ = g.step(ctx, r, "a", nil)
		},
		"name": func(ctx context.Context, g *fixture, r *steps.Run) { _ = g.step(ctx, r, "", nil) },
		"each": func(ctx context.Context, g *fixture, r *steps.Run) {
			_, _ = steps.Each(ctx, r, "a", []int{1}, func(int) string { return "1" },
				func(context.Context, int, string) (int, error) { return 0, nil },
				steps.Undo(func(context.Context, steps.Reversal) error { return nil }))
		},
		"panic": func(ctx context.Context, g *fixture, r *steps.Run) {
			defer func() { _ = recover() }()
			_, _ = steps.Do(ctx, r, "a", func(context.Context, string) (int, error) { panic("x") })
		},
	} {
		g := newFixture(t)
		if err := g.attempt(func(ctx context.Context, r *steps.Run) error { fn(ctx, g, r); return nil }); err == nil {
			t.Errorf("%s: the run completed", name)
		}
	}
}

// TestInTxAfterOnce: a step that was begun as Once may have happened; code that makes it an InTx step must not do it again.
func TestInTxAfterOnce(t *testing.T) {
	g := newFixture(t)
	g.crash(func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Once(ctx, r, "pay", func(context.Context, string) (int, error) { panic("crash") }, nil)
		return err
	})
	err := g.attempt(func(ctx context.Context, r *steps.Run) error {
		return steps.InTx(ctx, r, "pay", func(context.Context, *memory.Effects) error {
			g.calls = append(g.calls, "pay")
			return nil
		})
	})
	g.has(err, "may have happened")
	g.called()
}

// TestReasonsAreBounded: an error that quotes a whole response, binary at that, does not fill the journal.
func TestReasonsAreBounded(t *testing.T) {
	g := newFixture(t)
	quoted := errors.New("\xff" + strings.Repeat("ä", 1<<20))
	_ = g.attempt(func(ctx context.Context, r *steps.Run) error {
		_, err := steps.Do(ctx, r, "a", func(context.Context, string) (int, error) { return 0, semel.Permanent(quoted) },
			steps.Undo(func(context.Context, steps.Reversal) error { return quoted }))
		return err
	})
	rows, err := g.store.Steps(t.Context(), g.last)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, s := range rows {
		if n := len(s.Reason); n < 1000 || n > 9000 || !utf8.ValidString(s.Reason) {
			t.Errorf("the reason of %q has %d bytes, or is no UTF-8", s.Name, n)
		}
	}
}
