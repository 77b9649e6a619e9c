package semel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// A middleware that calls the handler again must not double what it queues.
func TestMiddlewareThatCallsAgain(t *testing.T) {
	type next = func(context.Context) error
	for _, x := range []struct {
		name string
		mw   func(ctx context.Context, a *semel.Attempt, n next) error
		want int // effects and messages
	}{
		{"after a failure", func(ctx context.Context, _ *semel.Attempt, n next) error {
			if n(ctx) == nil {
				return errors.New("the first call is to fail")
			}
			return n(ctx)
		}, 1},
		{"after a success", func(ctx context.Context, _ *semel.Attempt, n next) error {
			return errors.Join(ignore(n(ctx)), n(ctx), n(ctx))
		}, 1},
		{"after a panic", func(ctx context.Context, a *semel.Attempt, n next) error {
			func() {
				defer func() { _ = recover() }()
				a.Number = -1 // the handler panics at that
				_ = n(ctx)
			}()
			a.Number = 1
			return n(ctx)
		}, 1},
		{"not after a failure", func(ctx context.Context, _ *semel.Attempt, n next) error { return ignore(n(ctx)) }, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				r := newFixture(t, semel.InTx(func(_ context.Context, tx *memory.Effects, a *semel.Attempt) error {
					tx.Append("t", "v")
					a.Emit(semel.Message{Queue: "next"})
					if a.Number < 0 {
						panic("on purpose")
					}
					if calls++; calls == 1 {
						return errors.New("failed on purpose")
					}
					return nil
				}), func(c *semel.Config) {
					c.Middleware = []semel.Middleware{
						func(ctx context.Context, a *semel.Attempt, n func(context.Context) error) error {
							a.Emit(semel.Message{Queue: "audit"})
							return n(ctx)
						},
						func(ctx context.Context, a *semel.Attempt, n func(context.Context) error) error {
							return x.mw(ctx, a, n)
						},
					}
				})
				if x.name == "after a panic" {
					calls = 1 // only the panic fails
				}
				r.send(msg("a"))
				r.start()
				r.after(time.Minute)
				st, err := r.db.Queue("next").Stats(t.Context())
				audit, err2 := r.db.Queue("audit").Stats(t.Context())
				if n := r.db.Tables().Len("t"); n != x.want || int(st.Visible) != x.want || audit.Visible != 1 || err != nil || err2 != nil {
					t.Errorf("%d effects, %d messages, wanted %d; audit %d", n, st.Visible, x.want, audit.Visible)
				}
			})
		})
	}
}

func ignore(error) error { return nil }
