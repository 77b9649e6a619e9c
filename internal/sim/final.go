package sim

import (
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// checkCounts: every run is accounted for in the summary (contract section 4).
func (w *simulation) checkCounts(k *worker) {
	c := k.m.Counts()
	if sum := c.Effects + c.Retried + c.Dead + c.Uncertain + c.Fenced + c.Dropped + c.Unprotected; c.Executed != sum && w.sc.mode != machine.Open {
		w.fail("summary", -1, "worker %d: %d runs, %d accounted for: %+v", k.id, c.Executed, sum, c)
	}
}

// finalChecks are made when everything has settled: nothing is lost, every end is there.
func (w *simulation) finalChecks() {
	if w.failedOver {
		return
	}
	for i := range w.sc.workers {
		if k := &w.workers[i]; k.m != nil {
			w.checkCounts(k)
		}
	}
	var seen [maxKeys]bool
	for i := range w.q.msgs {
		m := &w.q.msgs[i]
		if m.keyless || seen[m.key] && !w.sc.versions {
			continue
		}
		seen[m.key] = true
		if w.sc.versions {
			if w.checkVersion(m, atEnd); w.Broken != nil {
				return
			}
			continue
		}
		rec := w.recordOf(m)
		if rec.State == driver.Absent && w.keys[m.key].purged {
			continue // it was settled, and forgotten in time
		}
		if !rec.State.Terminal() {
			w.fail("I1", m.key, "lost: all messages are gone, and the record is %v", rec.State)
			return
		}
		w.checkDeadLetter(m.key, rec, "at the end")
		if w.Broken != nil {
			return
		}
		if rec.State == driver.Completed && !w.faulted && w.sc.people == 0 {
			for j := range w.q.deadLetters {
				if l := &w.q.deadLetters[j]; l.alive && l.key == m.key && l.Kind != driver.DeadLetterMismatch && l.Token == rec.Token {
					w.fail("I19", m.key, "at the end: a live dead letter %s for a completed key", l.ID[:6])
					return
				}
			}
		}
	}
}
