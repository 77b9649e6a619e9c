package sim

import (
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// This file is the world of mode D (protocol section 6): keys are versions of few entities, sent out of order. A record
// belongs to an entity; everything that is counted of a key is counted of one version.

const versionsPer = 3 // of an entity

// drawVersions turns a scenario's keys into versions of entities.
func (sc *scenario) drawVersions(w *simulation) {
	sc.versions, sc.wave2 = true, false
	spread := 1 + w.IntN(4000)
	byEntity := w.Chance(500)
	var group [maxKeys]int
	for i := range sc.keys {
		group[i] = sc.specs[i].group // the keys' own messages come first, in their order
	}
	for i := range sc.specs {
		s := &sc.specs[i]
		s.at += time.Duration(spread*w.IntN(1000)) * time.Microsecond
		if byEntity && !s.keyless {
			s.group = group[s.key/versionsPer*versionsPer]
		}
	}
	if w.Chance(500) {
		sc.cfg.Park = w.Between(lease/4, 4*lease)
		sc.ageless = w.Chance(300)
	}
}

// base is the first version of a key's entity: where its record is, and what is known of the entity.
func (w *simulation) base(k int) int {
	if w.sc.versions && k >= 0 {
		return k / versionsPer * versionsPer
	}
	return k
}

func (w *simulation) entity(k int) *keyState { return &w.keys[w.base(k)] }

func (w *simulation) keyOf(k int) driver.Key {
	return driver.Key{Consumer: "sim", Raw: keyText[w.base(k)]}
}

var versionNumbers = [...]driver.Version{driver.IntVersion(1), driver.IntVersion(2), driver.IntVersion(3)}

func (w *simulation) version(k int) driver.Version {
	if !w.sc.versions {
		return ""
	}
	return versionNumbers[k%versionsPer]
}

// keyAt is the key behind a row and a version.
func (w *simulation) keyAt(row int, v driver.Version) int {
	k := w.business(row)
	if w.sc.versions && v != "" {
		for i, x := range versionNumbers {
			if x == v {
				return k + i
			}
		}
	}
	return k
}

// versionOn writes the version on a delivery, and removes its age if that is unknown.
func (w *simulation) versionOn(a *machine.Arrival, m *qmsg) {
	if !w.sc.versions {
		return
	}
	a.Version = w.version(m.key)
	if w.sc.ageless {
		a.Age = machine.UnknownAge
	}
	if w.sc.cfg.Park > 0 && m.key%versionsPer > 0 {
		a.After = w.version(m.key - 1)
	}
}

// checkWatermark: what is applied only grows, by the version that ran.
func (w *simulation) checkWatermark(k int, before, after *driver.Record) {
	b, a := &before.Watermark, &after.Watermark
	switch {
	case a.Applied < b.Applied:
		w.fail("D1", k, "version %s is applied after version %s", a.Applied, b.Applied)
	case a.Applied == b.Applied:
	case after.State != driver.Completed || a.Applied != a.Running:
		w.fail("D1", k, "version %s is applied, and the record is %v with version %s", a.Applied, after.State, a.Running)
	case len(a.Skipped) > len(b.Skipped):
		for i := w.base(k); i < k; i++ {
			if v := w.version(i); v > b.Applied {
				w.keys[i].passed = true
			}
		}
	}
}

// checkVersionOrder: no version has its effect after a newer one.
func (w *simulation) checkVersionOrder(k int) {
	if e := w.entity(k); w.sc.effect == inTx || w.sc.effect == fenced {
		if w.version(k) < e.newest {
			w.fail("D1", k, "version %s had its effect after version %s", w.version(k), e.newest)
		}
		e.newest = max(e.newest, w.version(k))
	}
}

// surpassed reports that a resource that compares versions ignores a write. It records one that it takes.
func (w *simulation) surpassed(k int) bool {
	e := w.entity(k)
	if w.version(k) < e.newest {
		w.keys[k].probed = true // nothing is missing: its state was replaced
		return true
	}
	e.newest = max(e.newest, w.version(k))
	return false
}

// hasDeadLetter reports whether a message of a version is, or was, in a dead letter. Dead letters without a record are each of
// one payload, unless an operator edited it.
func (w *simulation) hasDeadLetter(k, fp int) bool {
	for i := range w.q.deadLetters {
		l := &w.q.deadLetters[i]
		if l.key == k && (l.alive || l.discarded) && (l.Kind != driver.DeadLetterMismatch && l.Kind != driver.DeadLetterLate || w.q.msgs[l.msg].fp == fp || w.keys[k].edited) {
			return true
		}
	}
	return false
}

// sentAgain reports that another copy of a message, of the same payload, is in the queue: the final check judges.
func (w *simulation) sentAgain(m *qmsg) bool {
	for i := range w.q.msgs {
		if n := &w.q.msgs[i]; n != m && n.key == m.key && n.fp == m.fp && !n.keyless && !n.gone {
			return true
		}
	}
	return false
}

// checkVersion is I1 and I11 for one message that is gone, or about to be.
func (w *simulation) checkVersion(m *qmsg, when string) {
	rec, ks, v := &w.st.recs[w.base(m.key)], &w.keys[m.key], w.version(m.key)
	mark := &rec.Watermark
	switch {
	case w.hasDeadLetter(m.key, m.fp) || mark.Dropped == v:
	case ks.redrives+ks.resolves > 0 && ks.terminal && when == atAck:
		// Reopened by an operator, who sent another copy: the final check judges.
	case v == mark.Applied && mark.Fingerprint.Differs(fpText[m.fp]):
		if !ks.edited {
			w.fail("I11", m.key, "%s: m%d of version %s has another payload, and there is no dead letter", when, m.id, v)
		}
	case v <= mark.Applied && ks.passed && ks.completed == 0:
		if when == atAck && w.sentAgain(m) {
			break // its dead letter was sent again, and a broker that remembers the dead letter's id made no second one
		}
		w.fail("I1", m.key, "%s: m%d of version %s came into a gap that was passed over, and there is no dead letter", when, m.id, v)
	case v <= mark.Applied:
	case v == mark.Running && rec.State.Terminal():
		w.checkDeadLetter(m.key, rec, when)
	default:
		w.fail("I1", m.key, "%s: m%d of version %s is gone; version %s is %v, %s applied", when, m.id, v, mark.Running, rec.State, mark.Applied)
	}
	if when == atAck {
		ks.terminal = true
	}
}

const (
	atAck = "at the ack"
	atEnd = "at the end"
)

// taskOnVersion is the part of a task that depends on versions. done: the task has ended. send: the record stays as it is.
func (w *simulation) taskOnVersion(a *task, l *qletter) (done, send bool) {
	rec := &w.st.recs[w.row(l.Key.Raw)]
	mark := &rec.Watermark
	stop := func(remove bool) (bool, bool) {
		if remove {
			l.discarded = l.discarded || a.kind == driver.Discard
			w.q.closeDeadLetter(w, l.ID)
		}
		w.pending--
		return true, false
	}
	late := l.Kind == driver.DeadLetterLate
	switch {
	case a.kind == driver.Discard && (late || l.Version <= mark.Applied):
		return stop(true)
	case late:
		_, g, _ := driver.DecideClaim(*rec, driver.Claim{Key: l.Key, Version: l.Version, Lease: lease}, w.storeNow(), 0)
		switch g.Verdict {
		case driver.Stale:
			return stop(true)
		case driver.Late:
			return stop(false) // it would be dead-lettered again: only an operator can apply it, or discard it
		}
		return false, true
	case l.Version < mark.Applied, l.Version == mark.Applied && l.Token == rec.Token:
		return stop(!mark.PassedOver(l.Version)) // overtaken
	case l.Token == rec.Token:
		return false, false
	case a.kind == driver.Discard, a.kind == driver.Resolve && a.as != driver.Released:
		return stop(false) // no longer the record's
	}
	return false, true
}
