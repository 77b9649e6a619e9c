package driver

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const longTerm = 24 * time.Hour

// expired is an EXPIRED record that ended in a state at t0.
func expired(ended State, tweak ...func(*Record)) Record {
	r := Record{
		Key: key, State: Expired, Ended: ended, Generation: 1, Token: 7, Unknown: ended == Released, CreatedAt: t0, UpdatedAt: t0,
		RetainUntil: t0.Add(time.Hour + longTerm),
	}
	for _, f := range tweak {
		f(&r)
	}
	return r
}

func TestDecideSweep(t *testing.T) {
	const horizon = time.Hour
	doubt := func(r *Record) { r.Unknown, r.Uncertainty = true, 1 }
	entity := func(r *Record) { r.Watermark.Running = TextVersion("1") }
	for _, x := range []struct {
		name              string
		r                 Record
		after             time.Duration
		horizon, longTerm time.Duration
		want              SweepVerdict
	}{
		{"completed, kept", inState(Completed), time.Hour, horizon, 0, SweepKeep},
		{"FM41 completed, past", inState(Completed), time.Hour + 1, horizon, 0, SweepPurge},
		{"failed, past", inState(FailedState), time.Hour + 1, horizon, 0, SweepPurge},
		{"released, past", inState(Released), time.Hour + 1, horizon, 0, SweepPurge},
		{"released, kept", inState(Released), time.Minute, horizon, 0, SweepKeep},
		{"uncertain", inState(Uncertain), 1000 * time.Hour, horizon, longTerm, SweepKeep},
		{"live", inState(InProgress), 0, horizon, longTerm, SweepKeep},
		{"abandoned within the horizon", inState(InProgress), time.Hour + time.Minute, horizon, 0, SweepKeep},
		{"abandoned", inState(InProgress), time.Hour + time.Minute + 1, horizon, longTerm, SweepAbandon},
		{"abandoned, no horizon", inState(InProgress), 1000 * time.Hour, 0, longTerm, SweepKeep},
		{"absent", inState(Absent), 1000 * time.Hour, horizon, longTerm, SweepKeep},
		{"long term: completed, kept", inState(Completed), time.Hour, 0, longTerm, SweepKeep},
		{"long term: completed, past", inState(Completed), time.Hour + 1, 0, longTerm, SweepExpire},
		{"long term: failed, past", inState(FailedState), time.Hour + 1, 0, longTerm, SweepExpire},
		{"long term: released without a doubt", inState(Released), time.Hour + 1, 0, longTerm, SweepPurge},
		{"long term: released with a doubt", inState(Released, doubt), time.Hour + 1, 0, longTerm, SweepExpire},
		{"long term: versions", inState(Completed, entity), time.Hour + 1, 0, longTerm, SweepPurge},
		{"long term: at its end", inState(Completed), time.Hour + longTerm, 0, longTerm, SweepExpire},
		{"long term: past it already", inState(Completed), time.Hour + longTerm + 1, 0, longTerm, SweepPurge},
		{"expired, kept", expired(Completed), time.Hour + longTerm, 0, longTerm, SweepKeep},
		{"expired, past", expired(Completed), time.Hour + longTerm + 1, 0, longTerm, SweepPurge},
		{"expired, the period was ended", expired(Completed), time.Hour + longTerm, 0, 0, SweepKeep},
	} {
		r, v := DecideSweep(x.r, t0.Add(x.after), x.horizon, x.longTerm)
		if v != x.want {
			t.Errorf("%s: %v, wanted %v", x.name, v, x.want)
		}
		switch v {
		case SweepAbandon:
			if r.State != Uncertain || !r.Unknown || r.Uncertainty != 1 || r.Reason == "" || r.Hold() != x.r.Hold() {
				t.Errorf("%s: %+v", x.name, r)
			}
			if _, o, _ := DecideFinish(r, Finish{Hold: hold(7, mine), Final: Complete}, t0); o != Recovered {
				t.Errorf("%s: the late completion returned %v", x.name, o)
			}
		case SweepExpire:
			want := expired(x.r.State, func(r *Record) { r.Unknown, r.Uncertainty = x.r.Unknown, x.r.Uncertainty })
			if !reflect.DeepEqual(r, want) {
				t.Errorf("%s: %+v, wanted %+v", x.name, r, want)
			}
		case SweepKeep, SweepPurge:
		}
	}
}

// TestFM41_ExpiredClaims: whatever is claimed, an EXPIRED record returns Late, before version and payload are compared, and
// stays as it is.
func TestFM41_ExpiredClaims(t *testing.T) {
	for ended, says := range map[State]string{Completed: "was completed", FailedState: "failed for good", Released: "with a doubt"} {
		for _, c := range []Claim{
			claim(other), claim(mine), claim(Nonce{}),
			claim(other, func(c *Claim) { c.Fingerprint, c.WholeBody, c.BodyDigest = fpB, true, 1<<57 }),
			claim(other, func(c *Claim) { c.Version = TextVersion("9") }),
			claim(other, func(c *Claim) { c.Takeover = Once }),
		} {
			x := expired(ended)
			r, g, changed := DecideClaim(x, c, t0.Add(2*time.Hour), drawn)
			if g.Verdict != Late || changed || !reflect.DeepEqual(r, x) || g.Hold.Token != 7 || g.Redelivery || !strings.Contains(g.Reason, says) {
				t.Errorf("ended %v: %+v, changed %v: %+v", ended, g, changed, r)
			}
		}
	}
	if !Expired.Terminal() {
		t.Error("a duplicate of an EXPIRED record must not be acked")
	}
}

