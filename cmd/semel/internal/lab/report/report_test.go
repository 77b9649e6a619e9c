package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict/verdicttest"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// fixtureVerdict is a whole verdict out of fixtures.
func fixtureVerdict(t *testing.T) verdict.Verdict {
	t.Helper()
	off := verdicttest.Broken().Timeline(t)
	on := verdicttest.New(plan.GuardOn)
	on.Spawn(0, 1, 1)
	on.Delivery(1, 1, "order-0001", "m-0001-1", 10, 11, 30, 31)
	on.Gone(500, 1, 1, "exited")
	guarded := on.Timeline(t)
	off.Run.Sent, off.Run.Duplicated, off.Run.DamageMinor, off.Run.Expected, off.Run.Kills = 5, 4, 400_000, plan.Broken, 1
	guarded.Run.Sent, guarded.Run.Expected, guarded.Run.Verdict, guarded.Run.Replayed = 5, plan.Held, plan.Held, 3
	return verdict.Verdict{
		Runs: []verdict.Run{off.Run, guarded.Run}, Verdict: verdict.AsExpected,
		Timeline: &verdict.Timeline{
			Scenario: verdicttest.Scenario(), Seed: 77, Repeat: "semel demo --seed 77", Runs: []verdict.RunTimeline{off, guarded},
		},
	}
}

func TestReportStandsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.html")
	if err := WriteReport(path, fixtureVerdict(t)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	html := string(b)
	if m := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]+\.[a-z]|@import|<link|src=|href="[^#]`).FindString(html); m != "" {
		t.Errorf("the report refers to something outside: %q", m)
	}
	for _, want := range []string{
		"4 orders were charged more than once. With the guard, none.", "¥400,000", "¥0", "semel demo --seed 77", "pid 101",
		"worker 1 was killed after the effect, before the ack", "charged 2×", "class=\"death\"", "class=\"run double\"",
		"class=\"over\"", "&#34;duplicated&#34;: 4",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, bad := range []string{"ZgotmplZ", "<no value>", "%!"} {
		if strings.Contains(html, bad) {
			t.Errorf("%q is in the report", bad)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".semel-report-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestReportEscapes(t *testing.T) {
	f := verdicttest.New(plan.GuardOff)
	f.Spawn(0, 1, 1)
	hostile := `"><script>alert(1)</script>`
	f.Delivery(1, 1, hostile, "m-1", 10, 11, 20, 21)
	f.Delivery(1, 1, hostile, "m-2", 30, 31, 40, 41)
	v := verdict.Verdict{Runs: []verdict.Run{{}}, Timeline: &verdict.Timeline{Scenario: verdicttest.Scenario(), Runs: []verdict.RunTimeline{f.Timeline(t)}}}
	html, err := render([]verdict.Verdict{v}, false, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(html), "<script>alert") || !strings.Contains(string(html), "alert(1)") {
		t.Error("a key is not escaped, or not shown")
	}
}

func TestReportErrors(t *testing.T) {
	if err := WriteReport(filepath.Join(t.TempDir(), "x.html"), verdict.Verdict{}); err == nil {
		t.Error("a verdict without a timeline made a report")
	}
	path := filepath.Join(t.TempDir(), "missing", "demo.html")
	err := WriteReport(path, fixtureVerdict(t))
	if err == nil || !strings.Contains(err.Error(), "write the report") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestChartLeavesOutPlainDeliveriesOnly(t *testing.T) {
	f := verdicttest.New(plan.GuardOff)
	f.Spawn(0, 1, 1)
	const most = 3000
	for i := range most + 500 {
		f.Delivery(1, 1, plan.Key(i), plan.Key(i), i+1, i+2, i+3, i+4)
	}
	f.Delivery(1, 1, plan.Key(5), "again", 9000, 9001, 9002, 9003)
	c := draw(f.Timeline(t), 9100, most)
	if len(c.bars) != most || c.leftOut != 501 {
		t.Errorf("%d drawn, %d left out", len(c.bars), c.leftOut)
	}
	if last := c.bars[len(c.bars)-1]; last.Fate() != verdict.Doubled {
		t.Errorf("the doubled one is not drawn: %+v", last)
	}
}

func TestText(t *testing.T) {
	v := fixtureVerdict(t)
	v.Report, v.Kept = "demo.html", "/tmp/kept"
	for _, g := range []string{"off", "on"} {
		p := place.File("/tmp/kept/" + g + "/demo.db")
		v.KeptIn = append(v.KeptIn, p.Store, p.Queue)
	}
	var b strings.Builder
	if err := WriteText(&b, v, false, 80); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if strings.Contains(text, "\x1b") {
		t.Error("colours without a terminal")
	}
	for _, want := range []string{
		"guard off", "guard on", "¥400,000", "broken", "held", "as expected", "demo.html", "semel demo --seed 77",
		"semel records ls --store 'sqlite:///tmp/kept/on/demo.db' --limit 5", "order-0001 was charged 2×",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 && !strings.Contains(line, "/tmp/kept") {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("%d lines are more than a screen", n)
	}
	b.Reset()
	if err := WriteText(output.NewSafe(&b), v, true, 0); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\x1b[31m") || strings.Contains(b.String(), "\x1b[m") {
		t.Error("colours are missing or empty")
	}
}

func TestTextOfABrokenGuard(t *testing.T) {
	v := fixtureVerdict(t)
	v.Verdict = verdict.Unexpected
	v.Timeline.Runs[1].Run.Verdict, v.Timeline.Runs[1].Run.Lost = plan.Broken, 2
	var b strings.Builder
	if err := WriteText(&b, v, false, 80); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "Please report it with the seed") || !strings.Contains(b.String(), "not as expected") {
		t.Error(b.String())
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
