package semel

import (
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// Retain says how long records are kept by how their message ended; 0 = Config.Retention. What is in progress or in doubt
// is kept until that ends.
type Retain struct {
	// Completed is of messages that took effect, Failed of dead letters, Dropped of what handlers dropped on purpose.
	// Released is of runs that are to be repeated, counted from when they may be.
	Completed, Failed, Dropped, Released time.Duration
}

// retained is one kind of end, with how long its records are kept.
type retained struct {
	field, name string
	d           time.Duration
}

func (r *Retain) all() []retained {
	return []retained{
		{"Retain.Completed", "completed", r.Completed}, {"Retain.Failed", "failed", r.Failed},
		{"Retain.Dropped", "dropped", r.Dropped}, {"Retain.Released", "released", r.Released},
	}
}

func (r *Retain) machine() machine.Keeps {
	return machine.Keeps{Completed: r.Completed, Failed: r.Failed, Dropped: r.Dropped, Released: r.Released}
}

// resolveRetention fills in the default: one that nobody chose covers the horizon.
func (c *Config) resolveRetention(q driver.QueueFeatures) {
	fill(&c.Retention, max(DefaultRetention, q.LateBy(max(c.ProducerRetries, 0))))
}

// checkRetention is law 10: a record outlives every copy of its message.
func (c *Config) checkRetention(q driver.QueueFeatures) error {
	horizon := q.LateBy(c.ProducerRetries)
	for _, k := range append([]retained{{"Retention", "", c.Retention}}, c.Retain.all()...) {
		if k.d < 0 {
			return &ConfigError{k.field, "is out of range", "use a positive duration"}
		}
		if k.d == 0 || k.d >= horizon { // 0: Retention's
			continue
		}
		return &ConfigError{k.field, fmt.Sprintf("is %s, and a copy of a message of queue %s can come %s after the first (%s): it would run again",
			driver.DurationText(k.d), q.Name, driver.DurationText(horizon), lateParts(q, c.ProducerRetries)),
			fmt.Sprintf("raise %s to %s or more", k.field, driver.DurationText(horizon))}
	}
	return nil
}

// lateParts says what a horizon is made of.
func lateParts(q driver.QueueFeatures, producers time.Duration) string {
	var parts []string
	if q.Retention > 0 {
		parts = append(parts, fmt.Sprintf("the queue keeps it for %s", driver.DurationText(q.Retention)))
	}
	if more := q.Horizon - q.Retention; more > 0 {
		parts = append(parts, fmt.Sprintf("the service's own dead letters bring it back up to %s later", driver.DurationText(more)))
	}
	if producers > 0 {
		parts = append(parts, fmt.Sprintf("producers repeat it for %s", driver.DurationText(producers)))
	}
	return strings.Join(parts, ", ")
}

// Window is for how long a finished message is known at least: the shortest of Retention and Retain. Duplicates that come
// later run again. Horizon is how late a copy of a message can come, with ProducerRetries; 0 = the queue knows no bound.
func (c *Consumer) Window() (window, horizon time.Duration) {
	window = c.cfg.Retention
	for _, k := range c.cfg.Retain.all() {
		if k.d > 0 {
			window = min(window, k.d)
		}
	}
	return window, c.queue.LateBy(c.cfg.ProducerRetries)
}

// retentionPromise names window and horizon for the guarantee line.
func (c *Consumer) retentionPromise() string {
	window, horizon := c.Window()
	kept := driver.DurationText(c.cfg.Retention)
	for _, k := range c.cfg.Retain.all() {
		if k.d > 0 && k.d != c.cfg.Retention {
			kept += fmt.Sprintf(", %s ones %s", k.name, driver.DurationText(k.d))
		}
	}
	switch {
	case horizon > 0:
		return fmt.Sprintf("duplicates come within %s; records are kept for %s", driver.DurationText(horizon), kept)
	case kept != driver.DurationText(window):
		return fmt.Sprintf("duplicates come within %s; records are kept for %s", driver.DurationText(window), kept)
	}
	return fmt.Sprintf("duplicates come within %s, for which records are kept", kept)
}
