package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fixtureVerdict is a whole verdict out of fixtures.
func fixtureVerdict(t *testing.T) Verdict {
	t.Helper()
	off := broken().tell(t)
	on := newFixture(GuardOn)
	on.spawn(0, 1, 1)
	on.delivery(1, 1, "order-0001", "m-0001-1", 10, 11, 30, 31)
	on.gone(500, 1, 1, "exited")
	guarded := on.tell(t)
	off.Run.Sent, off.Run.Duplicated, off.Run.DamageMinor, off.Run.Expected, off.Run.Kills = 5, 4, 400_000, Broken, 1
	guarded.Run.Sent, guarded.Run.Expected, guarded.Run.Verdict, guarded.Run.Replayed = 5, Held, Held, 3
	return Verdict{
		Runs: []Run{off.Run, guarded.Run}, Verdict: AsExpected,
		Story: &Story{
			Scenario: testScenario(t, 10, 2, 2), Seed: 77, Repeat: "semel demo --seed 77", Runs: []Tale{off, guarded},
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
	if m := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]+\.[a-z]|@import|<link|src=|href=`).FindString(html); m != "" {
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
	f := newFixture(GuardOff)
	f.spawn(0, 1, 1)
	hostile := `"><script>alert(1)</script>`
	f.delivery(1, 1, hostile, "m-1", 10, 11, 20, 21)
	f.delivery(1, 1, hostile, "m-2", 30, 31, 40, 41)
	v := Verdict{Runs: []Run{{}}, Story: &Story{Scenario: testScenario(t, 10, 2, 2), Runs: []Tale{f.tell(t)}}}
	html, err := renderReport(v, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(html), "<script>alert") || !strings.Contains(string(html), "alert(1)") {
		t.Error("a key is not escaped, or not shown")
	}
}

func TestReportErrors(t *testing.T) {
	if err := WriteReport(filepath.Join(t.TempDir(), "x.html"), Verdict{}); err == nil {
		t.Error("a verdict without a story made a report")
	}
	path := filepath.Join(t.TempDir(), "missing", "demo.html")
	err := WriteReport(path, fixtureVerdict(t))
	if err == nil || !strings.Contains(err.Error(), "write the report") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestChartLeavesOutPlainDeliveriesOnly(t *testing.T) {
	f := newFixture(GuardOff)
	f.spawn(0, 1, 1)
	for i := range maxDrawn + 500 {
		f.delivery(1, 1, keyName(i), keyName(i), i+1, i+2, i+3, i+4)
	}
	f.delivery(1, 1, keyName(5), "again", 9000, 9001, 9002, 9003)
	c := draw(f.tell(t))
	if len(c.Bars) != maxDrawn || c.LeftOut != 501 {
		t.Errorf("%d drawn, %d left out", len(c.Bars), c.LeftOut)
	}
	if last := c.Bars[len(c.Bars)-1]; last.Class != "double" {
		t.Errorf("the doubled one is not drawn: %+v", last)
	}
}

func TestText(t *testing.T) {
	v := fixtureVerdict(t)
	v.Report, v.Kept = "demo.html", "/tmp/kept"
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
		"semel records ls --store sqlite:///tmp/kept/on/demo.db", "order-0001 was charged 2×",
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
	if err := WriteText(&b, v, true, 0); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\x1b[31m") || strings.Contains(b.String(), "\x1b[m") {
		t.Error("colours are missing or empty")
	}
}

func TestTextOfABrokenGuard(t *testing.T) {
	v := fixtureVerdict(t)
	v.Verdict = Unexpected
	v.Story.Runs[1].Run.Verdict, v.Story.Runs[1].Run.Lost = Broken, 2
	var b strings.Builder
	if err := WriteText(&b, v, false, 80); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "The guard did not hold") || !strings.Contains(b.String(), "not as expected") {
		t.Error(b.String())
	}
}
