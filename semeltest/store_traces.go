package semeltest

import (
	"testing"

	"github.com/semel-dev/semel/driver"
)

// testTraces ends attempts with the trace of their run in each way that a store has: a later claim gets the trace, and the
// reason without it.
func testTraces(t testing.TB, s StoreSetup) {
	const trace = driver.Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	traced := func(g driver.Grant, final driver.Final, reason string) driver.Finish {
		return driver.Finish{Hold: g.Hold, Final: final, Ran: driver.NotApplied, Keep: keep, Reason: driver.AppendTrace(reason, trace)}
	}
	check := func(what string, k driver.Key, want driver.Verdict, reason string) {
		t.Helper()
		g := claimKeys(t, s.Store, k)[0]
		if g.Verdict != want || g.Trace != trace || g.Reason != reason {
			t.Errorf("%s: the claim after it returned %v, reason %q and trace %q, wanted %v, %q and %q",
				what, g.Verdict, g.Reason, g.Trace, want, reason, trace)
		}
	}
	ks := keys(7, "traced-%d")
	g := mustClaim(t, s.Store, ks[:6]...)
	mustFinish(t, s.Store, driver.Applied, traced(g[0], driver.Complete, ""))
	mustFinish(t, s.Store, driver.Applied, traced(g[1], driver.Complete, ""), traced(g[2], driver.Complete, "dropped: too old"),
		traced(g[3], driver.Fail, "no such card"), traced(g[4], driver.Park, "no response"))
	check("a completion", ks[0], driver.Replay, "")
	check("one of several completions", ks[1], driver.Replay, "")
	check("a completion with a reason", ks[2], driver.Replay, "dropped: too old")
	check("a failure", ks[3], driver.Failed, "no such card")
	check("a parked attempt", ks[4], driver.Parked, "no response")
	if c, ok := driver.As[driver.Committer](s.Store); ok {
		out, err := c.Commit(t.Context(), driver.Work{Finish: traced(g[5], driver.Complete, "")})
		if err != nil || out[0] != driver.Applied {
			t.Fatalf("commit returned %v, %v", out, err)
		}
		check("a commit", ks[5], driver.Replay, "")
	}
	if tr, ok := transactor(t, s); ok {
		tx, _, gs := begin(t, tr, ks[6])
		if err := tx.Commit(t.Context(), driver.Work{Finish: traced(gs[0], driver.Complete, "")}); err != nil {
			t.Fatalf("commit: %v", err)
		}
		check("a transaction", ks[6], driver.Replay, "")
	}
}
