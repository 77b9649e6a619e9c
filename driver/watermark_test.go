package driver

import (
	"strings"
	"testing"
	"time"
)

// The expectations here are written by hand from protocol section 6.

func ver(n int64) Version { return IntVersion(n) }

// at is a record that ran version running last, and has applied the given one (0 = none).
func at(s State, running, applied int64, tweak ...func(*Record)) Record {
	r := inState(s, tweak...)
	r.Watermark.Running = ver(running)
	if applied > 0 {
		r.Watermark.Applied, r.Watermark.Fingerprint = ver(applied), fpA
	}
	return r
}

func TestDecideVersionClaim(t *testing.T) {
	of := func(n int64, tweak ...func(*Claim)) Claim {
		return claim(other, append(tweak, func(c *Claim) { c.Version = ver(n) })...)
	}
	after := func(n int64) func(*Claim) { return func(c *Claim) { c.After = ver(n) } }
	skip := func(c *Claim) { c.NoWait = true }
	payload := func(fp Fingerprint) func(*Claim) { return func(c *Claim) { c.Fingerprint = fp } }
	doubt := func(r *Record) { r.Unknown, r.Uncertainty = true, 1 }
	was := func(n int64) func(*Record) { return func(r *Record) { r.Watermark.Doubt = ver(n) } }
	dropped := func(n int64) func(*Record) { return func(r *Record) { r.Watermark.Dropped = ver(n) } }
	disposed := func(r *Record) { r.Disposed = true }
	hole := func(a, b int64) func(*Record) {
		return func(r *Record) { r.Watermark.Skipped = []Span{{ver(a), ver(b)}} }
	}
	live, expired := t0.Add(10*time.Second), t0.Add(2*time.Minute)
	for _, x := range []struct {
		name    string
		r       Record
		c       Claim
		now     time.Time
		verdict Verdict
		check   func(r Record, g Grant) bool
	}{
		{"first", inState(Absent), of(2), live, Acquired, func(r Record, g Grant) bool {
			return r.Watermark.Running == ver(2) && r.Watermark.Applied == "" && g.Hold.Version == ver(2)
		}},
		{"S1-30 older than the applied one", at(Completed, 2, 2), of(1), live, Stale, func(_ Record, g Grant) bool {
			return g.Reason == "version 1 already processed (current: 2)"
		}},
		{"newer", at(Completed, 2, 2), of(3), live, Acquired, func(r Record, g Grant) bool {
			return r.Watermark.Running == ver(3) && r.Watermark.Applied == ver(2) && r.Attempt == 1 && r.Token == drawn
		}},
		{"equal, running", at(Completed, 2, 2), of(2), live, Replay, nil},
		{"equal, other payload", at(Completed, 2, 2), of(2, payload(fpB)), live, Mismatch, nil},
		{"equal to the applied one while a newer one runs", at(InProgress, 3, 2), of(2), live, Replay, nil},
		{"the same with another payload", at(InProgress, 3, 2), of(2, payload(fpB)), live, Mismatch, nil},
		{"older than the applied one while a newer one runs", at(InProgress, 3, 2), of(1), live, Stale, nil},
		{"older behind newer in flight", at(InProgress, 3, 1), of(2), live, Busy, func(_ Record, g Grant) bool { return g.Wait > 0 }},
		{"newer behind older in flight", at(InProgress, 3, 1), of(4), live, Busy, func(_ Record, g Grant) bool { return g.Wait > 0 }},
		{"FM76 older behind newer whose lease expired", at(InProgress, 3, 1), of(2), expired, Busy, func(_ Record, g Grant) bool {
			return g.Wait == lease
		}},
		{"the same when its message never came", at(InProgress, 3, 1), of(2), t0.Add(102 * lease), Late, nil},
		{"older behind newer released in doubt whose message never came", at(Released, 3, 1, doubt), of(2), t0.Add(102 * lease), Late, nil},
		{"the same where it cannot wait", at(InProgress, 3, 1), of(2, skip), expired, Late, nil},
		{"older behind newer in flight where it cannot wait", at(InProgress, 3, 1), of(2, skip), live, Busy, nil},
		{"older behind newer released in doubt where it cannot wait", at(Released, 3, 1, doubt), of(2, skip), live, Late, nil},
		{"newer takes over from older whose lease expired", at(InProgress, 3, 1), of(4), expired, Acquired, func(r Record, g Grant) bool {
			return r.Watermark.Doubt == ver(3) && !g.Unknown && r.Uncertainty == 1 && r.Attempt == 1 && r.Takeovers == 0
		}},
		{"older behind newer released in doubt", at(Released, 3, 1, doubt), of(2), live, Busy, func(_ Record, g Grant) bool { return g.Wait >= lease }},
		{"older behind newer released after a failure", at(Released, 3, 1, func(r *Record) { r.Failures = 1 }), of(2), live, Busy, func(_ Record, g Grant) bool {
			return g.Wait >= lease
		}},
		{"older behind newer released unstarted", at(Released, 3, 1), of(2), live, Acquired, func(r Record, _ Grant) bool {
			return r.Watermark.Running == ver(2) && r.Watermark.Doubt == ""
		}},
		{"older behind newer failed without doubt", at(FailedState, 3, 1), of(2), live, Acquired, nil},
		{"older behind newer failed in doubt", at(FailedState, 3, 1, doubt), of(2), live, Late, func(_ Record, g Grant) bool {
			return strings.Contains(g.Reason, "too late") && strings.Contains(g.Reason, "current: 1")
		}},
		{"older behind newer that is uncertain", at(Uncertain, 3, 1), of(2), live, Late, nil},
		{"newer behind older that is uncertain", at(Uncertain, 3, 1), of(4), live, Acquired, func(r Record, g Grant) bool {
			return r.Watermark.Doubt == ver(3) && !g.Unknown
		}},
		{"what was in doubt comes again", at(FailedState, 4, 1, was(3)), of(3), live, Acquired, func(r Record, g Grant) bool { return g.Unknown }},
		{"older than what was in doubt", at(FailedState, 4, 1, was(3)), of(2), live, Late, nil},
		{"between what was in doubt and a newer one", at(FailedState, 5, 1, was(3)), of(4), live, Acquired, func(r Record, g Grant) bool {
			return !g.Unknown && r.Watermark.Doubt == ver(3)
		}},
		{"older behind newer that was discarded", at(FailedState, 3, 1, disposed), of(2), live, Acquired, func(r Record, _ Grant) bool {
			return r.Watermark.Dropped == ver(3) && !r.Disposed
		}},
		{"what was discarded comes again", at(FailedState, 2, 1, dropped(3)), of(3), live, Failed, func(_ Record, g Grant) bool { return g.Disposed }},
		{"no version where versions are", at(Completed, 2, 2), claim(other), live, Mismatch, nil},
		{"a version where none are", inState(Completed), of(2), live, Mismatch, nil},
		{"another kind of version", at(Completed, 2, 2), claim(other, func(c *Claim) { c.Version = TextVersion("3") }), live, Mismatch, nil},
		{"gap at the beginning", inState(Absent), of(3, after(2)), live, Busy, func(r Record, g Grant) bool { return g.Gap && r.State == Absent }},
		{"gap", at(Completed, 1, 1), of(3, after(2)), live, Busy, func(_ Record, g Grant) bool { return g.Gap && g.Wait == live.Sub(at(Completed, 1, 1).UpdatedAt) }},
		{"gap while the predecessor runs", at(InProgress, 2, 1), of(3, after(2)), live, Busy, func(_ Record, g Grant) bool { return g.Gap }},
		{"older with a gap behind newer in flight", at(InProgress, 4, 1), of(3, after(2)), live, Busy, func(_ Record, g Grant) bool { return !g.Gap && g.Wait > 0 }},
		{"no gap", at(Completed, 2, 2), of(3, after(2)), live, Acquired, func(r Record, _ Grant) bool { return !r.Watermark.Gap }},
		{"gap passed over", at(Completed, 1, 1), of(3, after(2), skip), live, Acquired, func(r Record, _ Grant) bool { return r.Watermark.Gap }},
		{"nothing passed over", at(Completed, 2, 2), of(3, after(2), skip), live, Acquired, func(r Record, _ Grant) bool { return !r.Watermark.Gap }},
		{"late arrival inside a gap", at(Completed, 5, 5, hole(1, 5)), of(3), live, Late, nil},
		{"at the gap's beginning", at(Completed, 5, 5, hole(2, 5)), of(2), live, Stale, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			before := x.r
			r, g, changed := DecideClaim(x.r, x.c, x.now, drawn)
			if g.Verdict != x.verdict || changed != (x.verdict == Acquired) || x.check != nil && !x.check(r, g) {
				t.Fatalf("%v, changed %v, grant %+v, watermark %+v", g.Verdict, changed, g, r.Watermark)
			}
			if !sameWatermark(before.Watermark, x.r.Watermark) {
				t.Error("the record passed in was changed")
			}
		})
	}
}

