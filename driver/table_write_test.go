package driver

import (
	"reflect"
	"testing"
	"time"
)

var states = []State{Absent, InProgress, Released, Completed, FailedState, Uncertain}

// strangers are holds that own nothing of a record with token 7 and nonce mine.
var strangers = map[string]Hold{
	"older token":               hold(6, mine),
	"newer token":               hold(8, mine),
	"FM85 token without nonce":  hold(7, other),
	"neither":                   hold(6, other),
	"another generation":        {Key: key, Generation: 2, Token: 7, Nonce: mine},
	"zero":                      {Key: key},
	"token and the zero nonce":  {Key: key, Generation: 1, Token: 7},
	"nonce with the zero token": {Key: key, Generation: 1, Nonce: mine},
}

// TestStrangersChangeNothing: every write of whoever does not own the record is Lost, in every state (law 2, I7).
func TestStrangersChangeNothing(t *testing.T) {
	for who, h := range strangers {
		for _, s := range states {
			if r, o := DecideExtend(inState(s), h, lease, t0); o != Lost || !reflect.DeepEqual(r, inState(s)) {
				t.Errorf("%v: extend by %s returned %v", s, who, o)
			}
			for f := Complete; f <= Park; f++ {
				r, o, changed := DecideFinish(inState(s), Finish{Hold: h, Final: f, Ran: MaybeApplied}, t0)
				if o != Lost || changed || !reflect.DeepEqual(r, inState(s)) {
					t.Errorf("%v: %v by %s returned %v, changed %v", s, f, who, o, changed)
				}
			}
		}
	}
}

func TestDecideExtend(t *testing.T) {
	want := map[State]Outcome{Absent: Lost, InProgress: Applied, Released: Lost, Completed: Settled, FailedState: Lost, Uncertain: Lost}
	now := t0.Add(time.Hour) // long after the lease, but nobody took it over
	for s, w := range want {
		r, o := DecideExtend(inState(s), hold(7, mine), 2*lease, now)
		if o != w {
			t.Errorf("%v: extend returned %v, wanted %v", s, o, w)
		}
		if s == InProgress && (!r.LeaseUntil.Equal(now.Add(2*lease)) || r.Beat != 1 || r.Lease != 2*lease || r.Token != 7) {
			t.Errorf("extended record: %+v", r)
		}
		if s != InProgress && !reflect.DeepEqual(r, inState(s)) {
			t.Errorf("%v: an extension changed the record", s)
		}
	}
}

// TestDecideFinish is the table of the owner's writes: state × end → outcome and state.
func TestDecideFinish(t *testing.T) {
	type cell struct {
		o       Outcome
		after   State
		changed bool
	}
	lost := func(s State) cell { return cell{Lost, s, false} }
	repeated := func(s State) cell { return cell{Applied, s, false} }
	want := map[State]map[Final]cell{
		Absent: {Complete: lost(Absent), Fail: lost(Absent), Release: lost(Absent), Park: lost(Absent)},
		InProgress: {
			Complete: {Applied, Completed, true}, Fail: {Applied, FailedState, true},
			Release: {Applied, Released, true}, Park: {Applied, Uncertain, true},
		},
		Released:    {Complete: lost(Released), Fail: lost(Released), Release: repeated(Released), Park: lost(Released)},
		Completed:   {Complete: repeated(Completed), Fail: lost(Completed), Release: lost(Completed), Park: lost(Completed)},
		FailedState: {Complete: lost(FailedState), Fail: repeated(FailedState), Release: lost(FailedState), Park: lost(FailedState)},
		Uncertain:   {Complete: {Recovered, Completed, true}, Fail: lost(Uncertain), Release: lost(Uncertain), Park: repeated(Uncertain)},
	}
	for s, finals := range want {
		for f, w := range finals {
			r, o, changed := DecideFinish(inState(s), Finish{Hold: hold(7, mine), Final: f}, t0.Add(time.Hour))
			if got := (cell{o, r.State, changed}); got != w {
				t.Errorf("%v: %v returned %+v, wanted %+v", s, f, got, w)
			}
			if !changed && !reflect.DeepEqual(r, inState(s)) {
				t.Errorf("%v: %v changed the record to %+v", s, f, r)
			}
			if changed {
				again, o, changed := DecideFinish(r, Finish{Hold: hold(7, mine), Final: f}, t0.Add(2*time.Hour))
				if o != Applied || changed || !reflect.DeepEqual(again, r) {
					t.Errorf("%v: %v repeated returned %v, changed %v", s, f, o, changed)
				}
			}
		}
	}
}

