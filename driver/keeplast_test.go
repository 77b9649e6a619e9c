package driver

import (
	"strings"
	"testing"
	"time"
)

// TestDecideKeepLast: what is noted, what that supersedes, and when it is forgotten.
func TestDecideKeepLast(t *testing.T) {
	keep := func(n int64, tweak ...func(*Claim)) Claim {
		set := func(c *Claim) { c.Version, c.KeepLast = ver(n), true }
		return claim(other, append([]func(*Claim){set}, tweak...)...)
	}
	plain := func(c *Claim) { c.KeepLast = false }
	only := func(c *Claim) { c.NoteOnly = true }
	noted := func(n int64) func(*Record) { return func(r *Record) { r.Watermark.Newest = ver(n) } }
	doubt := func(r *Record) { r.Unknown, r.Uncertainty = true, 1 }
	dropped := func(n int64) func(*Record) { return func(r *Record) { r.Watermark.Dropped = ver(n) } }
	live, expired := t0.Add(10*time.Second), t0.Add(2*time.Minute)
	for _, x := range []struct {
		name    string
		r       Record
		c       Claim
		now     time.Time
		verdict Verdict
		changed bool
		newest  int64 // afterwards; 0 = none
	}{
		{"newer behind older in flight is noted", at(InProgress, 3, 1), keep(4), live, Busy, true, 4},
		{"the same without KeepLast", at(InProgress, 3, 1), keep(4, plain), live, Busy, false, 0},
		{"noted again", at(InProgress, 3, 1, noted(4)), keep(4), live, Busy, false, 4},
		{"a newer one is noted", at(InProgress, 3, 1, noted(4)), keep(5), live, Busy, true, 5},
		{"superseded while the run goes on", at(InProgress, 3, 1, noted(5)), keep(4), live, Stale, false, 5},
		{"superseded when the run is over", at(Completed, 3, 3, noted(5)), keep(4), live, Stale, false, 5},
		{"superseded when the run failed", at(FailedState, 3, 1, noted(5)), keep(4), live, Stale, false, 5},
		{"superseded when the run is in doubt", at(Released, 3, 1, noted(5), doubt), keep(2), live, Stale, false, 5},
		{"superseded when the run went without a word", at(InProgress, 3, 1, noted(5)), keep(4), expired, Stale, false, 5},
		{"whoever keeps all is not superseded", at(Completed, 3, 3, noted(5)), keep(4, plain), live, Acquired, true, 5},
		{"the newest runs", at(Completed, 3, 3, noted(5)), keep(5), live, Acquired, true, 0},
		{"a newer one than noted runs", at(Completed, 3, 3, noted(5)), keep(6), live, Acquired, true, 0},
		{"the newest takes over", at(InProgress, 3, 1, noted(5)), keep(5), expired, Acquired, true, 0},
		{"superseded when it would be retried", at(Released, 3, 1, noted(5)), keep(3), live, Stale, false, 5},
		{"a retry that nothing supersedes", at(Released, 3, 1), keep(3), live, Acquired, true, 0},
		{"a retry of who keeps all", at(Released, 3, 1, noted(5)), keep(3, plain), live, Acquired, true, 5},
		{"the running one is taken over", at(InProgress, 3, 1, noted(5)), keep(3), expired, Acquired, true, 5},
		{"what ran is no longer waited for", at(FailedState, 5, 3), keep(4), live, Acquired, true, 0},
		{"the applied one is a duplicate", at(Completed, 3, 3, noted(5)), keep(3), live, Replay, false, 5},
		{"older than the running one", at(InProgress, 3, 1), keep(2), live, Busy, false, 0},
		{"discarded by a person", at(InProgress, 3, 1, dropped(4)), keep(4), live, Busy, false, 0},
		{"note only", at(InProgress, 3, 1), keep(4, only), live, Busy, true, 4},
		{"note only, superseded", at(InProgress, 3, 1, noted(5)), keep(4, only), live, Stale, false, 5},
		{"note only never acquires", at(Completed, 3, 3), keep(4, only), live, Busy, false, 0},
		{"note only never takes over", at(InProgress, 3, 1), keep(4, only), expired, Busy, false, 0},
		{"note only never parks", at(InProgress, 3, 1, func(r *Record) { r.Takeover = Once }), keep(3, only), expired, Busy, false, 0},
		{"note only makes no record", inState(Absent), keep(4, only), live, Busy, false, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, g, changed := DecideClaim(x.r, x.c, x.now, drawn)
			want := Version("")
			if x.newest > 0 {
				want = ver(x.newest)
			}
			if g.Verdict != x.verdict || changed != x.changed || r.Watermark.Newest != want ||
				g.Noted != (g.Verdict == Busy && x.c.KeepLast && want == x.c.Version) {
				t.Fatalf("%v, changed %v, grant %+v, watermark %+v", g.Verdict, changed, g, r.Watermark)
			}
			if strings.Contains(x.name, "superseded w") && !strings.Contains(g.Reason, "superseded by version 5") {
				t.Errorf("the reason is %q", g.Reason)
			}
			if x.c.NoteOnly && changed && (r.State != x.r.State || r.Token != x.r.Token || r.Attempt != x.r.Attempt) {
				t.Errorf("more than the note was changed: %+v", r)
			}
		})
	}
}

// TestWatermarkWithoutNewestIsWrittenAsBefore: programs that know nothing of Newest go on reading all records but those
// that have one, and refuse these.
func TestWatermarkWithoutNewestIsWrittenAsBefore(t *testing.T) {
	w := Watermark{Running: ver(2), Applied: ver(1)}
	if raw := AppendWatermark(nil, &w); raw[0] != 1 {
		t.Errorf("its form is %d", raw[0])
	}
	w.Newest = ver(3)
	if raw := AppendWatermark(nil, &w); raw[0] != 2 {
		t.Errorf("the form with Newest is %d", raw[0])
	}
}
