package keymigration

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

var verdicts = []driver.Verdict{
	driver.Acquired, driver.Busy, driver.Replay, driver.Failed, driver.Parked, driver.Mismatch, driver.Stale, driver.Late, 0,
}

// table is every pair of grants: the verdict, and what is written. A row is the previous key's grant, a column the new
// key's, in the order of verdicts. A Acquired, B Busy, R Replay, F Failed, U Parked, M Mismatch, S Stale, L Late, ? unknown.
// p and n are the previous and the new key: + completed with the other's result, - returned as one that did not run, ~
// returned as one whose run had no effect, ! returned with the doubt.
const table = `
	A    Bp-  Rp+  Fp-  Up-  Mp-  Sp-  Lp-  ?
	Bn-  B    B    B    B    B    B    B    ?
	Rn+  B    R    F    U    R    R    R    ?
	Fn~  F    F    F    F    F    F    F    ?
	Un!  U    U    U    U    U    U    U    ?
	Mn~  M    M    M    M    M    M    M    ?
	Sn~  S    S    S    S    S    S    S    ?
	Ln-  L    L    L    L    L    L    L    ?
	?    ?    ?    ?    ?    ?    ?    ?    ?
`

func grantOf(v driver.Verdict, who string, token uint64) driver.Grant {
	g := driver.Grant{Verdict: v, Hold: driver.Hold{Key: driver.Key{Raw: who}, Token: token, Nonce: driver.Nonce{1}}}
	switch v {
	case 0:
		g.Err = errors.New("no response")
	case driver.Replay:
		g.Result = []byte(who)
	}
	return g
}

func cellOf(g driver.Grant, end *driver.Finish) string {
	if g.Err != nil {
		if end != nil {
			return "? and writes"
		}
		return "?"
	}
	s := string("_ABRFUMSL"[g.Verdict])
	if end == nil {
		return s
	}
	s += end.Hold.Key.Raw
	switch {
	case end.Final == driver.Complete && string(end.Result) == map[string]string{"p": "n", "n": "p"}[end.Hold.Key.Raw]:
		return s + "+"
	case end.Final == driver.Release && end.Ran == driver.Unstarted && !end.Refund:
		return s + "-"
	case end.Final == driver.Release && end.Ran == driver.NotApplied && end.Refund:
		return s + "~"
	case end.Final == driver.Release && end.Ran == driver.MaybeApplied && end.Refund:
		return s + "!"
	}
	return s + " " + end.Final.String()
}

// TestPairs is the table of all pairs of grants.
func TestPairs(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != len(verdicts) {
		t.Fatalf("%d rows for %d verdicts", len(lines), len(verdicts))
	}
	for i, pv := range verdicts {
		cells := strings.Fields(lines[i])
		for j, nv := range verdicts {
			g, end := decide(grantOf(pv, "p", 7), grantOf(nv, "n", 9), time.Hour)
			if got := cellOf(g, end); got != cells[j] {
				t.Errorf("previous key %v, new key %v: %s, the table says %s", pv, nv, got, cells[j])
			}
			if end != nil && (end.Keep != time.Hour || end.Hold.Token != map[string]uint64{"p": 7, "n": 9}[end.Hold.Key.Raw]) {
				t.Errorf("previous key %v, new key %v: writes %+v", pv, nv, end)
			}
			if held := g.Hold.NewKey != nil; held != (pv == driver.Acquired && nv == driver.Acquired) {
				t.Errorf("previous key %v, new key %v: the grant has a new key: %v", pv, nv, held)
			}
		}
	}
}

// TestBoth: the grant of both records has what either knows.
func TestBoth(t *testing.T) {
	p := driver.Grant{Verdict: driver.Acquired, Hold: driver.Hold{Key: driver.Key{Raw: "p"}, Token: 7}, Attempt: 2, Failures: 1}
	n := driver.Grant{Verdict: driver.Acquired, Hold: driver.Hold{Key: driver.Key{Raw: "n"}, Token: 9}, Failures: 3, Takeovers: 2,
		Uncertainty: 1, Unknown: true, Redelivery: true}
	g := both(p, n)
	if g.Hold.Token != 7 || g.Hold.NewKey == nil || g.Hold.NewKey.Token != 9 || g.Attempt != 2 {
		t.Errorf("%+v: wanted the previous key's attempt with the new key's hold", g)
	}
	if g.Failures != 3 || g.Takeovers != 2 || g.Uncertainty != 1 || !g.Redelivery {
		t.Errorf("%+v: what the new key alone counts is forgotten", g)
	}
	for _, c := range []struct {
		previous, newKey driver.Takeover
		unknown          bool
	}{
		{driver.Resume, driver.Resume, true},
		{driver.Once, driver.Resume, false}, // no worker ran it by the new key alone: the previous key knows of every run
		{driver.Once, driver.Once, true},
		{driver.Probe, driver.Once, true},
		{driver.Resume, driver.Probe, true},
	} {
		p.Takeover, n.Takeover = c.previous, c.newKey
		if g := both(p, n); g.Unknown != c.unknown || g.Takeover != max(c.previous, c.newKey) {
			t.Errorf("doubt of a new key under %v, previous key under %v: unknown %v, policy %v", c.newKey, c.previous, g.Unknown, g.Takeover)
		}
	}
	p.Unknown, n.Unknown = true, false
	if !both(p, n).Unknown {
		t.Error("the previous key's doubt is forgotten")
	}
}

