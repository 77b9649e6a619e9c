package lab

import (
	"encoding/json"
	"strings"
	"testing"
)

func sends(keys ...string) (out []Send) {
	for _, k := range keys {
		out = append(out, Send{Key: k, ID: "m-" + k})
	}
	return out
}

func effects(keys ...string) (out []Effect) {
	for i, k := range keys {
		out = append(out, Effect{ID: int64(i + 1), Key: k, Amount: 100_000})
	}
	return out
}

func TestCount(t *testing.T) {
	for _, c := range []struct {
		name    string
		sent    []Send
		effects []Effect
		excused map[string]bool
		want    tally
		lost    string
	}{
		{name: "exact", sent: sends("a", "b"), effects: effects("a", "b"), want: tally{Sent: 2, Effects: 2}},
		{
			name: "a producer's retry is one key", sent: sends("a", "b", "a"), effects: effects("b", "a"),
			want: tally{Sent: 2, Effects: 2},
		},
		{
			name: "three charges are two too many", sent: sends("a", "b"), effects: effects("a", "a", "b", "a"),
			want: tally{Sent: 2, Effects: 4, Duplicated: 2, Damage: 200_000},
		},
		{
			name: "lost, and not made up for by another's duplicate", sent: sends("a", "b"), effects: effects("a", "a"),
			want: tally{Sent: 2, Effects: 2, Duplicated: 1, Damage: 100_000}, lost: "b",
		},
		{
			name: "a letter is not a loss", sent: sends("a", "b"), effects: effects("a"),
			excused: map[string]bool{"b": true}, want: tally{Sent: 2, Effects: 1},
		},
		{name: "nobody sent it", sent: sends("a"), effects: effects("a", "x"), want: tally{Sent: 1, Effects: 2, Strays: 1}},
	} {
		got := count(c.sent, c.effects, c.excused)
		if lost := strings.Join(got.Lost, " "); lost != c.lost {
			t.Errorf("%s: lost %q, want %q", c.name, lost, c.lost)
		}
		got.Lost = nil
		if got.Sent != c.want.Sent || got.Effects != c.want.Effects || got.Duplicated != c.want.Duplicated ||
			got.Damage != c.want.Damage || got.Strays != c.want.Strays {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	s := testScenario(t, 10, 2, 2)
	entries := []Entry{
		{Kind: "received"}, {Kind: "started"}, {Kind: "received"}, {Kind: "decided", Decision: "replayed"},
		{Kind: "received"}, {Kind: "decided", Decision: "busy_deferred"}, {Kind: noteEffect}, {Kind: "settled"},
	}
	for _, c := range []struct {
		name string
		t    tally
		want Outcome
	}{
		{"exact", tally{Sent: 1, Effects: 1}, Held},
		{"doubled", tally{Sent: 1, Effects: 2, Duplicated: 1, Damage: 5}, Broken},
		{"lost", tally{Sent: 2, Effects: 1, Lost: []string{"a"}}, Broken},
		{"stray", tally{Sent: 1, Effects: 2, Strays: 1}, Broken},
	} {
		r := judge(s, Plan{Seed: 9, Guard: GuardOn}, c.t, setAside{Dead: 1, Parked: 2}, entries)
		if r.Verdict != c.want || r.Expected != Held || r.DamageMinor != c.t.Damage || r.Lost != len(c.t.Lost) {
			t.Errorf("%s: got %+v", c.name, r)
		}
		if r.Delivered != 3 || r.Executed != 1 || r.Replayed != 1 || r.Dead != 1 || r.Parked != 2 || r.Seed != 9 {
			t.Errorf("%s: counts of %+v", c.name, r)
		}
	}
}

func TestOverall(t *testing.T) {
	off := Run{Guard: GuardOff, Expected: Broken, Verdict: Broken}
	on := Run{Guard: GuardOn, Expected: Held, Verdict: Held}
	if got := overall([]Run{off, on}); got != AsExpected {
		t.Errorf("got %s", got)
	}
	on.Verdict = Broken
	if got := overall([]Run{off, on}); got != Unexpected {
		t.Errorf("a guard that did not hold is %s", got)
	}
	off.Verdict, on.Verdict = Held, Held
	if got := overall([]Run{off, on}); got != Unexpected {
		t.Errorf("a demonstration that showed nothing is %s", got)
	}
	if got := overall(nil); got != Unexpected {
		t.Errorf("no runs are %s", got)
	}
}

// TestVerdictJSON pins contract section 5: names, order, nothing else.
func TestVerdictJSON(t *testing.T) {
	v := Verdict{
		Runs: []Run{{
			Scenario: "demo", Guard: GuardOff, Sent: 200, Delivered: 262, Executed: 261, Effects: 231, Duplicated: 31,
			Kills: 4, DamageMinor: 3_100_000, Currency: "JPY", Expected: Broken, Verdict: Broken, Seed: 42, ElapsedMS: 9120,
		}},
		Verdict: AsExpected, Report: "demo.html", Story: &Story{}, Kept: "/somewhere",
	}
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"runs":[{"scenario":"demo","guard":"off","sent":200,"delivered":262,"executed":261,"effects":231,` +
		`"duplicated":31,"lost":0,"replayed":0,"dead":0,"parked":0,"kills":4,"damage_minor":3100000,"currency":"JPY",` +
		`"expected":"broken","verdict":"broken","seed":42,"elapsed_ms":9120}],"verdict":"as_expected","report":"demo.html"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestMoney(t *testing.T) {
	for _, c := range []struct {
		minor    int64
		currency string
		want     string
	}{
		{0, "JPY", "¥0"}, {100, "JPY", "¥100"}, {100_000, "JPY", "¥100,000"}, {12_345_678, "JPY", "¥12,345,678"},
		{123_456, "EUR", "EUR 1,234.56"}, {5, "USD", "USD 0.05"},
	} {
		if got := Money(c.minor, c.currency); got != c.want {
			t.Errorf("Money(%d, %s) = %s, want %s", c.minor, c.currency, got, c.want)
		}
	}
}
