package semel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

func unkeyed(c *semel.Config) {
	c.Key, c.AllowUnkeyed = func(*semel.Message) (string, error) { return "", semel.ErrNoKey }, true
}

// The effects of an InTx handler commit with the record: without one they would be acknowledged and lost.
func TestUnkeyedAndInTxExclude(t *testing.T) {
	r := newRig(t, semel.InTx(func(context.Context, *memory.Effects, *semel.Attempt) error { return nil }), unkeyed)
	var bad *semel.ConfigError
	if _, err := semel.New(r.cfg); !errors.As(err, &bad) || bad.Field != "AllowUnkeyed" {
		t.Errorf("New answered %v", err)
	}
}

// TestEmitIsNeverDropped: what cannot be sent with the record makes a letter; the handler is not run again for it.
func TestEmitIsNeverDropped(t *testing.T) {
	for _, x := range []struct {
		name, queue, want string
		kind              driver.LetterKind
		tweak             func(*semel.Config)
	}{
		{"without a key", "next", "no record", driver.LetterDead, unkeyed},
		{"to no queue", "", "names no queue", driver.LetterDead, func(*semel.Config) {}},
		{"to no queue under once", "", "names no queue", driver.LetterUncertain, func(c *semel.Config) { c.Takeover = semel.Once }},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				r := newRig(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
					runs++
					a.Emit(semel.Message{Queue: x.queue})
					return nil
				}), x.tweak)
				r.send(msg("a"))
				r.start()
				s := r.after(time.Hour)
				ls := r.letters()
				if runs != 1 || len(ls) != 1 || ls[0].Kind != x.kind || !strings.Contains(ls[0].Reason, x.want) {
					t.Errorf("%d runs, letters %+v, summary %+v", runs, ls, s)
				}
			})
		})
	}
}
