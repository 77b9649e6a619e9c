package sim

import (
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// This file is keep-last in the world of mode D: of the versions that wait for a run only the newest runs.

// drawKeepLast turns keep-last on, without a draw of its own: other seeds keep their histories.
func (sc *scenario) drawKeepLast(w *world) {
	if w.mut.keepsLast() {
		sc.mode, sc.effect, sc.cfg.Mode, sc.cfg.Batched = machine.Separate, fenced, machine.Separate, false
		sc.cfg.Park, sc.people = 0, 0
	}
	sc.cfg.KeepLast = sc.versions && sc.cfg.Mode != machine.Open && sc.cfg.Park == 0 && (w.seed%2 == 0 || w.mut.keepsLast())
	if sc.cfg.KeepLast && w.seed%4 < 2 {
		// Updates come while the first version runs, which takes a while.
		for i := range sc.specs {
			sc.specs[i].at %= 200 * time.Millisecond
		}
		for k := 0; k < sc.keys; k += versionsPer {
			if sc.conduct[k] == conductOK {
				sc.conduct[k] = conductLong
			}
		}
	}
}

// checkKeepLast is D2: a version that was noted as the newest that waits runs before any that it supersedes; but the one
// whose run was under way may go on.
func (w *world) checkKeepLast(k int, before *driver.Record, c *driver.Claim, g *driver.Grant) {
	e := w.entity(k)
	switch {
	case g.Noted:
		e.noted = max(e.noted, c.Version)
		w.stats.Noted++
	case g.Verdict != driver.Acquired:
	case c.Version < e.noted && c.Version != before.Watermark.Running:
		w.fail("D2", k, "version %s runs, although version %s was noted and waits", c.Version, e.noted)
	case c.Version >= e.noted:
		e.noted = ""
	}
}

// superseded tells that a newer version than a message's is in the queue, or was set aside: its own may go unseen.
func (w *world) superseded(m *qmsg) bool {
	if !w.sc.cfg.KeepLast {
		return false
	}
	mark := &w.st.recs[w.base(m.key)].Watermark
	for k := m.key + 1; k < w.base(m.key)+versionsPer; k++ {
		if mark.Dropped == w.version(k) {
			return true
		}
		for i := range w.q.msgs {
			if n := &w.q.msgs[i]; n.key == k && !n.keyless && !n.gone {
				return true
			}
		}
		for i := range w.q.letters {
			if l := &w.q.letters[i]; l.key == k && (l.alive || l.discarded) {
				return true
			}
		}
	}
	return false
}

// decideNoted is the part of decide that plants mistakes of keep-last; done tells that the answer is complete.
func (s *store) decideNoted(w *world, before *driver.Record, c driver.Claim) (after driver.Record, g driver.Grant, changed, done bool) {
	was := *before
	switch w.mut {
	case mutNotedWithoutQueue:
		// A caller without a queue found the entity busy, and went away.
		do := driver.Claim{Key: c.Key, Nonce: w.nonce(), Lease: lease, Version: driver.IntVersion(versionsPer + 1), KeepLast: true}
		if noted, d, ok := driver.DecideClaim(was, do, w.storeNow(), 0); ok && d.Noted {
			was = noted
			after, g, _ = driver.DecideClaim(was, c, w.storeNow(), s.drawn+1)
			return after, g, true, true
		}
	case mutNoteOverwritten:
		if c.KeepLast && c.Version < was.Watermark.Newest {
			was.Watermark.Newest = ""
			after, g, changed = driver.DecideClaim(was, c, w.storeNow(), s.drawn+1)
			return after, g, changed && g.Noted, g.Noted
		}
	case mutNoteForgotten:
		if after, g, changed = driver.DecideClaim(was, c, w.storeNow(), s.drawn+1); g.Verdict == driver.Acquired && c.Version == was.Watermark.Running {
			after.Watermark.Newest = ""
			return after, g, changed, true
		}
	}
	return after, g, false, false
}

// keepsLast reports that a mutant is a mistake of keep-last.
func (m mutant) keepsLast() bool { return m >= mutNotedWithoutQueue && m <= mutNotedAcked }
