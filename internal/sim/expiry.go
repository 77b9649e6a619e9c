package sim

import (
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/virtual"
)

// This file is what happens after the retention of records: they are purged, or they become EXPIRED and are purged after
// their long-term period (docs/adr/0013). The messages of their keys come once more, each time.

// ofExpiry reports that a mutant is a mistake about EXPIRED records.
func (m mutant) ofExpiry() bool { return m >= mutExpiredPurged && m <= mutLateDropped }

// waves is how often messages come once more.
func (sc *scenario) waves() int {
	switch {
	case sc.longTerm:
		return 2
	case sc.wave2:
		return 1
	}
	return 0
}

// nextWave sends the same keys once more. After their records' retention they are new again, or late, where records expire;
// after the long-term period they are new in any case. Their tokens never are.
func (w *simulation) nextWave() {
	w.wave++
	if w.sc.longTerm && w.wave == 1 {
		w.abandon()
	}
	w.Now += keep + time.Hour
	if w.wave == 2 {
		w.Now += period
	}
	w.limit = w.Now + settleBy
	w.st.sweep(w)
	if w.Broken != nil {
		return
	}
	n := len(w.q.msgs)
	for i := range n {
		m := w.q.msgs[i]
		state := w.st.recs[m.key].State
		if m.keyless || state != driver.Absent && (state != driver.Expired || w.wave == 2) && w.mut != mutExpiryBlind {
			continue
		}
		m.id, m.gone, m.visibleAt, m.rc, m.count = w.q.nextID, false, w.Now, nil, 0
		w.q.nextID++
		w.keys[m.key].purged = false
		w.q.add(w, m)
	}
	if !w.sc.longTerm {
		return
	}
	for i := range 4 {
		w.push(w.Now+time.Duration(i+1)*lease/2, evSweep, -1, 0)
	}
	for range w.sc.people {
		w.pending++
		w.push(w.Now+w.Between(0, 2*lease), evAction, -1, -1)
	}
}

// abandon makes a record of a key whose message the broker dropped at the end of its own retention, after a run of unknown
// outcome: RELEASED, with a doubt. A copy of the message comes in the next wave.
func (w *simulation) abandon() {
	k := w.sc.keys
	if k == maxKeys {
		return
	}
	now := w.storeNow()
	c := driver.Claim{Key: w.keyOf(k), Nonce: w.nonce(), Fingerprint: fpText[0], Lease: lease}
	r, g, _ := driver.DecideClaim(driver.Record{}, c, now, w.st.drawn+1)
	w.st.drawn = r.Token
	w.onClaim(&driver.Record{}, &r, &c, &g)
	w.st.write(w, k, &r, byClaim)
	if ks := &w.keys[k]; w.sc.effect != inTx { // else it did not commit
		ks.seen[0], ks.nseen = effectID{raw: k}, 1
		w.happened(k, r.Token)
	}
	r, _, _ = driver.DecideFinish(r, driver.Finish{Hold: g.Hold, Final: driver.Release, Ran: driver.MaybeApplied, Keep: keep}, now)
	w.st.write(w, k, &r, byFinish)
	w.q.msgs = append(w.q.msgs, qmsg{id: w.q.nextID, key: k, gone: true})
	w.q.nextID++
}

// onExpire is I13 and I3 for a record that expires.
func (w *simulation) onExpire(row int, after *driver.Record) {
	k, before := w.business(row), &w.st.recs[row]
	w.stats.Expired++
	if w.Trace != nil {
		w.log(k, "store: a sweep expires the record of k%d, which is %v with token %d", k, before.State, before.Token)
	}
	switch {
	case w.failedOver:
	case !before.Expires() || !w.storeNow().After(before.RetainUntil):
		w.fail("I13", k, "expired while it was %v, kept until %v", before.State, before.RetainUntil.Sub(virtual.Epoch))
	case after.Token != before.Token:
		w.fail("I3", k, "the expiry changed token %d to %d", before.Token, after.Token)
	default:
		w.checkNoCopies(k, "expired")
	}
}

// checkPurge is I13 for a record that is purged where records expire.
func (w *simulation) checkPurge(k int, rec *driver.Record) {
	now := w.storeNow()
	switch {
	case !w.sc.longTerm || w.failedOver:
	case rec.State == driver.Expired && !now.After(rec.RetainUntil):
		w.fail("I13", k, "was purged before its long-term period ended")
	case rec.State != driver.Expired && rec.Expires() && !now.After(rec.RetainUntil.Add(period)):
		w.fail("I13", k, "was purged while it was %v: it had to expire", rec.State)
	}
}

// checkNoCopies is I13: what ends a record's retention finds no copy of its messages, the first time.
func (w *simulation) checkNoCopies(k int, what string) {
	live := w.pending > 0
	for i := range w.q.msgs {
		live = live || (!w.q.msgs[i].gone && w.q.msgs[i].key == k)
	}
	if live && w.wave == 0 && !w.failedOver {
		w.fail("I13", k, "was %s while copies of its messages exist", what)
	}
}

// checkLate is I27 for the ack of a message whose record is EXPIRED: a dead letter of it exists, or existed.
func (w *simulation) checkLate(m *qmsg) {
	if !w.hasLate(m) {
		w.fail("I27", m.key, "m%d of an expired record was acked without a dead letter", m.id)
	}
}

func (w *simulation) hasLate(m *qmsg) bool {
	for i := range w.q.deadLetters {
		if l := &w.q.deadLetters[i]; l.Kind == driver.DeadLetterLate && l.key == m.key && w.q.msgs[l.msg].id == m.id {
			return true
		}
	}
	return false
}

// taskOnLate is the part of a task that is about a late duplicate of an EXPIRED record. done: the task has ended. An
// operator reruns a completed key only deliberately.
func (w *simulation) taskOnLate(a *task, l *qletter) (done bool) {
	rec := &w.st.recs[w.row(l.Key.Raw)]
	switch {
	case a.kind == driver.Discard:
		l.discarded = true
		w.q.closeDeadLetter(w, l.ID)
		w.pending--
		return true
	case rec.State == driver.Expired && rec.Ended == driver.Completed:
		a.rerun = w.Chance(500)
		if !w.operate(a, l) {
			w.pending-- // refused, and its dead letter stays
			return true
		}
	}
	return false
}
