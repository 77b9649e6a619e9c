package semel_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// TestHandlersOwnTheirCopy: whatever a run does to the body and the headers that it got, what runs again and what becomes
// the dead letter is what arrived, under the key that arrived.
func TestHandlersOwnTheirCopy(t *testing.T) {
	const body = `{"id":"order-1"}`
	headers := map[string]string{"source": "shop"}
	for name, kind := range map[string]func(scribble func(*semel.Attempt) error) func(*semel.Config){
		"handler": func(f func(*semel.Attempt) error) func(*semel.Config) {
			return func(c *semel.Config) {
				c.Handler = semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error { return f(a) })
			}
		},
		"unprotected": func(f func(*semel.Attempt) error) func(*semel.Config) {
			return func(c *semel.Config) {
				c.Key, c.AllowUnkeyed = key.FromHeader("none"), true
				c.Handler = semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error { return f(a) })
			}
		},
		"middleware": func(f func(*semel.Attempt) error) func(*semel.Config) {
			return func(c *semel.Config) {
				c.Handler = semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return errors.New("no") })
				c.Middleware = []semel.Middleware{func(ctx context.Context, a *semel.Attempt, next func(context.Context) error) error {
					return errors.Join(f(a), next(ctx))
				}}
			}
		},
		"effects": func(f func(*semel.Attempt) error) func(*semel.Config) {
			return func(c *semel.Config) {
				c.Handler = semel.InTx(func(_ context.Context, _ *memory.Effects, a *semel.Attempt) error { return f(a) })
			}
		},
		"transaction": func(f func(*semel.Attempt) error) func(*semel.Config) {
			return func(c *semel.Config) {
				c.Handler = semel.InTx(func(_ context.Context, _ *memory.Tx, a *semel.Attempt) error { return f(a) })
			}
		},
		"batch": func(f func(*semel.Attempt) error) func(*semel.Config) {
			return func(c *semel.Config) {
				c.Handler = semel.InTxBatch(func(_ context.Context, _ *memory.Tx, batch []*semel.Attempt) error { return f(batch[0]) })
			}
		},
		"probe": func(f func(*semel.Attempt) error) func(*semel.Config) {
			return func(c *semel.Config) {
				c.Takeover = semel.Probe
				c.Probe = func(_ context.Context, a *semel.Attempt) (semel.ProbeResult, error) {
					_ = f(a)
					return semel.ProbeNotApplied, nil
				}
				c.Handler = semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error { return f(a) })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				scribble := func(a *semel.Attempt) error {
					runs++
					if string(a.Body) != body || !maps.Equal(a.Headers, headers) {
						t.Errorf("run %d got %s, %v", runs, a.Body, a.Headers)
					}
					copy(a.Body, `{"id":"another"}`)
					a.Headers["source"], a.Headers["more"] = "scribbled", "x"
					return errors.New("no")
				}
				r := newFixture(t, nil, func(c *semel.Config) { c.Key, c.MaxAttempts = key.FromJSON("/id"), 3 }, kind(scribble))
				r.send(semel.Message{ID: "m", Body: []byte(body), Headers: maps.Clone(headers)})
				r.start()
				s := r.after(time.Hour)
				ls := r.deadLetters()
				if len(ls) != 1 || runs < 3 {
					t.Fatalf("%d dead letters after %d runs: %+v", len(ls), runs, s)
				}
				if m := ls[0].Message; string(m.Body) != body || !maps.Equal(m.Headers, headers) {
					t.Errorf("the dead letter has %s, %v", m.Body, m.Headers)
				}
				if k := ls[0].Key.Raw; name != "unprotected" && k != "order-1" {
					t.Errorf("the dead letter has key %q", k)
				}
			})
		})
	}
}