// TestFinishWithoutFinal: a Finish that does not say how it ends writes nothing.
func TestFinishWithoutFinal(t *testing.T) {
	for _, f := range []Final{0, Park + 1, 255} {
		for _, s := range states {
			r, o, changed := DecideFinish(inState(s), Finish{Hold: hold(7, mine), Final: f}, t0)
			if o != Lost || changed || !reflect.DeepEqual(r, inState(s)) {
				t.Errorf("%v: final %d returned %v and left %v", s, f, o, r.State)
			}
		}
	}
}

func TestFinishFields(t *testing.T) {
	now, keep := t0.Add(10*time.Second), 24*time.Hour
	finish := func(f Finish, tweak ...func(*Record)) Record {
		f.Hold, f.Keep, f.Reason = hold(7, mine), keep, "reason"
		r, o, _ := DecideFinish(inState(InProgress, tweak...), f, now)
		if o != Applied || !r.UpdatedAt.Equal(now) || r.Reason != "reason" || r.Token != 7 || r.Nonce != mine {
			t.Errorf("%v returned %v: %+v", f.Final, o, r)
		}
		return r
	}
	doubt := func(r *Record) { r.Unknown, r.Uncertainty, r.Takeovers, r.Attempt = true, 1, 2, 3 }

	r := finish(Finish{Final: Complete, Result: []byte("x")}, doubt)
	if string(r.Result) != "x" || !r.CompletedAt.Equal(now) || r.Unknown || r.Uncertainty != 1 || !r.RetainUntil.Equal(now.Add(keep)) {
		t.Errorf("completed: %+v", r)
	}
	r = finish(Finish{Final: Fail}, doubt)
	if r.Failures != 1 || !r.Unknown || !r.RetainUntil.Equal(now.Add(keep)) || !r.CompletedAt.IsZero() {
		t.Errorf("failed: %+v", r)
	}
	r = finish(Finish{Final: Park})
	if !r.Unknown || r.Uncertainty != 1 || !r.RetainUntil.IsZero() {
		t.Errorf("parked: %+v", r)
	}
	for _, x := range []struct {
		name                                    string
		ran                                     Ran
		refund                                  bool
		attempt, failures, takeovers, uncertain int
	}{
		{"unstarted", Unstarted, false, 2, 0, 2, 1},
		{"not applied", NotApplied, false, 3, 1, 0, 1},
		{"maybe applied", MaybeApplied, false, 3, 1, 0, 2},
		{"not applied, refunded", NotApplied, true, 2, 0, 0, 1},
		{"maybe applied, refunded", MaybeApplied, true, 2, 0, 0, 2},
	} {
		r = finish(Finish{Final: Release, Ran: x.ran, Refund: x.refund, RetryAfter: time.Hour}, doubt)
		if r.Attempt != x.attempt || r.Failures != x.failures || r.Takeovers != x.takeovers || r.Uncertainty != x.uncertain {
			t.Errorf("released %s: attempt %d, failures %d, takeovers %d, uncertainty %d", x.name, r.Attempt, r.Failures, r.Takeovers, r.Uncertainty)
		}
		if !r.Spent || !r.Unknown || !r.RetryAt.Equal(now.Add(time.Hour)) || !r.RetainUntil.Equal(now.Add(time.Hour+keep)) {
			t.Errorf("released %s: %+v", x.name, r)
		}
	}
	for ran, want := range map[Ran]int{Unstarted: 0, NotApplied: 1, MaybeApplied: 1} {
		// A first run that was deferred leaves its trace: what was begun must not look as if it had never been.
		r = finish(Finish{Final: Release, Ran: ran, Refund: true}, func(r *Record) { r.Attempt = 1 })
		if r.Attempt != want {
			t.Errorf("refunded first run, ran %d: attempt %d, want %d", ran, r.Attempt, want)
		}
	}
	if r = finish(Finish{Final: Release, Ran: NotApplied}); r.Unknown || r.Uncertainty != 0 {
		t.Errorf("a release that is certain of no effect left a doubt: %+v", r)
	}
}

func operate(kind OperationKind, tweak ...func(*Operation)) Operation {
	op := Operation{Kind: kind, Key: key, Token: 7, Generation: 1, As: Completed, Keep: 24 * time.Hour, Reason: "operator", Result: []byte("by hand")}
	for _, f := range tweak {
		f(&op)
	}
	return op
}

