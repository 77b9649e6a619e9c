package semel

import (
	"context"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/idle"
)

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
