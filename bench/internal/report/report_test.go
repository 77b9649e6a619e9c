package report_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/report"
)

// rounds makes rows in which a measure's rate in round i is rates[i].
func rounds(measure string, kind harness.Kind, rates ...float64) (rows []harness.Row) {
	for i, r := range rates {
		rows = append(rows, harness.Row{
			Measure: measure, Kind: kind, Unit: "effects", Round: i + 1, N: 100, Done: 100, Seconds: 100 / r, PerSecond: r,
			ClientCPU: 1e6 / r,
		})
	}
	return rows
}

var measures = []harness.Measure{
	{Name: "semel-pg-queued-1", Title: "queued <1>", Kind: harness.Semel, Unit: "effects"},
	{Name: "b2", Title: "B2", Kind: harness.Peer, Unit: "effects"},
}

// Ratios are taken inside a round: the machine's speed, which doubles here, must not show.
func TestRatiosAreTakenInsideRounds(t *testing.T) {
	rows := append(rounds("b2", harness.Peer, 1000, 2000, 4000), rounds("semel-pg-queued-1", harness.Semel, 8000, 16000, 32000)...)
	var b strings.Builder
	if err := report.Page(&b, harness.About{}, measures, rows, "x.svg"); err != nil {
		t.Fatal(err)
	}
	want := "| queued statements, batch 100, 1 committer ÷ B2 | ≥ 6 | 4.50 | 8 | 8–8 | met |"
	if !strings.Contains(b.String(), want) {
		t.Fatalf("no line %q in\n%s", want, b.String())
	}
	if list, _ := report.Below(rows); len(list) > 0 {
		t.Fatalf("below the gate: %v", list)
	}
}

func TestGate(t *testing.T) {
	for rate, want := range map[float64]string{4400: "below", 4600: "gate held", 6000: "met"} {
		rows := append(rounds("b2", harness.Peer, 1000), rounds("semel-pg-queued-1", harness.Semel, rate)...)
		var b strings.Builder
		if err := report.Page(&b, harness.About{}, measures, rows, "x.svg"); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(line, "| queued statements, batch 100, 1 committer ÷ B2") && !strings.Contains(line, want) {
				t.Errorf("rate %v: %s, want %s", rate, line, want)
			}
		}
		list, missing := report.Below(rows)
		if below := strings.Contains(strings.Join(list, "\n"), "1 committer ÷ B2: "); below != (want == "below") {
			t.Errorf("rate %v: below the gate %v, want %s", rate, list, want)
		}
		if len(missing) == 0 || slices.Contains(missing, "queued statements, batch 100, 1 committer ÷ B2") {
			t.Errorf("not measured: %v", missing)
		}
	}
}

func TestLinesAreReadBack(t *testing.T) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for range 2 { // two runs, one after the other: their rounds count on
		if err := enc.Encode(map[string]any{"about": harness.About{Machine: "M", Cores: 2}}); err != nil {
			t.Fatal(err)
		}
		for _, r := range rounds("b2", harness.Peer, 1, 2) {
			if err := enc.Encode(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	about, rows, err := report.Read(strings.NewReader(b.String()))
	if err != nil || about.Machine != "M" || len(rows) != 4 || rows[3].Round != 4 || rows[3].PerSecond != 2 {
		t.Fatalf("%+v %+v %v", about, rows, err)
	}
	if _, _, err := report.Read(strings.NewReader("{}")); err == nil {
		t.Fatal("an empty line was taken for a row")
	}
}

func TestChartIsXML(t *testing.T) {
	var b strings.Builder
	rows := append(rounds("b2", harness.Peer, 1000), rounds("semel-pg-queued-1", harness.Semel, 7000)...)
	if err := report.Chart(&b, harness.About{Machine: "A & B"}, measures, rows); err != nil {
		t.Fatal(err)
	}
	bars := 0
	for dec := xml.NewDecoder(strings.NewReader(b.String())); ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 2 {
		t.Fatalf("%d bars, want 2", bars)
	}
}

// A long run has its own B2 to be compared with, and shows what it wrote; the chart has short runs alone.
func TestLongRuns(t *testing.T) {
	b2 := harness.Measure{Name: "b2", Title: "B2", Kind: harness.Peer, Unit: "effects"}
	list := []harness.Measure{measures[0], b2, harness.Long(measures[0], 300_000), harness.Long(b2, 300_000)}
	rows := slices.Concat(rounds("b2", harness.Peer, 1000), rounds("semel-pg-queued-1", harness.Semel, 8000),
		rounds("b2-long", harness.Peer, 500), rounds("semel-pg-queued-1-long", harness.Semel, 3000))
	rows[3].WAL = 640
	var page, chart strings.Builder
	if err := errors.Join(report.Page(&page, harness.About{}, list, rows, "x.svg"), report.Chart(&chart, harness.About{}, list, rows)); err != nil {
		t.Fatal(err)
	}
	want := "| queued <1>, 300,000 messages | 3,000 | 0 | 333 + 0 | 640 | 6 |  |"
	if !strings.Contains(page.String(), want) {
		t.Errorf("no line %q in\n%s", want, page.String())
	}
	if strings.Contains(chart.String(), "300,000") {
		t.Errorf("a long run is in the chart:\n%s", chart.String())
	}
}
