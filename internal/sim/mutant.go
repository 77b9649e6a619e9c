package sim

import (
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// mutant is a known way to get the protocol wrong (section 12). It is planted between the machine and the model, or in
// the model; the machine is never touched.
type mutant uint8

const (
	noMutant mutant = iota
	mutCompleteBlind
	mutAckBusy
	mutReleaseBlind
	mutPurgeEarly
	mutAckFirst
	mutOwnClaimDuplicate
	mutReleaseNoResponse
	mutTokenRestarts
	mutRowSurvives
	mutGroupOrder
	mutNoUncertainDeadLetter
	mutDeadLetterID
	mutKeylessByID
	mutReleaseForgets
	mutNoNonce
	mutFirstSwallows
	mutClaimAtPrefetch
	mutOwnClaimKeepsLease
	mutTwoRecords
	mutBuckets
	mutMarkFirst
	mutInDoubtIgnored
	mutRollbackTag
	mutPolicyWeakened
	mutHalvesByKey
	mutHalfSurvives
	mutSharedBlind
	mutOlderTakesOver
	mutStaleByRunning
	mutGapForgotten
	mutRedriveBlind
	mutVersionAcked
	mutCacheFailed
	mutCacheUnknown
	mutCacheForever
	mutCachePayload
	mutCacheVersion
	mutRefusalOutage
	mutLockBlamed
	mutDeferralForgotten
	mutJoinedCounts
	mutReasonsDiffer
	mutKeepsLost
	mutUncounted
	mutExpiredPurged
	mutExpiredGranted
	mutLateByPayload
	mutExpiryBlind
	mutDoubtPurged
	mutExpiryToken
	mutRerunByRedrive
	mutLateDropped
	mutants
)

// mistakes has the mutants' names, and the invariants of which each must violate one. If another invariant found it, that
// would be an accident of the simulator.
var mistakes = [...]struct{ name, breaks string }{
	noMutant:                 {"", ""},
	mutCompleteBlind:         {"complete without token compare", "I7 I10 I11"},
	mutAckBusy:               {"ack of a busy duplicate", "I1 I14"},
	mutReleaseBlind:          {"blind release", "I7 I10"},
	mutPurgeEarly:            {"purge before the horizon", "I13 I2 I10"},
	mutAckFirst:              {"ack first", "I1"},
	mutOwnClaimDuplicate:     {"own timed-out claim taken for a duplicate", "I1 I8"},
	mutReleaseNoResponse:     {"release after a complete without a response", "I10 I2"},
	mutTokenRestarts:         {"token restarts after release or purge", "I3"},
	mutRowSurvives:           {"record row survives its failed batch item", "I18"},
	mutGroupOrder:            {"group handled in key order", "I22"},
	mutNoUncertainDeadLetter: {"uncertain acked without a dead letter", "I19 I1"},
	mutDeadLetterID:          {"dead letter id without the token", "I19"},
	mutKeylessByID:           {"dead letter of a message without a key named by the sender's id alone", "I1"},
	mutReleaseForgets:        {"release forgets that the handler ran", "I10 I2 I2'"},
	mutNoNonce:               {"token compared without nonce after a lost suffix", "I7"},
	mutFirstSwallows:         {"first of a batch swallows another fingerprint", "I11"},
	mutClaimAtPrefetch:       {"claim at prefetch", "I21"},
	mutOwnClaimKeepsLease:    {"own-nonce claim does not renew", "I5"},
	mutTwoRecords:            {"two records for two identities", "I2 I10 I2' I6"},
	mutBuckets:               {"bucketed records at roll-over", "I2 I10 I2' I6"},
	mutMarkFirst:             {"mark before the effect", "I18 I1"},
	mutInDoubtIgnored:        {"commit in doubt ignored", "I2"},
	mutRollbackTag:           {"COMMIT that returned ROLLBACK taken for a commit", "I1"},
	mutPolicyWeakened:        {"rolling deploy weakens the policy", "I2' I2"},
	mutHalvesByKey:           {"bisect in key order", "I22"},
	mutHalfSurvives:          {"record row survives its failed half", "I18"},
	mutSharedBlind:           {"shared effects written though one hold was lost", "I2"},
	mutOlderTakesOver:        {"older version takes over a newer one in flight", "D1"},
	mutStaleByRunning:        {"stale judged by the running version instead of the applied one", "I1"},
	mutGapForgotten:          {"late arrival inside a skipped gap treated as stale", "I1"},
	mutRedriveBlind:          {"redrive drops the dead letter of another version", "I1"},
	mutVersionAcked:          {"another version taken for a duplicate", "I1"},
	mutCacheFailed:           {"cache keeps failed records", "I1 I11"},
	mutCacheUnknown:          {"cache filled by a complete without a response", "I1 I11"},
	mutCacheForever:          {"cache outlives the record's retention", "I1 I11"},
	mutCachePayload:          {"cache replays another payload", "I1 I11"},
	mutCacheVersion:          {"cache replays another version", "I1 I11"},
	mutRefusalOutage:         {"one message's refused statement taken for an outage", "I17"},
	mutLockBlamed:            {"a lock that others hold counted as the message's failure", "I26"},
	mutDeferralForgotten:     {"a deferred first run looks as if it had never started", "I23"},
	mutJoinedCounts:          {"a death beside others counts towards a quarantined key's", "I21"},
	mutReasonsDiffer:         {"one reason that names its message taken for many", "I24"},
	mutKeepsLost:             {"visibility extended after the claim was lost", "I25"},
	mutUncounted:             {"first run in a shared transaction where the queue counts no deliveries", "I17"},
	mutExpiredPurged:         {"expired record purged before its period ended", "I13"},
	mutExpiredGranted:        {"claim of an expired record granted", "I27"},
	mutLateByPayload:         {"late decided after the payload is compared", "I27"},
	mutExpiryBlind:           {"expiry of a record that was reopened meanwhile", "I13"},
	mutDoubtPurged:           {"released record with a doubt purged instead of expired", "I13"},
	mutExpiryToken:           {"token reset by the expiry", "I3"},
	mutRerunByRedrive:        {"redrive reopens a completed expired record by itself", "I2"},
	mutLateDropped:           {"late duplicate acked without a dead letter", "I27"},
}

const prefetched = "claimed at prefetch"

// bias turns a scenario towards what a mutant needs.
func (w *world) bias() {
	sc := &w.sc
	if w.mut == mutHalvesByKey {
		for i := range sc.specs {
			sc.specs[i].group = 1 // a failed batch with a long run of one group
		}
		sc.conduct[w.n(sc.keys)] = conductFailsFirst
	}
	if w.mut == mutOlderTakesOver {
		sc.mode, sc.effect, sc.cfg.Mode, sc.cfg.Batched = machine.Separate, fenced, machine.Separate, false
	}
	if w.mut == mutJoinedCounts {
		sc.nfaults, sc.flaky, sc.slow, sc.people = 0, 0, 500, 0
		sc.conduct[0] = conductKills
		for k := 1; k < sc.keys; k++ {
			sc.conduct[k] = conductLong
		}
	}
	if w.mut == mutUncounted {
		sc.mode, sc.effect, sc.cfg.Mode = machine.Open, inTx, machine.Open
		sc.counts, sc.cfg.Counts, sc.unkeyed = false, true, false
		sc.conduct[0] = conductKills
	}
	switch w.mut {
	case mutExpiryBlind, mutExpiryToken, mutRerunByRedrive:
		sc.people = max(sc.people, 2)
	}
	if w.mut == mutRerunByRedrive && sc.effect != inTx {
		sc.effect = keyed
	}
	if w.mut == mutGapForgotten && sc.cfg.Park == 0 {
		sc.cfg.Park = lease
	}
	if w.mut == mutNoNonce {
		sc.mode, sc.effect, sc.cfg.Mode = machine.Separate, plain, machine.Separate
		sc.nfaults = 2
		sc.faults[0] = fault{kind: failover, when: w.between(0, lease), length: w.between(20*1e6, lease)}
		sc.faults[1] = fault{kind: stallHere, at: w.n(40)}
	}
}

// arrivalsMutated rewrites deliveries on their way to the machine.
func (w *world) arrivalsMutated(r *request) {
	switch w.mut {
	case mutAckFirst:
		for i := range r.arrivals {
			m := &w.q.msgs[r.arrivals[i].Receipt.(*receipt).msg]
			if !m.gone {
				w.checkAck(m, driver.Ack)
				m.gone = true
				w.q.live--
			}
		}
	case mutGroupOrder:
		for i, j := 0, len(r.arrivals)-1; i < j; i, j = i+1, j-1 {
			r.arrivals[i], r.arrivals[j] = r.arrivals[j], r.arrivals[i]
		}
	case mutFirstSwallows:
		for i := range r.arrivals {
			for j := range i {
				if r.arrivals[i].Key == r.arrivals[j].Key {
					r.arrivals[i].Fingerprint = r.arrivals[j].Fingerprint
				}
			}
		}
	case mutTwoRecords:
		for i := range r.arrivals {
			if a := &r.arrivals[i]; a.KeyErr == nil && a.Count > 1 {
				a.Key.Raw = a.ID // a redelivery is known by its delivery
			}
		}
	case mutClaimAtPrefetch:
		for i := range r.arrivals {
			a := &r.arrivals[i]
			if a.KeyErr != nil {
				continue
			}
			c := driver.Claim{Key: a.Key, Nonce: w.nonce(), Fingerprint: a.Fingerprint, DeliveryID: a.ID, Lease: lease, Takeover: w.sc.takeover[r.worker]}
			row := w.row(c.Key.Raw)
			if w.st.held[row] != 0 {
				continue
			}
			after, g, changed := driver.DecideClaim(w.st.recs[row], c, w.storeNow(), w.st.drawn+1)
			w.onClaim(&w.st.recs[row], &after, &c, &g)
			if changed && w.vio == nil {
				w.st.drawn = max(w.st.drawn, after.Token)
				if g.Verdict == driver.Acquired {
					after.Reason = prefetched
				}
				w.st.write(w, row, &after, byClaim)
			}
		}
	}
}

// releaseNoResponse is a worker that takes a COMPLETE without a response for a failure, and releases the key.
func (w *world) releaseNoResponse(r *request) {
	for i := range r.works {
		f := r.works[i].Finish
		if f.Final != driver.Complete {
			continue
		}
		f.Final, f.Ran = driver.Release, driver.Unstarted
		row := w.row(f.Hold.Key.Raw)
		if after, _, changed := driver.DecideFinish(w.st.recs[row], f, w.storeNow()); changed {
			w.st.write(w, row, &after, byFinish)
		}
	}
}

// survive leaves the row of a failed item behind as if it had been done.
func (s *store) survive(w *world, row int, rec driver.Record, hold driver.Hold) {
	after, _, changed := driver.DecideFinish(rec, driver.Finish{Hold: hold, Final: driver.Complete, Keep: keep}, w.storeNow())
	if changed {
		s.write(w, row, &after, byFinish)
	}
}

// versioned reports that a mutant needs keys with versions.
func (m mutant) versioned() bool {
	return m >= mutOlderTakesOver && m <= mutVersionAcked || m == mutCacheVersion
}

// breaks reports that an invariant is one of those that a mutant must violate.
func (m mutant) breaks(invariant string) bool {
	for _, s := range strings.Fields(mistakes[m].breaks) {
		if s == invariant {
			return true
		}
	}
	return false
}
