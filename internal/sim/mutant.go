package sim

import (
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
	"github.com/semel-dev/semel/internal/virtual"
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
	mutInsertUpdates
	mutCountZeroFirst
	mutFailureUnclaimed
	mutFencedKept
	mutants
)

// mistakes has the mutants' names, and the invariants of which each must violate one.
var mistakes = []virtual.Mistake{
	noMutant:                 {},
	mutCompleteBlind:         {Name: "complete without token compare", Invariants: "I7 I10 I11"},
	mutAckBusy:               {Name: "ack of a busy duplicate", Invariants: "I1 I14"},
	mutReleaseBlind:          {Name: "blind release", Invariants: "I7 I10"},
	mutPurgeEarly:            {Name: "purge before the horizon", Invariants: "I13 I2 I10"},
	mutAckFirst:              {Name: "ack first", Invariants: "I1"},
	mutOwnClaimDuplicate:     {Name: "own timed-out claim taken for a duplicate", Invariants: "I1 I8"},
	mutReleaseNoResponse:     {Name: "release after a complete without a response", Invariants: "I10 I2"},
	mutTokenRestarts:         {Name: "token restarts after release or purge", Invariants: "I3"},
	mutRowSurvives:           {Name: "record row survives its failed batch item", Invariants: "I18"},
	mutGroupOrder:            {Name: "group handled in key order", Invariants: "I22"},
	mutNoUncertainDeadLetter: {Name: "uncertain acked without a dead letter", Invariants: "I19 I1"},
	mutDeadLetterID:          {Name: "dead letter id without the token", Invariants: "I19"},
	mutKeylessByID: {
		Name:       "dead letter of a message without a key named by the sender's id alone",
		Invariants: "I1",
	},
	mutReleaseForgets:     {Name: "release forgets that the handler ran", Invariants: "I10 I2 I2'"},
	mutNoNonce:            {Name: "token compared without nonce after a lost suffix", Invariants: "I7"},
	mutFirstSwallows:      {Name: "first of a batch swallows another fingerprint", Invariants: "I11"},
	mutClaimAtPrefetch:    {Name: "claim at prefetch", Invariants: "I21"},
	mutOwnClaimKeepsLease: {Name: "own-nonce claim does not renew", Invariants: "I5"},
	mutTwoRecords:         {Name: "two records for two identities", Invariants: "I2 I10 I2' I6"},
	mutBuckets:            {Name: "bucketed records at roll-over", Invariants: "I2 I10 I2' I6"},
	mutMarkFirst:          {Name: "mark before the effect", Invariants: "I18 I1"},
	mutInDoubtIgnored:     {Name: "commit in doubt ignored", Invariants: "I2"},
	mutRollbackTag:        {Name: "COMMIT that returned ROLLBACK taken for a commit", Invariants: "I1"},
	mutPolicyWeakened:     {Name: "rolling deploy weakens the policy", Invariants: "I2' I2"},
	mutHalvesByKey:        {Name: "bisect in key order", Invariants: "I22"},
	mutHalfSurvives:       {Name: "record row survives its failed half", Invariants: "I18"},
	mutSharedBlind:        {Name: "shared effects written though one hold was lost", Invariants: "I2"},
	mutOlderTakesOver:     {Name: "older version takes over a newer one in flight", Invariants: "D1"},
	mutStaleByRunning:     {Name: "stale judged by the running version instead of the applied one", Invariants: "I1"},
	mutGapForgotten:       {Name: "late arrival inside a skipped gap treated as stale", Invariants: "I1"},
	mutRedriveBlind:       {Name: "redrive drops the dead letter of another version", Invariants: "I1"},
	mutVersionAcked:       {Name: "another version taken for a duplicate", Invariants: "I1"},
	mutCacheFailed:        {Name: "cache keeps failed records", Invariants: "I1 I11"},
	mutCacheUnknown:       {Name: "cache filled by a complete without a response", Invariants: "I1 I11"},
	mutCacheForever:       {Name: "cache outlives the record's retention", Invariants: "I1 I11"},
	mutCachePayload:       {Name: "cache replays another payload", Invariants: "I1 I11"},
	mutCacheVersion:       {Name: "cache replays another version", Invariants: "I1 I11"},
	mutRefusalOutage:      {Name: "one message's refused statement taken for an outage", Invariants: "I17"},
	mutLockBlamed:         {Name: "a lock that others hold counted as the message's failure", Invariants: "I26"},
	mutDeferralForgotten:  {Name: "a deferred first run looks as if it had never started", Invariants: "I23"},
	mutJoinedCounts:       {Name: "a death beside others counts towards a quarantined key's", Invariants: "I21"},
	mutReasonsDiffer:      {Name: "one reason that names its message taken for many", Invariants: "I24"},
	mutKeepsLost:          {Name: "visibility extended after the claim was lost", Invariants: "I25"},
	mutUncounted: {
		Name:       "first run in a shared transaction where the queue counts no deliveries",
		Invariants: "I17",
	},
	mutExpiredPurged:  {Name: "expired record purged before its period ended", Invariants: "I13"},
	mutExpiredGranted: {Name: "claim of an expired record granted", Invariants: "I27"},
	mutLateByPayload:  {Name: "late decided after the payload is compared", Invariants: "I27"},
	mutExpiryBlind:    {Name: "expiry of a record that was reopened meanwhile", Invariants: "I13"},
	mutDoubtPurged:    {Name: "released record with a doubt purged instead of expired", Invariants: "I13"},
	mutExpiryToken:    {Name: "token reset by the expiry", Invariants: "I3"},
	mutRerunByRedrive: {Name: "redrive reopens a completed expired record by itself", Invariants: "I2"},
	mutLateDropped:    {Name: "late duplicate acked without a dead letter", Invariants: "I27"},
	mutInsertUpdates:  {Name: "commit that carries its claim updates the record that it finds", Invariants: "I2 I7 I9"},
	mutCountZeroFirst: {Name: "an unknown delivery count taken for the first delivery", Invariants: "I17"},
	mutFailureUnclaimed: {
		Name:       "failure of a run that was to be claimed at its commit recorded without a claim",
		Invariants: "I7 I9",
	},
	mutFencedKept: {Name: "delivery without a visibility deadline not returned after the claim was lost", Invariants: "I17"},
}