// TestDecideOperate is the table of the operator's operations: state × operation → state. Absent means Lost.
func TestDecideOperate(t *testing.T) {
	as := func(s State) func(*Operation) { return func(o *Operation) { o.As = s } }
	rerun := func(o *Operation) { o.NewGeneration = true }
	operations := []struct {
		name string
		op   Operation
		want map[State]State
	}{
		{"resolve as completed", operate(Resolve, as(Completed)), map[State]State{Uncertain: Completed, Completed: Completed}},
		{"resolve as failed", operate(Resolve, as(FailedState)), map[State]State{Uncertain: FailedState, FailedState: FailedState}},
		{"resolve as released", operate(Resolve, as(Released)), map[State]State{Uncertain: Released, Released: Released}},
		{"resolve as in progress", operate(Resolve, as(InProgress)), nil},
		{"resolve as uncertain", operate(Resolve, as(Uncertain)), nil},
		{"resolve as nothing", operate(Resolve, as(Absent)), nil},
		{"redrive", operate(Redrive), map[State]State{FailedState: Released}},
		{"rerun", operate(Redrive, rerun), map[State]State{FailedState: Released, Completed: Released}},
		{"discard", operate(Discard), map[State]State{FailedState: FailedState}},
		{"force release", operate(ForceRelease), map[State]State{InProgress: Released}},
		{"reopen", operate(Reopen), map[State]State{FailedState: Released, Completed: Released, Uncertain: Released}},
		{"no operation", operate(0), nil},
	}
	for _, a := range operations {
		for _, s := range states {
			r, o, changed := DecideOperate(inState(s), a.op, t0.Add(time.Hour), drawn)
			want, ok := a.want[s]
			if ok && (o != Applied || r.State != want) || !ok && (o != Lost || changed) {
				t.Errorf("%v: %s returned %v and left %v", s, a.name, o, r.State)
			}
			if !changed && !reflect.DeepEqual(r, inState(s)) {
				t.Errorf("%v: %s changed the record without changed", s, a.name)
			}
			if changed { // each can be repeated
				again, o, changed := DecideOperate(r, a.op, t0.Add(2*time.Hour), drawn+1)
				if o != Applied || changed || !reflect.DeepEqual(again, r) {
					t.Errorf("%v: %s repeated returned %v, changed %v", s, a.name, o, changed)
				}
			}
			stale := a.op
			stale.Token = 6
			if _, o, changed := DecideOperate(inState(s), stale, t0, drawn); a.op.Kind != ForceRelease && (o != Lost || changed) {
				t.Errorf("%v: %s with another token returned %v", s, a.name, o)
			}
			bare := a.op
			bare.Token = 0
			if _, o, _ := DecideOperate(inState(s), bare, t0, drawn); ok != (o == Applied) {
				t.Errorf("%v: %s without a token returned %v", s, a.name, o)
			}
		}
	}
}

