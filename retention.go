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

// Retain is how long records are kept, by how their message ended. 0 means Config.Retention. Records in progress or with an
// unknown outcome are kept until that ends.
type Retain struct {
	// Completed applies to messages that took effect, Failed to dead letters, Dropped to messages that handlers dropped on
	// purpose. Released applies to runs that will be retried, counted from when the retry is due.
	Completed, Failed, Dropped, Released time.Duration
}

// retained is how long the records of one kind of end are kept.
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

// resolveRetention fills in the default, which covers the horizon.
func (c *Config) resolveRetention(q driver.QueueFeatures) {
	fill(&c.Retention, max(DefaultRetention, q.LateBy(max(c.ProducerRetries, 0))))
}

// checkRetention enforces law 10: a record outlives every copy of its message.
func (c *Config) checkRetention(q driver.QueueFeatures) error {
	horizon := q.LateBy(c.ProducerRetries)
	for _, k := range append([]retained{{"Retention", "", c.Retention}}, c.Retain.all()...) {
		if k.d < 0 {
			return &ConfigError{k.field, "is out of range", "use a positive duration"}
		}
		if k.d == 0 || k.d >= horizon { // 0: Retention's
			continue
		}
		return &ConfigError{k.field, fmt.Sprintf("is %s, but a copy of a message of queue %s can come %s after the first (%s): it would run again",
			driver.DurationText(k.d), q.Name, driver.DurationText(horizon), lateParts(q, c.ProducerRetries)),
			fmt.Sprintf("raise %s to %s or more", k.field, driver.DurationText(horizon))}
	}
	return nil
}

// lateParts describes the parts of a horizon.
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

// Window returns how long the record of a finished message is kept at least: the shortest of Retention and Retain. A
// duplicate that arrives later runs again. horizon is how late a copy of a message can arrive, with ProducerRetries. It is 0
// if the queue knows no bound.
func (c *Consumer) Window() (window, horizon time.Duration) {
	window = c.cfg.Retention
	for _, k := range c.cfg.Retain.all() {
		if k.d > 0 {
			window = min(window, k.d)
		}
	}
	return window, c.queue.LateBy(c.cfg.ProducerRetries)
}

// retentionAssumption states window and horizon for the guarantee line.
func (c *Consumer) retentionAssumption() string {
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
	// minLongTerm is the minimum of Config.LongTerm. A shorter one is a mistake, because a longer Retention also replays.
	minLongTerm = 24 * time.Hour
	// longTermPause is the pause after a failed registration. longTermWait limits one registration, and so how long the first
	// one may outlast its run.
	longTermPause = 5 * time.Second
	longTermWait  = 5 * time.Second
)

// resolveLongTerm refuses combinations that do not work with a long-term period.
func (c *Config) resolveLongTerm() error {
	if c.LongTerm == 0 {
		return nil
	}
	name := c.Store.Features().Name
	switch _, ok := driver.As[driver.LongTerm](c.Store); {
	case c.LongTerm < minLongTerm:
		return &ConfigError{"LongTerm", fmt.Sprintf("is %s", driver.DurationText(c.LongTerm)), "use 0 for none, or 24h and more"}
	case c.Versions != nil:
		return &ConfigError{"LongTerm", "is set together with Versions, but an entity's latest version already identifies its late duplicates",
			"remove LongTerm, and raise Retention beyond the longest pause of an entity"}
	case !ok && c.Store.Features().Kind == "dynamodb":
		return &ConfigError{"LongTerm", fmt.Sprintf("is set, but store %s has no EXPIRED records: time to live deletes items by itself", name),
			"raise Retention: on DynamoDB a whole record costs no more, and it still replays"}
	case !ok:
		return &ConfigError{"LongTerm", fmt.Sprintf("is set, but store %s has no EXPIRED records", name),
			"use a store that is a driver.LongTerm, or raise Retention"}
	}
	return nil
}

// setLongTerm registers the long-term period with the store, before every sweep: a store that was restored may have lost it.
// It retries until the store confirms the period, because a sweep without it would purge records that must become EXPIRED. It
// returns false if ctx is done. The first registration is carried out even if the run ends at once.
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
		r.cfg.Logger.Warn("the long-term period is not registered yet: nothing is swept until a retry succeeds", logErr, err)
		if !idle.For(ctx, longTermPause) {
			return false
		}
	}
	return true
}

const (
	sweepEvery = time.Minute
	sweepBatch = 1000
	// Between two batches of a backlog a sweep rests sweepRests times as long as the last batch took, and at least sweepRest,
	// so that it uses a small share of any store.
	sweepRests = 4
	sweepRest  = 20 * time.Millisecond
	// A lag of more than sweepLate is logged as a warning, once per sweepWarnEvery.
	sweepLate      = time.Hour
	sweepWarnEvery = time.Hour
)

// sweepTally counts what the sweeps of one Run did. The sweeping goroutine writes it, and the engine's reports it.
type sweepTally struct {
	sum    driver.Swept
	events []Event // not reported yet
	lag    time.Duration
	warned time.Time // when a lag was last logged
}

// sweep purges or expires records past their retention, in bounded batches. It also parks claims of this consumer that were
// abandoned for longer than the retention: other consumers have retentions of their own. Every worker sweeps, which is safe.
// The first sweep waits for a part of the interval that depends on the start time, so that a fleet does not sweep in step.
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
			r.cfg.Logger.Warn("sweep failed; it is retried", logErr, err)
		case err == nil && more: // a backlog is worked off without crowding out claims
			pause = min(max(sweepRests*time.Since(began), sweepRest), sweepEvery)
		}
		r.swept(swept, err == nil)
	}
}

// swept counts and logs what one batch of a sweep did. whole is false if it failed: then Lag may be incomplete.
func (r *runner) swept(s driver.Swept, whole bool) {
	if s.Did() {
		r.cfg.Logger.Info("swept", "purged", s.Purged, "expired", s.Expired, "abandoned", s.Abandoned, "lag", s.Lag)
	}
	now := time.Now()
	r.mu.Lock()
	t := &r.sweeps
	t.sum.Add(s)
	late := s.Lag > sweepLate && (t.warned.IsZero() || now.Sub(t.warned) >= sweepWarnEvery)
	if late {
		t.warned = now
	}
	report := s.Did() || whole && s.Lag != t.lag
	if whole {
		t.lag = s.Lag
	}
	if report && r.cfg.Events.Health != nil {
		t.events = append(t.events, Event{Kind: EventSwept, At: now, Purged: s.Purged, Expired: s.Expired, Abandoned: s.Abandoned, Lag: s.Lag})
	}
	r.mu.Unlock()
	if late {
		r.cfg.Logger.Warn("records remain long after their retention: sweeps do not keep up", "lag", s.Lag)
	}
	if report {
		select {
		case r.signal <- struct{}{}:
		default:
		}
	}
}

// reportSweeps adds the sweeps to s and calls the observer, from the engine's own goroutine.
func (r *runner) reportSweeps(s *Summary) {
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