const prefetched = "claimed at prefetch"

// bias turns a scenario towards what a mutant needs.
func (w *simulation) bias() {
	sc := &w.sc
	if w.mut == mutHalvesByKey {
		for i := range sc.specs {
			sc.specs[i].group = 1 // a failed batch with a long run of one group
		}
		sc.conduct[w.IntN(sc.keys)] = conductFailsFirst
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
	if w.mut == mutCountZeroFirst {
		sc.counts, sc.unkeyed = false, false
		sc.conduct[0] = conductKills
	}
	if w.mut == mutFailureUnclaimed {
		sc.slow = 500
		for k := range sc.keys {
			sc.conduct[k] = conductFailsFirst
		}
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
	if w.mut == mutFencedKept {
		sc.nfaults, sc.slow = 1, 500
		sc.faults[0] = fault{kind: outage, when: w.Between(0, lease), length: 2 * lease}
	}
	if w.mut == mutNoNonce {
		sc.mode, sc.effect, sc.cfg.Mode = machine.Separate, plain, machine.Separate
		sc.nfaults = 2
		sc.faults[0] = fault{kind: failover, when: w.Between(0, lease), length: w.Between(20*1e6, lease)}
		sc.faults[1] = fault{kind: stallHere, at: w.IntN(40)}
	}
}

// arrivalsMutated rewrites deliveries on their way to the machine.
func (w *simulation) arrivalsMutated(r *request) {
	switch w.mut {
	case mutCountZeroFirst:
		for i := range r.arrivals {
			r.arrivals[i].Count = max(r.arrivals[i].Count, 1)
		}
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
			if changed && w.Broken == nil {
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
func (w *simulation) releaseNoResponse(r *request) {
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
func (s *store) survive(w *simulation, row int, rec driver.Record, hold driver.Hold) {
	after, _, changed := driver.DecideFinish(rec, driver.Finish{Hold: hold, Final: driver.Complete, Keep: keep}, w.storeNow())
	if changed {
		s.write(w, row, &after, byFinish)
	}
}

// failUnclaimed is a worker that records the failure of a run as if it held the record.
func (w *simulation) failUnclaimed(r *run) {
	row := w.row(r.hold.Key.Raw)
	after := w.st.recs[row]
	if after.State == driver.Absent {
		c := driver.Claim{Key: r.hold.Key, Nonce: r.hold.Nonce, Fingerprint: r.item.Fingerprint, Lease: lease}
		after, _, _ = driver.DecideClaim(after, c, w.storeNow(), w.st.drawn+1)
		w.st.drawn = after.Token
	}
	after.State, after.RetainUntil = driver.FailedState, w.storeNow().Add(keep)
	after.Failures++
	w.st.write(w, row, &after, byFinish)
}

// returnsLost reports that a settlement returns the delivery of a run whose end is not in the store.
func (w *simulation) returnsLost(r *request, i int) bool {
	x, ran := r.items[i].Shell.(*run)
	if !ran || x.item != r.items[i] || !x.over || x.msg != receiptOf(r.sets[i].Receipt).msg || r.sets[i].Action != driver.Defer {
		return false
	}
	rec := &w.st.recs[w.row(x.hold.Key.Raw)]
	return rec.State != driver.Released || rec.Token != x.hold.Token
}

// ofAtCommit reports that a mutant is a mistake of claims at the commit.
func (m mutant) ofAtCommit() bool { return m >= mutInsertUpdates && m <= mutFailureUnclaimed }

// versioned reports that a mutant needs keys with versions.
func (m mutant) versioned() bool {
	return m >= mutOlderTakesOver && m <= mutVersionAcked || m == mutCacheVersion
}
