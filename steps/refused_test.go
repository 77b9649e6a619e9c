package steps_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/steps"
)

// TestFM46_EffectsRefusedAgainAndAgain: effects that a store refuses each time, with an error that is often its own trouble,
// fail the run after a while: it spends an attempt. A lock is waited for in another attempt, which is not a failure, and
// so is a store that cannot write.
func TestFM46_EffectsRefusedAgainAndAgain(t *testing.T) {
	for name, x := range map[string]struct {
		refusal  error
		deferred bool
		tries    int
	}{
		"transient": {fmt.Errorf("%w: internal error", driver.ErrNotCommitted), false, 8},
		"blocked":   {fmt.Errorf("%w: held by session 4711", driver.ErrBlocked), true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			err := g.attempt(func(ctx context.Context, r *steps.Run) error {
				return steps.InTx(ctx, r, "write", func(_ context.Context, e *memory.Effects) error {
					e.Refuse(x.refusal)
					return nil
				})
			})
			if m := semel.DispositionOf(err); err == nil || m.Deferred != x.deferred || !strings.Contains(err.Error(), x.refusal.Error()) {
				t.Errorf("the run ended with %v, %+v", err, m)
			}
			if len(g.slept) != x.tries-1 {
				t.Errorf("it was written %d times, wanted %d", len(g.slept)+1, x.tries)
			}
		})
	}
}
