package driver

import (
	"reflect"
	"testing"
	"time"
)

// TestClaimAtCommit: a claim at the commit changes nothing where there is no record, and is an ordinary claim elsewhere.
func TestClaimAtCommit(t *testing.T) {
	atCommit := func(c *Claim) { c.AtCommit = true }
	after, g, changed := DecideClaim(Record{}, claim(mine, atCommit), t0, drawn)
	if want := (Hold{Key: key, Generation: 1, Nonce: mine}); changed || g.Verdict != Acquired || g.Hold != want || g.Attempt != 1 ||
		!reflect.DeepEqual(after, Record{}) {
		t.Errorf("absent: changed %v, grant %+v, record %+v", changed, g, after)
	}
	versioned := func(c *Claim) { c.AtCommit, c.Version = true, "7" }
	if after, g, changed = DecideClaim(Record{}, claim(mine, versioned), t0, drawn); !changed || g.Hold.Token == 0 || after.State != InProgress {
		t.Errorf("with a version: changed %v, grant %+v, record %+v", changed, g, after)
	}
	for _, s := range []State{InProgress, Released, Completed, FailedState, Uncertain, Expired} {
		for _, n := range []Nonce{mine, other} {
			plainAfter, plain, plainChanged := DecideClaim(inState(s), claim(n), t0.Add(time.Second), drawn)
			after, g, changed := DecideClaim(inState(s), claim(n, atCommit), t0.Add(time.Second), drawn)
			if !reflect.DeepEqual(after, plainAfter) || !reflect.DeepEqual(g, plain) || changed != plainChanged {
				t.Errorf("%v: a claim at the commit returned %v, %+v, an ordinary one %v, %+v", s, changed, g, plainChanged, plain)
			}
		}
	}
}

// TestDecideInsert is the table of commits that bring their claims (FM13, FM32): they make a record, or change nothing.
func TestDecideInsert(t *testing.T) {
	now := t0.Add(time.Hour)
	finish := Finish{Hold: Hold{Key: key, Generation: 1, Nonce: mine}, Final: Complete, Keep: time.Hour, Result: []byte("r")}
	made, o, changed := DecideInsert(Record{}, claim(mine), finish, now, drawn)
	want := Record{
		Key: key, State: Completed, Generation: 1, Token: drawn, Nonce: mine, Lease: lease, LeaseUntil: now.Add(lease), Attempt: 1,
		Fingerprint: fpA, Result: []byte("r"), CreatedAt: now, UpdatedAt: now, CompletedAt: now, RetainUntil: now.Add(time.Hour),
		Deliveries: []string{"d-2"}, Watermark: made.Watermark,
	}
	if o != Applied || !changed || !reflect.DeepEqual(made, want) {
		t.Errorf("absent: %v, changed %v, %+v; wanted %+v", o, changed, made, want)
	}
	again, o, changed := DecideInsert(made, claim(mine), finish, now.Add(time.Minute), drawn+1)
	if o != Applied || changed || !reflect.DeepEqual(again, made) {
		t.Errorf("repeated: %v, changed %v, %+v", o, changed, again)
	}
	for _, s := range []State{InProgress, Released, Completed, FailedState, Uncertain, Expired} {
		for _, n := range []Nonce{mine, other} {
			want := Lost
			if s == Completed && n == mine {
				want = Applied
			}
			after, o, changed := DecideInsert(inState(s), claim(n), finish, now, drawn)
			if o != want || changed || !reflect.DeepEqual(after, inState(s)) {
				t.Errorf("%v, nonce %x: %v, changed %v, %+v; wanted %v", s, n[0], o, changed, after, want)
			}
		}
	}
	for _, f := range []Final{0, Fail, Release, Park} {
		bad := finish
		bad.Final = f
		if after, o, changed := DecideInsert(Record{}, claim(mine), bad, now, drawn); o != Lost || changed || after.State != Absent {
			t.Errorf("%v without a claim: %v, changed %v, %+v", f, o, changed, after)
		}
	}
}