// TestVersionsLive follows one entity through gaps, failures and completions.
func TestVersionsLive(t *testing.T) {
	var r Record
	now := t0
	run := func(n, after int64, skip bool) Grant {
		c := claim(Nonce{byte(n)}, func(c *Claim) { c.Version, c.NoWait = ver(n), skip })
		if after > 0 {
			c.After = ver(after)
		}
		var g Grant
		r, g, _ = DecideClaim(r, c, now, r.Token+1)
		return g
	}
	end := func(g Grant, f Final) {
		var o Outcome
		if r, o, _ = DecideFinish(r, Finish{Hold: g.Hold, Final: f, Ran: NotApplied, Keep: time.Hour}, now); o != Applied {
			t.Fatalf("%v returns %v", f, o)
		}
	}
	end(run(1, 0, false), Complete)
	end(run(5, 4, true), Complete)
	if run(3, 2, false).Verdict != Late || run(1, 0, false).Verdict != Stale {
		t.Fatalf("a late arrival is forgotten: %+v", r.Watermark)
	}
	for n := int64(7); n < 7+2*MaxSkipped+10; n += 2 {
		end(run(n, n-1, true), Complete)
	}
	if len(r.Watermark.Skipped) != MaxSkipped || run(6, 5, false).Verdict != Late || run(3, 2, false).Verdict != Late {
		t.Fatalf("a bounded list forgets what was passed over: %+v", r.Watermark)
	}
	// A failed run that passed over a gap leaves nothing behind: the missing one may still come.
	g := run(100, 99, true)
	end(g, Fail)
	if x := run(99, 98, true); x.Verdict != Acquired || len(r.Watermark.Skipped) != MaxSkipped {
		t.Fatalf("%+v", r.Watermark)
	}
}
