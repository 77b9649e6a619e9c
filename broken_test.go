package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
)

// TestBrokenDeploymentKeepsTheQueue: no run of a new deployment succeeds, by an error or a panic. The queue is not sent to
// the dead letters: the worker pauses, says why and what to do, and goes on by itself when the reason is gone.
func TestBrokenDeploymentKeepsTheQueue(t *testing.T) {
	for name, fail := range map[string]func(a *semel.Attempt) error{
		"error": func(a *semel.Attempt) error { return fmt.Errorf("charge %s: no such table: orders", a.Key.Raw) },
		"panic": func(a *semel.Attempt) error { panic("order " + a.ID + ": nil pointer") },
		"permanent": func(a *semel.Attempt) error {
			return semel.Permanent(fmt.Errorf("charge %q: no such table: orders", a.Body))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				start, paused := time.Now(), 0
				r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
					if time.Since(start) < 10*time.Minute {
						return fail(a)
					}
					return nil
				}), func(c *semel.Config) {
					c.MaxAttempts, c.Concurrency = 5, 4
					c.Logger = slog.New(slog.NewTextHandler(&out, nil))
					c.Events.Health = func(e semel.Event) {
						if e.Kind == semel.EventPaused {
							paused++
						}
					}
				})
				for i := range 200 {
					r.send(msg(fmt.Sprint("m", i)))
				}
				r.start()
				time.Sleep(10 * time.Minute)
				if l := r.c.Load(); !l.Paused || l.Breaker == "closed" || l.Reason == "" || paused == 0 {
					t.Errorf("load %+v, paused %d times", l, paused)
				}
				s := r.after(30 * time.Minute)
				if dead := len(r.deadLetters()); dead > 25 || int(s.Effects)+dead != 200 {
					t.Errorf("%d dead letters, %+v", dead, s)
				}
				if !strings.Contains(out.String(), "fix the handler") {
					t.Errorf("the log does not say what to do:\n%.400s", &out)
				}
			})
		})
	}
}

// TestOneBadMessageIsNoBrokenDeployment: a message that fails in a quiet queue is a dead letter as ever, and others run.
func TestOneBadMessageIsNoBrokenDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if a.Key.Raw == "bad" {
				return errors.New("boom")
			}
			return nil
		}), func(c *semel.Config) {
			c.MaxAttempts = 7
			c.Events.Health = func(e semel.Event) { t.Errorf("%+v", e) }
		})
		r.send(msg("bad"))
		r.start()
		time.Sleep(10 * time.Minute)
		r.send(msg("good"))
		if s := r.after(time.Minute); s.Effects != 1 || len(r.deadLetters()) != 1 {
			t.Errorf("%+v, dead letters %+v", s, r.deadLetters())
		}
	})
}
