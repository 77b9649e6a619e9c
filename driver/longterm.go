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
