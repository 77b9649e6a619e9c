package semel

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/idle"
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

const (
	// minLongTerm is the least of Config.LongTerm. A shorter one is a mistake: a longer Retention replays besides.
	minLongTerm = 24 * time.Hour
	// longTermPause is the pause after a failed registration, longTermWait how long the first one may outlast its run.
	longTermPause = 5 * time.Second
	longTermWait  = 5 * time.Second
)

// resolveLongTerm refuses what a long-term period does not go with.
func (c *Config) resolveLongTerm() error {
	if c.LongTerm == 0 {
		return nil
	}
	name := c.Store.Features().Name
	switch _, ok := driver.As[driver.LongTerm](c.Store); {
	case c.LongTerm < minLongTerm:
		return &ConfigError{"LongTerm", fmt.Sprintf("is %s", driver.DurationText(c.LongTerm)), "use 0 for none, or 24h and more"}
	case c.Versions != nil:
		return &ConfigError{"LongTerm", "is set beside Versions, and an entity's latest version tells its late duplicates by itself",
			"leave LongTerm away, and raise Retention beyond the longest pause of an entity"}
	case !ok && c.Store.Features().Kind == "dynamodb":
		return &ConfigError{"LongTerm", fmt.Sprintf("is set, and store %s has no EXPIRED records: time to live deletes items by itself", name),
			"raise Retention: on DynamoDB a whole record costs no more, and it still replays"}
	case !ok:
		return &ConfigError{"LongTerm", fmt.Sprintf("is set, and store %s has no EXPIRED records", name),
			"use a store that has (memory, sqlite, postgres), or raise Retention"}
	}
	return nil
}

// setLongTerm registers the long-term period with the store, before every sweep: a store that was restored may have lost it. It
// retries until the store confirms it, because a sweep without it would purge what is to expire; false: ctx is done. The
// first call is carried out even when the run ends at once.
func (r *runner) setLongTerm(ctx context.Context, consumers []string, first bool) bool {
	lt, ok := driver.As[driver.LongTerm](r.cfg.Store)
	if r.cfg.LongTerm == 0 || !ok {
		return true
	}
	set := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, longTermWait)
		defer cancel()
		for _, c := range consumers {
			if err := lt.SetLongTerm(ctx, c, r.cfg.LongTerm); err != nil {
				return err
			}
		}
		return nil
	}
	now := ctx
	if first {
		now = context.WithoutCancel(ctx)
	}
	for err := set(now); err != nil; err = set(ctx) {
		r.cfg.Logger.Warn("the long-term period is not registered yet, and nothing is swept; it is tried again", logErr, err)
		if !idle.For(ctx, longTermPause) {
			return false
		}
	}
	return true
}

const (
	sweepEvery = time.Minute
	sweepBatch = 1000
	// sweepRests is how many times as long as the last batch took a sweep rests before the next one of a backlog, so that it
	// has a small share of the store whatever the store can do; sweepRest is the least.
	sweepRests = 4
	sweepRest  = 20 * time.Millisecond
	// sweepLate is a lag that a person should know of, sweepTell how often he is told.
	sweepLate = time.Hour
	sweepTell = time.Hour
)

// sweepTally is what the sweeps of one Run did; their goroutine writes it, and the engine's makes counters and events of it.
type sweepTally struct {
	sum    driver.Swept
	events []Event // not told yet
	lag    time.Duration
	warned time.Time // when the log was told of a lag last
}

// sweep purges or expires records that are past their retention, in bounded batches, and parks claims of this consumer that
// were abandoned for longer than it: others have retentions of their own. Every consumer does it; doing it twice harms nothing. The first sweep comes after a part of the
// interval that depends on when the consumer started, so that a fleet does not sweep in step.
func (r *runner) sweep(ctx context.Context) {
	s, ok := driver.As[driver.Sweeper](r.cfg.Store)
	if !ok {
		return
	}
	consumers := []string{r.cfg.Consumer}
	if f := r.cfg.PreviousKey; f != nil {
		consumers = append(consumers, f.Consumer)
	}
	pause := time.Duration(r.began.UnixNano()) % sweepEvery
	for first := true; r.setLongTerm(ctx, consumers, first) && idle.For(ctx, pause); first = false {
		began := time.Now()
		swept, more, err := s.Sweep(ctx, r.cfg.Retention, sweepBatch, consumers...)
		pause = sweepEvery
		switch {
		case err != nil && ctx.Err() == nil:
			r.cfg.Logger.Warn("sweep failed; it is tried again", logErr, err)
		case err == nil && more: // a backlog is worked off without crowding out claims
			pause = min(max(sweepRests*time.Since(began), sweepRest), sweepEvery)
		}
		r.swept(swept, err == nil)
	}
}

// swept notes what one batch of a sweep did. whole is false when it failed: it may have left more than it tells.
func (r *runner) swept(s driver.Swept, whole bool) {
	if s.Did() {
		r.cfg.Logger.Info("swept", "purged", s.Purged, "expired", s.Expired, "abandoned", s.Abandoned, "lag", s.Lag)
	}
	now := time.Now()
	r.mu.Lock()
	t := &r.sweeps
	t.sum.Add(s)
	late := s.Lag > sweepLate && (t.warned.IsZero() || now.Sub(t.warned) >= sweepTell)
	if late {
		t.warned = now
	}
	tell := s.Did() || whole && s.Lag != t.lag
	if whole {
		t.lag = s.Lag
	}
	if tell && r.cfg.Events.Health != nil {
		t.events = append(t.events, Event{Kind: EventSwept, At: now, Purged: s.Purged, Expired: s.Expired, Abandoned: s.Abandoned, Lag: s.Lag})
	}
	r.mu.Unlock()
	if late {
		r.cfg.Logger.Warn("records are there long after their retention: sweeps do not keep up", "lag", s.Lag)
	}
	if tell {
		select {
		case r.signal <- struct{}{}:
		default:
		}
	}
}

// tellSweeps counts what sweeps did, and tells it from the engine's own goroutine.
func (r *runner) tellSweeps(s *Summary) {
	r.mu.Lock()
	t := &r.sweeps
	s.Swept, s.Expired, s.Abandoned = int64(t.sum.Purged), int64(t.sum.Expired), int64(t.sum.Abandoned)
	events := t.events
	t.events = nil
	r.mu.Unlock()
	for _, ev := range events {
		r.cfg.Events.Health(ev)
	}
}