func TestOperateFields(t *testing.T) {
	now := t0.Add(time.Hour)
	do := func(r Record, op Operation) Record {
		after, o, changed := DecideOperate(r, op, now, drawn)
		if o != Applied || !changed || !after.UpdatedAt.Equal(now) {
			t.Errorf("operation %d on %v returned %v, changed %v", op.Kind, r.State, o, changed)
		}
		return after
	}
	if r := do(inState(Uncertain), operate(Resolve)); string(r.Result) != "by hand" || r.Unknown || !r.CompletedAt.Equal(now) {
		t.Errorf("resolved to completed: %+v", r)
	}
	r := do(inState(Uncertain), operate(Resolve, func(o *Operation) { o.As = FailedState }))
	if !r.Disposed {
		t.Errorf("resolved to failed, but a dead letter is still to be looked at: %+v", r)
	}
	r = do(inState(Uncertain), operate(Resolve, func(o *Operation) { o.As = Released }))
	if r.Unknown || !r.Spent || r.Uncertainty != 1 || !r.RetryAt.Equal(now) || r.Generation != 1 {
		t.Errorf("resolved to released: %+v", r)
	}
	unsure := func(r *Record) { r.Unknown, r.Uncertainty, r.Attempt, r.Takeovers = true, 2, 5, 1 }
	r = do(inState(FailedState, unsure), operate(Redrive))
	if r.Generation != 2 || r.Epoch != 0 || r.Attempt != 0 || r.Failures != 0 || r.Takeovers != 0 || !r.Unknown || r.Uncertainty != 2 ||
		r.Token != 7 || !r.RetainUntil.Equal(now.Add(24*time.Hour)) || r.Fingerprint != fpA || !r.Spent || r.Reason != "operator" {
		t.Errorf("redriven: %+v", r)
	}
	disposed := func(r *Record) { r.Disposed = true }
	r = do(inState(FailedState, unsure, disposed), operate(Redrive, func(o *Operation) { o.Verified, o.Fingerprint = true, fpB }))
	if r.Unknown || r.Disposed || r.Fingerprint != fpB {
		t.Errorf("FM81 redriven with an edited dead letter, verified: %+v", r)
	}
	r = do(inState(Completed, unsure), operate(Redrive, func(o *Operation) { o.NewGeneration = true }))
	if r.Generation != 2 || r.Epoch != 1 || r.Unknown || r.Result != nil || !r.CompletedAt.IsZero() {
		t.Errorf("rerun: %+v", r)
	}
	r = do(inState(InProgress), operate(ForceRelease, func(o *Operation) { o.Token = 0 }))
	if r.Reason != "operator" || !r.RetainUntil.Equal(now.Add(24*time.Hour)) || r.Token != drawn || r.Nonce == mine || !r.Unknown || r.Uncertainty != 1 || !r.RetryAt.Equal(now) {
		t.Errorf("force-released: %+v", r)
	}
	if _, o, _ := DecideFinish(r, Finish{Hold: hold(7, mine), Final: Complete}, now); o != Lost {
		t.Errorf("the previous holder's completion returned %v", o)
	}
	r = do(inState(Completed, unsure), operate(Reopen))
	if r.Generation != 2 || r.Epoch != 1 || r.Unknown || r.Result != nil || r.Attempt != 0 || !r.RetryAt.Equal(now) {
		t.Errorf("reopened, completed: %+v", r)
	}
	for policy, unknown := range map[Takeover]bool{Resume: true, Probe: true, Once: false} {
		r = do(inState(Uncertain, unsure, func(r *Record) { r.Takeover = policy }), operate(Reopen))
		if r.Generation != 2 || r.Epoch != 0 || r.Unknown != unknown || r.Uncertainty != 2 {
			t.Errorf("reopened, parked, policy %v: %+v", policy, r)
		}
		if _, o, _ := DecideFinish(r, Finish{Hold: hold(7, mine), Final: Complete}, now); o != Lost {
			t.Errorf("a completion from before the reopening returned %v", o)
		}
		if _, g, _ := DecideClaim(r, Claim{Key: key, Nonce: Nonce{9}, Fingerprint: fpA, Lease: time.Minute}, now, drawn); g.Verdict != Acquired ||
			g.Attempt != 1 || g.Unknown != unknown {
			t.Errorf("the next delivery of a reopened key, policy %v: %+v", policy, g)
		}
	}
	r = do(inState(FailedState, unsure, disposed), operate(Reopen))
	if r.Generation != 2 || r.Epoch != 0 || !r.Unknown || r.Disposed {
		t.Errorf("reopened, failed: %+v", r)
	}
	// A redrive that names no generation is no repetition of one: nothing was redriven.
	r, o, changed := DecideOperate(inState(Released), operate(Redrive, func(o *Operation) { o.Token, o.Generation = 0, 0 }), now, drawn)
	if o != Lost || changed {
		t.Errorf("redrive of a record that waits for its retry returned %v, changed %v: %+v", o, changed, r)
	}
}

// A last run that may have had its effect leaves its doubt: a redrive under the policy Probe has to ask first.
func TestFailRemembersDoubt(t *testing.T) {
	now := time.Unix(1000, 0)
	c := Claim{Key: Key{Consumer: "c", Raw: "k"}, Nonce: Nonce{1}, Lease: time.Minute, Takeover: Probe}
	r, g, _ := DecideClaim(Record{}, c, now, 1)
	for ran, doubt := range map[Ran]bool{Unstarted: false, NotApplied: false, MaybeApplied: true} {
		failed, o, _ := DecideFinish(r, Finish{Hold: g.Hold, Final: Fail, Ran: ran, Keep: time.Hour}, now)
		if o != Applied || failed.Unknown != doubt || (failed.Uncertainty == 1) != doubt {
			t.Errorf("ran %d: %s, unknown %v, %d uncertainty events", ran, o, failed.Unknown, failed.Uncertainty)
		}
		again, o, _ := DecideOperate(failed, Operation{Kind: Redrive, Key: c.Key, Token: g.Hold.Token, Generation: 1}, now, 2)
		if o != Applied || again.Unknown != doubt {
			t.Errorf("ran %d: the redriven record has unknown %v", ran, again.Unknown)
		}
	}
}
