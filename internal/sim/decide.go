package sim

import (
	"time"

	"github.com/semel-dev/semel/driver"
)

// This file is the model's decisions: the driver's own, but for the mutants.

// decide is driver.DecideClaim with the mutants of the claim table.
func (s *store) decide(w *simulation, i int, c *driver.Claim) (driver.Record, driver.Grant, bool) {
	before := &s.recs[i]
	claim := *c
	switch w.mut {
	case mutPolicyWeakened:
		if before.State == driver.InProgress && before.Nonce != c.Nonce {
			weak := *before
			weak.Takeover = c.Takeover
			if w.sc.deploy < weak.Takeover {
				weak.Takeover = w.sc.deploy
			}
			after, g, changed := driver.DecideClaim(weak, claim, w.storeNow(), s.drawn+1)
			s.drawn = max(s.drawn, after.Token)
			return after, g, changed
		}
	case mutOwnClaimDuplicate:
		if before.State == driver.InProgress && before.Nonce == c.Nonce {
			return *before, driver.Grant{Verdict: driver.Replay, Hold: before.Hold()}, false
		}
	case mutOwnClaimKeepsLease:
		if before.State == driver.InProgress && before.Nonce == c.Nonce {
			_, g, _ := driver.DecideClaim(*before, claim, w.storeNow(), s.drawn+1)
			return *before, g, false
		}
	case mutOlderTakesOver:
		if v := before.Watermark.Running; before.State == driver.InProgress && claim.Version < v && claim.Version > before.Watermark.Applied {
			older := *before
			older.Watermark.Running, older.Fingerprint = claim.Version, claim.Fingerprint
			after, g, changed := driver.DecideClaim(older, claim, w.storeNow(), s.drawn+1)
			s.drawn = max(s.drawn, after.Token)
			return after, g, changed && g.Verdict == driver.Acquired
		}
	case mutStaleByRunning:
		if claim.Version < before.Watermark.Running && before.State != driver.Absent {
			return *before, driver.Grant{Verdict: driver.Stale, Hold: before.Hold()}, false
		}
	case mutVersionAcked:
		claim.Version = max(claim.Version, before.Watermark.Running)
		claim.Fingerprint = ""
	case mutJoinedCounts:
		if before.State == driver.InProgress && before.Nonce != c.Nonce {
			alone := *before
			alone.Beat = 0
			after, g, changed := driver.DecideClaim(alone, claim, w.storeNow(), s.drawn+1)
			s.drawn = max(s.drawn, after.Token)
			return after, g, changed
		}
	case mutTokenRestarts:
		after, g, changed := driver.DecideClaim(*before, claim, w.storeNow(), 0)
		return after, g, changed
	case mutExpiryToken:
		if before.Generation > 1 {
			return driver.DecideClaim(*before, claim, w.storeNow(), 0)
		}
	case mutExpiredGranted:
		if before.State == driver.Expired {
			open := *before
			open.State, open.Ended = driver.Released, driver.Absent
			after, g, changed := driver.DecideClaim(open, claim, w.storeNow(), s.drawn+1)
			s.drawn = max(s.drawn, after.Token)
			return after, g, changed
		}
	case mutLateByPayload:
		if before.State == driver.Expired && before.Fingerprint.Differs(claim.Fingerprint) {
			return *before, driver.Grant{Verdict: driver.Mismatch, Hold: before.Hold()}, false
		}
	case mutClaimAtPrefetch:
		if before.State == driver.InProgress && before.Reason == prefetched && w.Now <= w.st.leaseEnd(before) {
			mine := *before
			mine.Nonce, mine.Reason = c.Nonce, ""
			after, g, _ := driver.DecideClaim(mine, claim, w.storeNow(), 0)
			return after, g, true
		}
	}
	after, g, changed := driver.DecideClaim(*before, claim, w.storeNow(), s.drawn+1)
	if changed {
		s.drawn = max(s.drawn, after.Token)
	}
	if w.mut == mutGapForgotten && g.Verdict == driver.Late {
		g.Verdict = driver.Stale
	}
	if w.mut == mutMarkFirst && g.Verdict == driver.Acquired && changed {
		after.State, after.RetainUntil = driver.Completed, w.storeNow().Add(keep)
	}
	return after, g, changed
}

// decideFinish is driver.DecideFinish with the mutants of the guarded writes.
func (s *store) decideFinish(w *simulation, row int, f *driver.Finish) (driver.Record, driver.Outcome, bool) {
	before := &s.recs[row]
	g := *f
	switch {
	case w.mut == mutCompleteBlind && f.Final == driver.Complete && before.State == driver.InProgress,
		w.mut == mutReleaseBlind && f.Final == driver.Release && before.State == driver.InProgress:
		g.Hold = before.Hold()
	case w.mut == mutNoNonce && f.Hold.Token == before.Token:
		g.Hold.Nonce = before.Nonce
	case w.mut == mutReleaseForgets && f.Final == driver.Release:
		g.Ran = driver.Unstarted
	}
	after, o, changed := driver.DecideFinish(*before, g, w.storeNow())
	if w.mut == mutTokenRestarts && changed && after.State == driver.Released {
		after.Token = 0
	}
	if w.mut == mutDeferralForgotten && changed && f.Refund {
		after.Attempt = before.Attempt - 1
	}
	return after, o, changed
}

// decideWork decides an attempt's end in a commit.
func (s *store) decideWork(w *simulation, row int, wk *driver.Work) (driver.Record, driver.Outcome, bool) {
	if wk.Claim == nil {
		return s.decideFinish(w, row, &wk.Finish)
	}
	before := s.recs[row]
	if own := before.State == driver.Completed && before.Nonce == wk.Claim.Nonce; w.mut == mutInsertUpdates && !own {
		before = driver.Record{}
	}
	return driver.DecideInsert(before, *wk.Claim, wk.Finish, w.storeNow(), max(s.drawn, s.recs[row].Token)+1)
}

// decideSweep is driver.DecideSweep with the mutants of the expiry.
func (s *store) decideSweep(w *simulation, row int, now time.Time) (driver.Record, driver.SweepVerdict) {
	rec, longTerm := s.recs[row], time.Duration(0)
	if w.sc.longTerm {
		longTerm = period
	}
	after, v := driver.DecideSweep(rec, now, 2*keep, longTerm)
	switch {
	case w.mut == mutExpiredPurged && rec.State == driver.Expired,
		w.mut == mutDoubtPurged && v == driver.SweepExpire && rec.State == driver.Released:
		return rec, driver.SweepPurge
	case w.mut == mutExpiryBlind && s.due[row]:
		s.due[row] = false
		rec.State, rec.RetainUntil = driver.FailedState, now.Add(-1) // it is not looked at again
		return driver.DecideSweep(rec, now, 2*keep, longTerm)
	case w.mut == mutExpiryBlind && v == driver.SweepExpire:
		s.due[row] = true
		return rec, driver.SweepKeep
	case w.mut == mutLateByPayload && v == driver.SweepExpire:
		after.Fingerprint = rec.Fingerprint
	case w.mut == mutExpiryToken && v == driver.SweepExpire:
		after.Token = 0
	}
	return after, v
}
