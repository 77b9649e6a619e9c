package driver

import (
	"context"
	"time"
)

// LongTerm is an optional interface of stores that can keep EXPIRED records (docs/adr/0013).
type LongTerm interface {
	// SetLongTerm registers, durably, for how long the records of a consumer stay EXPIRED after their retention. Every sweep
	// of these records obeys it, by whichever process and however that is configured ([DecideSweep]). The longest period that
	// was ever registered counts. A period of 0 ends the registration: records whose retention ends later are purged, and
	// those that are EXPIRED stay until their own end. An error means that the outcome is unknown: call it again.
	// [ErrUnsupported] means that this database cannot do it.
	SetLongTerm(ctx context.Context, consumer string, period time.Duration) error
	// LongTerms returns the registered periods by consumer.
	LongTerms(ctx context.Context) (map[string]time.Duration, error)
}

// Sweeper is an optional interface of stores.
type Sweeper interface {
	// Sweep changes up to limit records, as [DecideSweep] defines. It purges or expires records past their retention, by the
	// long-term periods that are registered in the store ([LongTerm]). It parks claims of the given consumers that were
	// abandoned for longer than horizon, their retention. Without consumers it parks those of all. more reports that there is
	// still work. Sweep does not block claims for long.
	Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (s Swept, more bool, err error)
}

// Swept counts what a sweep did. Lag is what it left.
type Swept struct {
	Purged, Abandoned int
	// Expired counts records that became EXPIRED.
	Expired int
	// Lag is how long ago the retention of a record ended that the sweep met and had to leave. 0 = it met none. It is an
	// estimate and never too high. A store that inspects its records only at intervals (DynamoDB) counts from the inspection
	// at which the record was due.
	Lag time.Duration
}

// Count returns how many changes count towards the limit of a sweep.
func (s Swept) Count() int { return s.Purged + s.Abandoned + s.Expired }

// Did reports whether anything was purged, expired or parked.
func (s Swept) Did() bool { return s.Count() > 0 }

// Overdue raises Lag to the time since a record's retention ended.
func (s *Swept) Overdue(now, retainUntil time.Time) { s.Lag = max(s.Lag, now.Sub(retainUntil)) }

// Add adds a further step. Its Lag replaces the earlier one.
func (s *Swept) Add(step Swept) {
	s.Purged += step.Purged
	s.Abandoned += step.Abandoned
	s.Expired += step.Expired
	s.Lag = step.Lag
}
