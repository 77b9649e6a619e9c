package semel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

func unkeyed(c *semel.Config) {
	c.Key, c.AllowUnkeyed = func(*semel.Message) (string, error) { return "", key.ErrMissing }, true
}

// The effects of an InTx handler commit with the record: without one they would be acknowledged and lost.
func TestUnkeyedAndInTxExclude(t *testing.T) {
	r := newFixture(t, semel.InTx(func(context.Context, *memory.Effects, *semel.Attempt) error { return nil }), unkeyed)
	var bad *semel.ConfigError
	if _, err := semel.New(r.cfg); !errors.As(err, &bad) || bad.Field != "AllowUnkeyed" {
		t.Errorf("New returned %v", err)
	}
}

// Without a record and without a count nothing tells that a message has failed for good.
func TestUnkeyedNeedsAQueueThatCounts(t *testing.T) {
	r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }), unkeyed)
	r.cfg.Queue = uncounted{r.cfg.Queue}
	var bad *semel.ConfigError
	if _, err := semel.New(r.cfg); !errors.As(err, &bad) || bad.Field != "AllowUnkeyed" {
		t.Errorf("New returned %v", err)
	}
}

// uncounted is a queue that does not count deliveries.
type uncounted struct{ semel.Queue }

func (q uncounted) Features() driver.QueueFeatures {
	f := q.Queue.Features()
	f.Counts = false
	return f
}

// TestEmitIsNeverDropped: what cannot be sent with the record makes a dead letter; the handler is not run again for it.
func TestEmitIsNeverDropped(t *testing.T) {
	for _, x := range []struct {
		name, queue, want string
		kind              driver.DeadLetterKind
		tweak             func(*semel.Config)
	}{
		{"without a key", "next", "no record", driver.DeadLetterFailed, unkeyed},
		{"to no queue", "", "names no queue", driver.DeadLetterFailed, func(*semel.Config) {}},
		{"to no queue under once", "", "names no queue", driver.DeadLetterUncertain, func(c *semel.Config) { c.Takeover = semel.Once }},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				r := newFixture(t, semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
					runs++
					a.Emit(semel.Message{Queue: x.queue})
					return nil
				}), x.tweak)
				r.send(msg("a"))
				r.start()
				s := r.after(time.Hour)
				ls := r.deadLetters()
				if runs != 1 || len(ls) != 1 || ls[0].Kind != x.kind || !strings.Contains(ls[0].Reason, x.want) {
					t.Errorf("%d runs, dead letters %+v, summary %+v", runs, ls, s)
				}
			})
		})
	}
}

// TestEmittedIDsAreStable: another run of the same key emits the same ids, even after everything before it was rolled
// back or forgotten; another key emits others.
func TestEmittedIDsAreStable(t *testing.T) {
	ids := func(k string) (ids []string) {
		synctest.Test(t, func(t *testing.T) {
			db := memory.Open()
			c, err := semel.New(semel.Config{
				Queue: db.Queue("in"), Store: db.Store(), Key: key.FromHeader("k"),
				Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
					a.Emit(semel.Message{Queue: "out"}, semel.Message{Queue: "out", ID: "mine"}, semel.Message{Queue: "out"})
					return nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Queue("in").Send(t.Context(), semel.Message{Headers: map[string]string{"k": k}}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.Run(ctx); err != nil {
				t.Fatal(err)
			}
			ds, err := db.Queue("out").Receive(t.Context(), 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range ds {
				ids = append(ids, d.ID)
			}
		})
		return ids
	}
	a, again, b := ids("a"), ids("a"), ids("b")
	if len(a) != 3 || !slices.Equal(a, again) || a[0] == a[2] || a[1] != "mine" || a[0] == b[0] {
		t.Errorf("a emitted %v, then %v, b emitted %v", a, again, b)
	}
}
