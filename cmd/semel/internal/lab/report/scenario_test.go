package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/eventlog"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict/verdicttest"
)

// verdictOf is the verdict of an unguarded run that the fixture describes.
func verdictOf(name string, f *verdicttest.Fixture) verdict.Verdict {
	s := verdicttest.Scenario()
	s.Name, s.Title, s.Asks, s.Hint = name, "What "+name+" does", "Why "+name+"?", "Fix "+name+"."
	s.Designs = map[plan.Guard]plan.Design{plan.GuardOff: plan.TTLLock, plan.GuardOn: plan.Semel}
	v := verdict.Verdict{Timeline: &verdict.Timeline{Scenario: s, Seed: 7, Repeat: "semel lab run " + name + " --seed 7"}}
	v.Add(s, f.Plan, f.Result)
	return v
}

func html(t *testing.T, all []verdict.Verdict) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "all.html")
	if err := WriteAll(path, all, "semel lab run --all --seed 7"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReportOfManyHasAnIndexAndAPageForEach: with what each is about, and what to do.
func TestReportOfManyHasAnIndexAndAPageForEach(t *testing.T) {
	f := verdicttest.Broken()
	f.At(2000, eventlog.Entry{Kind: eventlog.Strike, Action: string(plan.Freeze), Worker: 2, Life: 1})
	f.At(2500, eventlog.Entry{Kind: eventlog.Thaw, Worker: 2, Life: 1})
	f.At(2600, eventlog.Entry{Kind: eventlog.Down})
	f.At(2700, eventlog.Entry{Kind: eventlog.Up})
	f.At(2800, eventlog.Entry{Kind: eventlog.Strike, Action: string(plan.Deploy), Worker: 2, Life: 1})
	f.Sort()
	page := html(t, []verdict.Verdict{verdictOf("one", f), verdictOf("two", verdicttest.Broken())})
	for _, want := range []string{
		`href="#one"`, `href="#two"`, `<article id="one"`, `<article id="two"`, "Why two?", "Fix one.", "semel lab run two --seed 7",
		"semel lab run --all --seed 7", plan.TTLLock.Sentence(), "Without the guard 2 of 2 broke.", "¥800,000",
		`class="stop"`, `class="outage"`, `class="deploy"`, "frozen for 0.5 s", "database out of reach for 0.1 s",
		"killed between effect and ack", "sent twice by the producer", "+¥200,000", "as_expected",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, bad := range []string{"ZgotmplZ", "<no value>", "%!", "semel demo"} {
		if strings.Contains(page, bad) {
			t.Errorf("%q is in the report", bad)
		}
	}
	if err := WriteAll(filepath.Join(t.TempDir(), "x"), nil, ""); err == nil {
		t.Error("a report of nothing")
	}
}

// TestReportIsBounded: 2,000 keys of 200 charges each, and plain ones.
func TestReportIsBounded(t *testing.T) {
	f := verdicttest.New(plan.GuardOff)
	f.Spawn(0, 1, 1)
	for i := range 20_000 {
		key := plan.Key(i % 2000)
		f.Delivery(1, 1, key, fmt.Sprintf("%s-%d", key, i), i, i+1, i+2, i+3)
	}
	f.Sort()
	page := html(t, []verdict.Verdict{verdictOf("big", f)})
	if len(page) > 8<<20 {
		t.Errorf("%d bytes", len(page))
	}
	if !strings.Contains(page, "14000") && !strings.Contains(page, "left out of the picture") {
		t.Error("it does not say what it leaves out")
	}
	if n := strings.Count(page, `class="sp"`); n != maxDrawn {
		t.Errorf("%d deliveries are drawn", n)
	}
	if n := strings.Count(page, "<summary><code>order-"); n != maxTimelines || !strings.Contains(page, "1760 more are not shown here") {
		t.Errorf("%d timelines", n)
	}
}

// TestTextOfAScenario: what it is about, figures that are not zero, what was missed, question and fix, in 80 columns.
func TestTextOfAScenario(t *testing.T) {
	v := verdictOf("one", verdicttest.Broken())
	v.Runs[0].Missed, v.Runs[0].TakenOver = []string{"kills is 1, expected 2"}, 3
	v.Timeline.Runs[0].Transcript = []verdict.LogLine{{Seconds: 1.25, Text: "Start msg-1 sleep 8"}}
	v.Timeline.Runs[0].Refused = 1
	v.Timeline.Scenario.Load.Faster = 2.5
	var b strings.Builder
	if err := WriteText(&b, v, false, 80); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"one  What one does", "Takes a lock", "taken over                               3", "missed     guard off: kills is 1, expected 2",
		"question   Why one?", "hint       Fix one.", "  1.2 s  Start msg-1 sleep 8", "time runs 2.5× as fast", "its record was refused",
		"was charged 2×", "semel lab run one --seed 7",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, not := range []string{"semel demo", "dead letters", "stale", "set back", "put back"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in\n%s", not, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 && !strings.Contains(line, "record was refused") {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}