// TestExpiredWrites: the attempt that had the record has lost it.
func TestExpiredWrites(t *testing.T) {
	for _, n := range []Nonce{mine, {}} {
		if _, o := DecideExtend(expired(Completed), hold(7, n), lease, t0); o != Lost {
			t.Errorf("an extension returned %v", o)
		}
		for f := Complete; f <= Park; f++ {
			if r, o, changed := DecideFinish(expired(Completed), Finish{Hold: hold(7, n), Final: f}, t0); o != Lost || changed {
				t.Errorf("%v returned %v: %+v", f, o, r)
			}
		}
	}
}

// TestExpiredOperations: a person reopens a FAILED one by its token, and a COMPLETED one only deliberately.
func TestExpiredOperations(t *testing.T) {
	now := t0.Add(2 * time.Hour)
	for _, x := range []struct {
		name    string
		r       Record
		op      Operation
		o       Outcome
		changed bool
		check   func(r Record) bool
	}{
		{"redrive, failed", expired(FailedState), Operation{Kind: Redrive, Token: 7}, Applied, true, func(r Record) bool {
			return r.State == Released && r.Ended == Absent && r.Generation == 2 && r.Epoch == 0 && r.Token == 7 && r.RetryAt.Equal(now)
		}},
		{"redrive, failed, another token", expired(FailedState), Operation{Kind: Redrive, Token: 6}, Lost, false, nil},
		{"redrive, a doubt", expired(Released), Operation{Kind: Redrive, Token: 7}, Applied, true, func(r Record) bool {
			return r.State == Released && r.Generation == 2 && r.Unknown
		}},
		{"redrive, completed", expired(Completed), Operation{Kind: Redrive, Token: 7}, Lost, false, nil},
		{"redrive, completed, deliberately", expired(Completed), Operation{Kind: Redrive, NewGeneration: true}, Applied, true, func(r Record) bool {
			return r.State == Released && r.Generation == 2 && r.Epoch == 1
		}},
		{"reopen, completed", expired(Completed), Operation{Kind: Reopen}, Applied, true, func(r Record) bool {
			return r.State == Released && r.Generation == 2 && r.Epoch == 1 && r.RetainUntil.Equal(t0.Add(time.Hour+longTerm))
		}},
		{"reopen, failed", expired(FailedState), Operation{Kind: Reopen}, Applied, true, func(r Record) bool { return r.Generation == 2 && r.Epoch == 0 }},
		{"reopen, a doubt under once", expired(Released, func(r *Record) { r.Takeover = Once }), Operation{Kind: Reopen}, Applied, true, func(r Record) bool {
			return r.State == Released && !r.Unknown
		}},
		{"discard, failed", expired(FailedState), Operation{Kind: Discard, Token: 7}, Applied, true, func(r Record) bool {
			return r.State == Expired && r.Disposed && r.Ended == FailedState
		}},
		{"discard again", expired(FailedState, func(r *Record) { r.Disposed = true }), Operation{Kind: Discard, Token: 7}, Applied, false, nil},
		{"discard, completed", expired(Completed), Operation{Kind: Discard, Token: 7}, Lost, false, nil},
		{"resolve", expired(Released), Operation{Kind: Resolve, As: Completed}, Lost, false, nil},
		{"release", expired(Released), Operation{Kind: ForceRelease}, Lost, false, nil},
		{"erase", expired(Completed), Operation{Kind: Erase}, Applied, true, func(r Record) bool { return r.State == Absent }},
		{"erase, another token", expired(Completed), Operation{Kind: Erase, Token: 6}, Lost, false, nil},
	} {
		r, o, changed := DecideOperate(x.r, x.op, now, drawn)
		if o != x.o || changed != x.changed || x.check != nil && !x.check(r) || !changed && !reflect.DeepEqual(r, x.r) {
			t.Errorf("%s: %v, changed %v: %+v", x.name, o, changed, r)
		}
	}
}

// TestErase: ended records go, and the entry that stays does not name the key.
func TestErase(t *testing.T) {
	for s := Absent; s <= Uncertain; s++ {
		r, o, changed := DecideOperate(inState(s), Operation{Kind: Erase, Key: key}, t0, drawn)
		if gone := s == Completed || s == FailedState || s == Uncertain; gone != changed || gone != (o == Applied) || gone && r.State != Absent {
			t.Errorf("%v: %v, changed %v: %+v", s, o, changed, r)
		}
	}
	op := Operation{Kind: Erase, Key: key, By: "ann"}
	if e := op.Entry(inState(Completed), Record{}, t0); e.Key != (Key{Consumer: key.Consumer, Tenant: key.Tenant}) || e.To != Absent || e.Kind.String() != "erase" {
		t.Errorf("%+v", e)
	}
}
