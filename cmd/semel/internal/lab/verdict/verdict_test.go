package verdict

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/crew"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
)

func sends(keys ...string) (out []plan.Send) {
	for _, k := range keys {
		out = append(out, plan.Send{Key: k, ID: "m-" + k})
	}
	return out
}

func effects(keys ...string) (out []place.Effect) {
	for i, k := range keys {
		out = append(out, place.Effect{ID: int64(i + 1), Key: k, Amount: 100_000})
	}
	return out
}

func TestCount(t *testing.T) {
	for _, c := range []struct {
		name    string
		sent    []plan.Send
		effects []place.Effect
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
			name: "a dead letter is not a loss", sent: sends("a", "b"), effects: effects("a"),
			excused: map[string]bool{"b": true}, want: tally{Sent: 2, Effects: 1},
		},
		{name: "it was not sent", sent: sends("a"), effects: effects("a", "x"), want: tally{Sent: 1, Effects: 2, Strays: 1}},
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
	s := plan.Scenario{Expect: map[plan.Guard]plan.Expect{
		plan.GuardOn: {Verdict: plan.Held, Figures: []plan.Figure{plan.Exactly("executed", 1), plan.AtLeast("sent", 1)}},
	}}
	entries := []eventlog.Entry{
		{Kind: "received"}, {Kind: "started"}, {Kind: "received"}, {Kind: "decided", Decision: "replayed"},
		{Kind: "received"}, {Kind: "decided", Decision: "busy_deferred"}, {Kind: eventlog.Effect}, {Kind: "settled"},
	}
	for _, c := range []struct {
		name    string
		sent    []plan.Send
		effects []place.Effect
		want    plan.Outcome
	}{
		{"exact", sends("a"), effects("a"), plan.Held},
		{"doubled", sends("a"), effects("a", "a"), plan.Broken},
		{"lost", sends("a", "b"), effects("a"), plan.Broken},
		{"stray", sends("a"), effects("a", "b"), plan.Broken},
	} {
		res := crew.Result{Effects: c.effects, Entries: entries, Aside: place.Aside{Dead: 1, Parked: 2, Keys: map[string]bool{}}, Kills: 3}
		r := judge(s, plan.Plan{Seed: 9, Guard: plan.GuardOn, Sends: c.sent}, res)
		if r.Verdict != c.want || r.Expected != plan.Held || len(r.Missed) > 0 {
			t.Errorf("%s: got %+v", c.name, r)
		}
		if r.Delivered != 3 || r.Executed != 1 || r.Replayed != 1 || r.Busy != 1 || r.Dead != 1 || r.Parked != 2 || r.Seed != 9 || r.Kills != 3 {
			t.Errorf("%s: counts of %+v", c.name, r)
		}
	}
	s.Expect[plan.GuardOn].Figures[0] = plan.Exactly("executed", 2)
	r := judge(s, plan.Plan{Guard: plan.GuardOn, Sends: sends("a")}, crew.Result{Effects: effects("a"), Entries: entries})
	if r.Verdict != plan.Held || len(r.Missed) != 1 || r.Missed[0] != "executed is 1, expected 2" || overall([]Run{r}) != Unexpected {
		t.Errorf("a figure that was missed: %+v", r)
	}
}

// TestS2_08_Holders counts the handler runs of one key at the same time: a kill ends a run, a run that ended makes room.
func TestS2_08_Holders(t *testing.T) {
	run := func(kind string, worker int, key, message string) eventlog.Entry {
		return eventlog.Entry{Kind: kind, Worker: worker, Life: 1, Key: key, Message: message}
	}
	for _, c := range []struct {
		name    string
		entries []eventlog.Entry
		want    int
	}{
		{"one after the other", []eventlog.Entry{
			run("started", 1, "a", "m1"), run("ended", 1, "a", "m1"), run("started", 2, "a", "m1"), run("ended", 2, "a", "m1"),
		}, 1},
		{"two workers at once", []eventlog.Entry{run("started", 1, "a", "m1"), run("started", 2, "a", "m1")}, 2},
		{"one worker, two messages", []eventlog.Entry{run("started", 1, "a", "m1"), run("started", 1, "a", "m2")}, 2},
		{"two keys", []eventlog.Entry{run("started", 1, "a", "m1"), run("started", 2, "b", "m2")}, 1},
		{"the first one was killed", []eventlog.Entry{
			run("started", 1, "a", "m1"), {Kind: eventlog.Exit, Worker: 1, Life: 1}, run("started", 2, "a", "m1"),
		}, 1},
	} {
		r := judge(plan.Scenario{}, plan.Plan{}, crew.Result{Entries: c.entries})
		if r.Holders != c.want {
			t.Errorf("%s: %d runs at once, want %d", c.name, r.Holders, c.want)
		}
	}
}

