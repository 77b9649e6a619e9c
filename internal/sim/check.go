package sim

import (
	"bytes"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is the history checker: the invariants of protocol section 11, checked at every step against what the
// checker itself remembers, not against what the engine believes.

// effectID is what a keyed downstream remembers.
type effectID struct {
	raw   int
	epoch uint32
}

// keyState is what the checker and the outside world know of one key.
type keyState struct {
	effects int
	seen    [8]effectID
	nseen   int
	fence   uint64 // the resource's
	barrier uint64 // set by a probe

	u, f, redrives, resolves int // U-events, recorded failures, reopenings
	reruns                   int // of a completed key, on purpose
	token                    uint64
	completed                uint32 // generation+1 that was completed
	terminal                 bool
	ruled                    bool // policy is set
	policy                   driver.Takeover
	result                   []byte
	runs, refusals, ranAlone int
	returned, probed, purged bool
	resolvedDone             bool
	edited                   bool // its message was sent again with another payload
	passed                   bool // a newer version was applied that did not wait for it
	completedAt              time.Duration

	// grantedTo, grantedAt and granted are of the latest claim, started the token of the latest run; brushed: a process
	// died within the round trip in which a claim that had to wait for quiet would have been returned.
	grantedTo        int
	grantedAt        time.Duration
	granted, started uint64
	brushed          bool
	begun            bool // a run was started whose claim is durable

	newest driver.Version // of an entity: that had its effect

	beliefToken uint64
	beliefUntil time.Duration
}

// waits: its first effect may still come, and no end of it has been recorded.
func (k *keyState) waits() bool { return k.effects == 0 && !k.terminal && !k.purged }

func (k *keyState) reset() { *k = keyState{} }

// neverBegun is what the machine says of a message that grew too old before a run of its key was started.
const neverBegun = "never begun"

// exhausted is what it says of a key whose attempts were used up by workers that crashed.
const exhausted = "crashed or lost their lease"

// writer is the kind of a record's writer.
type writer uint8

const (
	byClaim writer = iota
	byExtend
	byFinish
	byOperator
	bySweep
)

// onClaim checks a decided claim: I3, I5, I8, I11, I12.
func (w *simulation) onClaim(before, after *driver.Record, c *driver.Claim, g *driver.Grant) {
	if w.failedOver {
		return
	}
	k := w.keyAt(w.row(c.Key.Raw), c.Version)
	ks, es := &w.keys[k], w.entity(k)
	switch {
	case before.State == driver.Expired && g.Verdict != driver.Late:
		w.fail("I27", k, "a claim of an expired record returned %v", g.Verdict)
	case g.Verdict == driver.Acquired && g.Hold.Token == 0:
		if before.State != driver.Absent || !c.AtCommit {
			w.fail("I7", k, "a claim that owns nothing was granted, and the record is %v", before.State)
		}
	case g.Verdict == driver.Acquired && after.Key != c.Key:
		w.fail("I12", k, "the record of %q was granted to a claim of %q", after.Key.Raw, c.Key.Raw)
	case before.State == driver.InProgress && before.Nonce == c.Nonce:
		if g.Verdict != driver.Acquired || g.Hold.Token != before.Token || g.Attempt != before.Attempt {
			w.fail("I8", k, "a repeated claim with the same nonce returned %v with token %d instead of token %d", g.Verdict, g.Hold.Token, before.Token)
		}
		// I5 checks that it renews: no worker may take over from one that believes in its lease.
	case w.mut == mutClaimAtPrefetch && before.State == driver.InProgress && g.Hold.Token == before.Token:
		// The mutant hands its early claim on.
	case g.Verdict == driver.Acquired:
		if g.Hold.Token <= es.token {
			w.fail("I3", k, "token %d was handed out after token %d", g.Hold.Token, es.token)
		}
		es.token = g.Hold.Token
		ks.granted, ks.grantedTo, ks.grantedAt = g.Hold.Token, w.claimer, w.Now
		if before.State == driver.InProgress {
			w.stats.Takeovers++
			if es.beliefToken == before.Token && es.beliefUntil > w.Now && !w.jumped && !w.forced {
				w.fail("I5", k, "token %d was taken over while its worker believed in its lease for another %v", before.Token, es.beliefUntil-w.Now)
			}
		}
	case g.Verdict == driver.Stale:
		ks.terminal = true // nothing waits for it
	case g.Verdict == driver.Replay:
		fp := before.Fingerprint
		done := before.State == driver.Completed
		if c.Version != "" {
			fp, done = before.Watermark.Fingerprint, c.Version == before.Watermark.Applied
		}
		if !done || !bytes.Equal(g.Result, ks.result) || fp.Differs(c.Fingerprint) {
			w.fail("I11", k, "a duplicate was replayed from a record in state %v with another result or payload", before.State)
		}
	}
}

// believe notes until when workers believe in their leases (I5).
func (w *simulation) believe(k *worker, r *request) {
	for i := range r.grants {
		if g := &r.grants[i]; g.Err == nil && g.Verdict == driver.Acquired && g.Hold.Token > 0 {
			w.believeIn(&g.Hold, k.global(r.sent)+lease-guard)
		}
	}
}

func (w *simulation) believeOn(k *worker, r *request) {
	for i, o := range r.outcomes {
		if o == driver.Applied {
			w.believeIn(&r.holds[i], k.global(r.sent)+lease-guard)
			if x, ok := r.items[i].Shell.(*run); ok {
				x.lost = false // it came late, and the claim is still there
			}
		}
	}
}

func (w *simulation) believeIn(h *driver.Hold, until time.Duration) {
	ks := w.entity(w.business(w.row(h.Key.Raw)))
	if h.Token >= ks.beliefToken {
		ks.beliefToken, ks.beliefUntil = h.Token, until
	}
}

// checkStart is I5 where it matters most: a run that begins within its worker's own deadline still holds its record.
func (w *simulation) checkStart(r *run) {
	rec := &w.st.recs[w.row(r.hold.Key.Raw)]
	if r.job.InTx || r.job.AtCommit || w.jumped || w.forced || w.failedOver || rec.Token == r.hold.Token {
		return
	}
	w.fail("I5", r.key, "token %d begins to run, in the belief that its lease lasts another %v, but the record is %v with token %d",
		r.hold.Token, r.job.Deadline-w.workers[r.worker].clock(), rec.State, rec.Token)
}

// onInsert checks the record that a commit made for an attempt without one: I3, I7, I12.
func (w *simulation) onInsert(before, after *driver.Record, c *driver.Claim) {
	if w.failedOver {
		return
	}
	k := w.business(w.row(c.Key.Raw))
	es := w.entity(k)
	switch {
	case before.State != driver.Absent:
		w.fail("I7", k, "a commit with its claim was accepted on a record that is %v, with token %d", before.State, before.Token)
	case after.Token <= es.token:
		w.fail("I3", k, "token %d was handed out after token %d", after.Token, es.token)
	case after.Key != c.Key || after.Nonce != c.Nonce:
		w.fail("I12", k, "the record of %q was made for a claim of %q", after.Key.Raw, c.Key.Raw)
	}
	es.token = after.Token
	w.stats.Inserted++
}

// onGuarded checks an accepted write of a worker: I7.
func (w *simulation) onGuarded(before *driver.Record, h *driver.Hold) {
	if before.Token != h.Token || before.Nonce != h.Nonce {
		w.fail("I7", w.business(w.row(h.Key.Raw)), "a write of token %d, nonce %x was accepted on a record of token %d, nonce %x",
			h.Token, h.Nonce[0], before.Token, before.Nonce[0])
	}
}

// onWrite checks a change of a record: I6, I9, I18, I21, I23, I26; and keeps the ledger of doubts.
func (w *simulation) onWrite(row int, before, after *driver.Record, by writer) {
	if w.failedOver || w.Broken != nil {
		return
	}
	k := w.keyAt(row, after.Watermark.Running)
	ks := &w.keys[k]
	if before.State == driver.Completed && by != byOperator && (by != bySweep || after.State != driver.Expired) && after.Watermark.Running <= before.Watermark.Running {
		w.fail("I9", k, "a completed record was changed to %v", after.State)
		return
	}
	if w.sc.versions {
		w.checkWatermark(k, before, after)
	}
	if after.State == driver.FailedState && by == byFinish && strings.Contains(after.Reason, driver.ErrBlocked.Error()) {
		w.fail("I26", k, "a message failed that waits for somebody else's lock: %s", after.Reason)
		return
	}
	w.keys[w.keyAt(row, before.Watermark.Running)].u += max(after.Uncertainty-before.Uncertainty, 0)
	ks.f += max(after.Failures-before.Failures, 0)
	if !ks.ruled {
		ks.ruled, ks.policy = true, after.Takeover
	}
	if by == byOperator && after.State == driver.Released {
		if after.Generation > before.Generation {
			ks.redrives++
		} else if before.State == driver.Uncertain {
			ks.resolves++
		}
		if after.Takeovers == 0 {
			ks.returned, ks.ranAlone = false, 0 // it starts afresh; a forced release keeps the crashed runs
		}
	}
	if after.State == before.State && after.Watermark.Running == before.Watermark.Running || !after.State.Terminal() {
		return
	}
	ks.terminal = true
	switch after.State {
	case driver.Completed:
		w.onCompleted(k, after, by)
	case driver.FailedState, driver.Uncertain:
		if ks.begun && !w.sc.versions && strings.Contains(after.Reason, neverBegun) { // an entity's record counts its present version alone
			w.fail("I23", k, "became %v, although a run of it was started: %s", after.State, after.Reason)
		}
		if by == byFinish && !ks.returned && ks.ranAlone == 0 && !ks.brushed && !w.faulted && strings.Contains(after.Reason, exhausted) {
			w.fail("I21", k, "became %v, but its handler never returned and never ran alone: %s", after.State, after.Reason)
		}
	}
}

func (w *simulation) onCompleted(k int, after *driver.Record, by writer) {
	ks := &w.keys[k]
	if ks.completed == after.Generation+1 {
		w.fail("I6", k, "generation %d was completed twice", after.Generation)
	}
	ks.completed = after.Generation + 1
	ks.result, ks.completedAt = after.Result, w.Now
	if by == byOperator {
		ks.resolvedDone = true
		return
	}
	if ks.effects == 0 && !strings.HasPrefix(after.Reason, "dropped") && !ks.probed {
		w.fail("I18", k, "was completed without an effect")
	}
}

// happened counts an effect and checks its bound: I2, I2', I4, I10, I22.
func (w *simulation) happened(k int, token uint64) {
	ks := &w.keys[k]
	ks.effects++
	if w.Trace != nil {
		w.log(k, "effect %d of k%d happens, by token %d", ks.effects, k, token)
	}
	if w.failedOver {
		return
	}
	if w.sc.versions {
		w.checkVersionOrder(k)
	}
	if ks.effects == 1 {
		w.checkOrder(k)
		return
	}
	probing := w.sc.probeTells && w.sc.takeover[0] == driver.Probe && w.sc.effect == plain
	switch {
	case (w.sc.effect == keyed || w.sc.effect == inTx) && ks.effects <= 1+ks.reruns:
	case w.sc.effect == keyed || w.sc.effect == inTx:
		w.fail("I2", k, "took effect %d times", ks.effects)
	case ks.policy == driver.Once && ks.effects > 1+ks.resolves+ks.reruns:
		w.fail("I2'", k, "took effect %d times under once, %d resolutions", ks.effects, ks.resolves)
	case ks.policy == driver.Probe && probing && ks.effects > 1+ks.resolves+ks.reruns:
		w.fail("I2", k, "took effect %d times although the probe tells, %d resolutions", ks.effects, ks.resolves)
	case ks.effects > 1+ks.u+ks.f+ks.redrives:
		w.fail("I10", k, "took effect %d times, with %d uncertainty events, %d recorded failures, %d redrives", ks.effects, ks.u, ks.f, ks.redrives)
	}
}

// checkOrder is I22: the first effects of a group come in the order of its messages. A key that reached an end without
// an effect does not hold the others up.
func (w *simulation) checkOrder(k int) {
	for i := range w.q.msgs {
		m := &w.q.msgs[i]
		if m.key != k || m.keyless {
			continue
		}
		group := m.group
		if group == 0 {
			return
		}
		for j := range i {
			e := &w.q.msgs[j]
			if e.group == group && e.key != k && !e.keyless && w.keys[e.key].waits() {
				w.fail("I22", k, "took effect before k%d, which is before it in group %d", e.key, group)
				return
			}
		}
		return
	}
}

// checkAck is I1, I11 and I14 at the moment when a message is removed.
func (w *simulation) checkAck(m *qmsg, a driver.Action) {
	if w.failedOver {
		return
	}
	if m.keyless {
		if (a == driver.Dead || !w.sc.unkeyed) && !w.q.hasDeadLetterOf(m) {
			w.fail("I1", m.key, "m%d without a key was acked without a dead letter", m.id)
		}
		return
	}
	if w.sc.versions {
		w.checkVersion(m, atAck)
		return
	}
	ks := &w.keys[m.key]
	rec := w.recordOf(m)
	switch {
	case rec.State == driver.Expired:
		w.checkLate(m)
		return
	case w.hasLate(m): // its record was reopened meanwhile
		return
	}
	if rec.Fingerprint.Differs(fpText[m.fp]) {
		if w.q.deadLetter(driver.DeadLetterID(driver.DeadLetterMismatch, w.keyOf(m.key), 0, fpText[m.fp])) == nil && ks.redrives == 0 {
			w.fail("I11", m.key, "m%d with another payload was acked without a dead letter", m.id)
		}
		return
	}
	switch {
	case ks.redrives+ks.resolves > 0 && ks.terminal:
		// Reopened by an operator, who sent another copy: the final check judges.
	case !rec.State.Terminal():
		w.fail("I1", m.key, "m%d was acked (%v) while its record is %v", m.id, a, rec.State)
	default:
		w.checkDeadLetter(m.key, rec, "at the ack")
	}
}

// checkDeadLetter is I19 for one record: a dead letter exists, or was disposed of.
func (w *simulation) checkDeadLetter(k int, rec *driver.Record, when string) {
	kind := driver.DeadLetterFailed
	switch {
	case rec.State == driver.FailedState && !rec.Disposed:
	case rec.State == driver.Uncertain:
		kind = driver.DeadLetterUncertain
	default:
		return
	}
	for i := range w.q.deadLetters {
		if l := &w.q.deadLetters[i]; l.alive && l.key == k && l.Kind == kind && l.Token == rec.Token {
			return
		}
	}
	w.fail("I19", k, "%s: %v with token %d, and there is no %s dead letter of that token", when, rec.State, rec.Token, kind)
}

func (w *simulation) recordOf(m *qmsg) *driver.Record {
	best := &w.st.recs[m.key]
	for _, i := range [...]int{m.key, m.key + rows, maxKeys + m.id%rowIDs, maxKeys + m.id%rowIDs + rows} {
		if (w.mut == mutBuckets || w.mut == mutTwoRecords || i == m.key) && w.st.recs[i].State > best.State {
			best = &w.st.recs[i]
		}
	}
	return best
}

// onPurge is I13, and forgets the key.
func (w *simulation) onPurge(row int) {
	k := w.business(row)
	ks := &w.keys[k]
	w.checkNoCopies(k, "purged")
	w.checkPurge(k, &w.st.recs[row])
	token := ks.token
	ks.reset()
	ks.token, ks.purged = token, true
}
