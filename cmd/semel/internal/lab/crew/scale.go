package crew

import (
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

// scaler lets the number of workers follow the backlog, as target tracking does: the backlog divided by what one worker
// may have, one worker more or less at a time.
type scaler struct {
	plan.Scale
	max  int
	next time.Time
}

// look samples, and decides when it is time. sending reports whether the load is still coming in.
func (s *scaler) look(backlog int, sending bool, f *fleet, log *eventlog.Log, now time.Time) {
	if s.Backlog == 0 || now.Before(s.next) {
		return
	}
	s.next = now.Add(s.Every)
	n := f.wanted
	if sending {
		log.Add(eventlog.Entry{Kind: eventlog.Depth, Count: backlog, Workers: n})
	}
	want := min(max((backlog+s.Backlog-1)/s.Backlog, s.From), s.max)
	switch {
	case want > n:
		f.scale(n + 1)
	case want < n-1: // one to spare, or it would come and go
		f.scale(n - 1)
	}
}
