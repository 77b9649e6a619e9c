package semel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// Memory is set aside for what Concurrency and Batch allow: a slip of the finger must not end the process.
func TestHugeBoundsAreRefused(t *testing.T) {
	for name, tweak := range map[string]func(*semel.Config){
		"Concurrency": func(c *semel.Config) { c.Concurrency = 1 << 50 },
		"Batch":       func(c *semel.Config) { c.Batch = 1 << 62 },
	} {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }), tweak)
		var bad *semel.ConfigError
		if _, err := semel.New(r.cfg); !errors.As(err, &bad) || bad.Field != name {
			t.Errorf("%s: New returned %v", name, err)
		}
	}
}

// broker is a queue with other features.
type broker struct {
	*memory.Queue
	change func(f *driver.QueueFeatures)
}

func (b broker) Features() driver.QueueFeatures {
	f := b.Queue.Features()
	b.change(&f)
	return f
}

// TestVisibilityThatTheBrokerFixes: it is the default, and another one is refused, because extensions would end too early.
func TestVisibilityThatTheBrokerFixes(t *testing.T) {
	for visibility, ok := range map[time.Duration]bool{0: true, 45 * time.Second: true, 30 * time.Second: false} {
		r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }))
		r.cfg.Queue = broker{memory.NewQueue("q"), func(f *driver.QueueFeatures) { f.Visible = 45 * time.Second }}
		r.cfg.Visibility = visibility
		_, err := semel.New(r.cfg)
		var bad *semel.ConfigError
		if ok && err != nil || !ok && (!errors.As(err, &bad) || bad.Field != "Visibility" || !strings.Contains(bad.Problem, "45s")) {
			t.Errorf("visibility %v: New returned %v", visibility, err)
		}
	}
}

// TestUnconfirmedAcksAreSaid: the guarantee says how many messages a crash can bring back.
func TestUnconfirmedAcksAreSaid(t *testing.T) {
	r := newFixture(t, semel.HandlerFunc(func(context.Context, *semel.Attempt) error { return nil }))
	r.cfg.Queue = broker{memory.NewQueue("q"), func(f *driver.QueueFeatures) { f.Unconfirmed = 250 }}
	p, err := semel.Guarantee(r.cfg)
	if err != nil || !strings.Contains(p.String(), "a crash can bring back up to 250 settled messages") {
		t.Errorf("guarantee %v, %v", p, err)
	}
}