// TestApart: the end of the new key for each end of an attempt.
func TestApart(t *testing.T) {
	n := driver.Hold{Key: driver.Key{Raw: "n"}, Token: 9}
	for _, c := range []struct {
		name string
		end  driver.Finish
		want driver.Finish // of the new key
	}{
		{"completed", driver.Finish{Final: driver.Complete, Result: []byte("r")}, driver.Finish{Final: driver.Complete, Result: []byte("r")}},
		{"to be retried", driver.Finish{Final: driver.Release, Ran: driver.MaybeApplied, RetryAfter: time.Minute, Reason: "x"},
			driver.Finish{Final: driver.Release, Ran: driver.MaybeApplied, RetryAfter: time.Minute, Refund: true, Reason: "x"}},
		{"failed in doubt", driver.Finish{Final: driver.Fail, Ran: driver.MaybeApplied},
			driver.Finish{Final: driver.Release, Ran: driver.MaybeApplied, Refund: true}},
		{"failed for sure", driver.Finish{Final: driver.Fail, Ran: driver.NotApplied},
			driver.Finish{Final: driver.Release, Ran: driver.NotApplied, Refund: true}},
		{"failed unstarted", driver.Finish{Final: driver.Fail}, driver.Finish{Final: driver.Release, Ran: driver.NotApplied, Refund: true}},
		{"compensated", driver.Finish{Final: driver.Fail, Ran: driver.MaybeApplied, Compensated: true},
			driver.Finish{Final: driver.Release, Ran: driver.NotApplied, Refund: true}},
		{"parked", driver.Finish{Final: driver.Park}, driver.Finish{Final: driver.Release, Ran: driver.MaybeApplied, Refund: true}},
	} {
		f := c.end
		f.Keep, f.Hold = time.Hour, driver.Hold{Key: driver.Key{Raw: "p"}, Token: 7}
		alone := f
		f.Hold.NewKey = &n
		p, got := apart(f)
		c.want.Keep, c.want.Hold = time.Hour, n
		if !same(p, alone) || got == nil || !same(*got, c.want) {
			t.Errorf("%s: previous key %+v, new key %+v, wanted %+v", c.name, p, got, c.want)
		}
		if p, got := apart(alone); got != nil || !same(p, alone) {
			t.Errorf("%s without a new key: %+v, %+v", c.name, p, got)
		}
	}
}

func same(a, b driver.Finish) bool {
	r := string(a.Result) == string(b.Result)
	return r && a.Hold == b.Hold && a.Final == b.Final && a.Ran == b.Ran && a.Refund == b.Refund && a.Keep == b.Keep &&
		a.RetryAfter == b.RetryAfter && a.Reason == b.Reason && a.Compensated == b.Compensated
}

// TestPlan: the keys of one call are distinct. A claim that shares a key with another waits, whichever of its two it is.
func TestPlan(t *testing.T) {
	k := func(raw string) driver.Key { return driver.Key{Consumer: "c", Raw: raw} }
	claims := []driver.Claim{
		{Key: k("a"), NewKey: k("n"), Takeover: driver.Once},
		{Key: k("b"), NewKey: k("n")}, // the same new key
		{Key: k("n")},                 // known by the new key alone
		{Key: k("c"), NewKey: k("a")}, // its new key is the other's previous one
		{Key: k("d")},
		{Key: k("e"), NewKey: k("o")},
	}
	p := planOf(claims)
	var asked []string
	for _, c := range p.asks {
		asked = append(asked, c.Key.Raw+":"+c.Takeover.String())
		if c.NewKey != (driver.Key{}) {
			t.Errorf("the store would see the new key of %v", c.Key)
		}
	}
	if got := strings.Join(asked, " "); got != "a:once d:resume e:resume n:resume o:resume" {
		t.Errorf("asked for %s", got)
	}
	grants := make([]driver.Grant, len(p.asks))
	for i := range grants {
		grants[i].Verdict = driver.Acquired
	}
	for i, want := range []driver.Verdict{
		driver.Acquired, driver.Busy, driver.Busy, driver.Busy, driver.Acquired, driver.Acquired,
	} {
		g, end := p.grant(i, &claims[i], grants, time.Hour)
		if g.Verdict != want || end != nil || want == driver.Busy && (g.Wait <= 0 || g.Hold.Key != claims[i].Key) {
			t.Errorf("claim %d: %+v, wanted %v", i, g, want)
		}
	}
}
