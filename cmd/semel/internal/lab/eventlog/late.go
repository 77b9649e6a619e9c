package eventlog

import (
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

const (
	// beat is how often a process shows that it goes on, and leastLate the delay that is worth an entry.
	beat      = 20 * time.Millisecond
	leastLate = 25 * time.Millisecond
)

// MeasureDelay measures how late the process's own ticks are, until stop is called. It calls note for every delay that is longer
// than those before.
func MeasureDelay(note func(late time.Duration)) (stop func()) {
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		worst := leastLate
		for last := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			now := time.Now()
			if late := now.Sub(last) - beat; late > worst {
				worst = late
				note(late)
			}
			last = now
		}
	})
	return func() { close(ended); done.Wait() }
}

// Late is the longest time that a process of the run did not get to run. Processes that the run itself froze do not count.
func Late(entries []Entry) (worst time.Duration) {
	type life struct{ worker, life int }
	frozen := map[life]bool{}
	for _, e := range entries {
		if e.Action == string(plan.Freeze) && (e.Kind == Strike || e.Kind == Struck) {
			frozen[life{e.Worker, e.Life}] = true
		}
	}
	for _, e := range entries {
		if e.Kind == Delay && !frozen[life{e.Worker, e.Life}] {
			worst = max(worst, time.Duration(e.AfterMS)*time.Millisecond)
		}
	}
	return worst
}