// TestCountVersions judges keys whose messages replace each other: what counts is that no older version comes last.
func TestCountVersions(t *testing.T) {
	sent := []plan.Send{{Key: "a", Version: 1}, {Key: "a", Version: 3}, {Key: "a", Version: 2}}
	row := func(versions ...int) (out []place.Effect) {
		for _, v := range versions {
			out = append(out, place.Effect{Key: "a", Version: v, Amount: 5})
		}
		return out
	}
	for _, c := range []struct {
		name      string
		effects   []place.Effect
		regressed int
		lost      int
	}{
		{"all in order", row(1, 2, 3), 0, 0},
		{"the newest alone", row(3), 0, 0},
		{"an older one later", row(1, 3, 2), 1, 0},
		{"one twice", row(3, 3), 1, 0},
		{"the newest never came", row(1, 2), 0, 1},
	} {
		got := count(sent, c.effects, nil)
		if got.Sent != 1 || got.Regressed != c.regressed || len(got.Lost) != c.lost || got.Duplicated != 0 || got.Damage != 0 {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
}

// TestCountItems: each item of a message has its own effect, and a dead letter of the message is one of all its items.
func TestCountItems(t *testing.T) {
	sent := []plan.Send{{Key: "a", Items: []string{"a/1", "a/2"}}, {Key: "b", Items: []string{"b/1"}}}
	if got := count(sent, effects("a/1", "a/2", "a/1"), nil); got.Sent != 3 || got.Duplicated != 1 || len(got.Lost) != 1 {
		t.Errorf("got %+v", got)
	}
	if got := count(sent, effects("a/1", "a/2"), map[string]bool{"b": true}); len(got.Lost) != 0 {
		t.Errorf("a dead letter is no loss: %+v", got)
	}
}

// TestCountSagas: of a failed saga nothing may stand, and nothing may be undone that is not.
func TestCountSagas(t *testing.T) {
	good := plan.Send{Key: "g", Items: []string{"g/1", "g/2"}, Saga: true}
	bad := plan.Send{Key: "b", Items: []string{"b/1", "b/2"}, Saga: true, Poison: true}
	row := func(keys ...string) (out []place.Effect) {
		for _, k := range keys {
			e := place.Effect{Key: strings.TrimPrefix(k, "-"), Amount: 5}
			if strings.HasPrefix(k, "-") {
				e = e.Reversed()
			}
			out = append(out, e)
		}
		return out
	}
	for _, c := range []struct {
		name                       string
		effects                    []place.Effect
		standing, duplicated, lost int
	}{
		{"done and undone", row("g/1", "g/2", "b/1", "-b/1"), 0, 0, 0},
		{"not undone", row("g/1", "g/2", "b/1"), 1, 0, 0},
		{"undone once, done twice", row("g/1", "g/2", "b/1", "b/1", "-b/1"), 1, 0, 0},
		{"undone without need", row("g/1", "g/2", "-b/1"), 1, 0, 0},
		{"a good one undone", row("g/1", "g/2", "-g/2"), 0, 0, 1},
		{"a good one twice", row("g/1", "g/1", "g/2"), 0, 1, 0},
	} {
		got := count([]plan.Send{good, bad}, c.effects, nil)
		if got.Standing != c.standing || got.Duplicated != c.duplicated || len(got.Lost) != c.lost {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
}

func TestScaled(t *testing.T) {
	run := func(done int64) (r Run) {
		r.scaled([]eventlog.Entry{
			{Kind: eventlog.Sent, At: 1000}, {Kind: eventlog.Depth, Count: 9, Workers: 2}, {Kind: eventlog.Depth, Count: 4, Workers: 3},
			{Kind: eventlog.Sent, At: 2000}, {Kind: eventlog.Effect, At: 1900}, {Kind: eventlog.Effect, At: done},
		})
		return r
	}
	keepsUp, grows := run(2900), run(3100)
	if keepsUp.Settled != 1 || keepsUp.Backlog != 9 || keepsUp.Peak != 3 || grows.Settled != 0 {
		t.Errorf("keeps up %+v, grows %+v", keepsUp, grows)
	}
	var none Run
	none.scaled([]eventlog.Entry{{Kind: eventlog.Sent, At: 1000}, {Kind: eventlog.Sent, At: 2000}})
	if none.Settled != 0 {
		t.Error("a load without any work is settled")
	}
}

func TestOverall(t *testing.T) {
	off := Run{Guard: plan.GuardOff, Expected: plan.Broken, Verdict: plan.Broken}
	on := Run{Guard: plan.GuardOn, Expected: plan.Held, Verdict: plan.Held}
	if got := overall([]Run{off, on}); got != AsExpected {
		t.Errorf("got %s", got)
	}
	on.Verdict = plan.Broken
	if got := overall([]Run{off, on}); got != Unexpected {
		t.Errorf("a guard that did not hold is %s", got)
	}
	off.Verdict, on.Verdict = plan.Held, plan.Held
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
			Scenario: "demo", Guard: plan.GuardOff, Sent: 200, Delivered: 262, Executed: 261, Effects: 231, Duplicated: 31,
			Kills: 4, DamageMinor: 3_100_000, Currency: "JPY", Expected: plan.Broken, Verdict: plan.Broken, Seed: 42, ElapsedMS: 9120,
		}},
		Verdict: AsExpected, Report: "demo.html", Timeline: &Timeline{}, Kept: "/somewhere",
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
