package eventlog

import (
	"sync"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

const (
	// tickEvery is the interval of a process's ticks, and leastDelay the shortest delay that is logged.
	tickEvery  = 20 * time.Millisecond
	leastDelay = 25 * time.Millisecond
)

// MeasureDelay measures how late the process's own ticks are, until stop is called. It calls note for every delay that is
// longer than those before. A step of the wall clock counts as well, because leases are wall-clock times.
func MeasureDelay(note func(late time.Duration)) (stop func()) {
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(tickEvery)
		defer tick.Stop()
		worst := leastDelay
		for last := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			now := time.Now()
			passed := max(now.Sub(last), now.Round(0).Sub(last.Round(0))) // by the monotonic clock, by the wall clock
			if late := passed - tickEvery; late > worst {
				worst = late
				note(late)
			}
			last = now
		}
	})
	return func() { close(ended); done.Wait() }
}

// Delay logs that the process could not go on for so long, if it was long enough to matter.
func (l *Log) Delay(late time.Duration) {
	if late > leastDelay {
		l.Add(Entry{Kind: Delay, AfterMS: late.Milliseconds()})
	}
}

// Call measures a call of the queue, the store or the ledger until done is called. The time counts as a delay: a heartbeat
// that waits for a disk or for a lock comes too late although its process runs.
func (l *Log) Call() (done func()) {
	began := time.Now()
	return func() { l.Delay(time.Since(began)) }
}

// Late is the longest time for which a process of the run could not go on. Processes that the run itself froze do not count.
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
