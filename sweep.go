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
)

// sweep removes records that are past their retention, in bounded batches, and parks claims that were abandoned for
// longer than it. Every consumer does it; doing it twice harms nothing. The first sweep comes after a part of the
// interval that depends on when the consumer started, so that a fleet does not sweep in step.
func (r *runner) sweep(ctx context.Context) {
	s, ok := r.cfg.Store.(driver.Sweeper)
	if !ok {
		return
	}
	pause := time.Duration(r.began.UnixNano()) % sweepEvery
	for idle.For(ctx, pause) {
		swept, more, err := s.Sweep(ctx, r.cfg.Retention, sweepBatch)
		pause = sweepEvery
		switch {
		case err != nil && ctx.Err() == nil:
			r.cfg.Logger.Warn("sweep failed; it is tried again", logErr, err)
		case err == nil && more:
			pause = time.Second // a backlog is worked off without crowding out claims
		}
		if swept.Purged+swept.Stranded > 0 {
			r.cfg.Logger.Info("swept", "purged", swept.Purged, "stranded", swept.Stranded)
		}
	}
}
