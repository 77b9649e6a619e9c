package report_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/report"
)

// own makes a row of a measure with figures of its own.
func own(m harness.Measure, round int, perSecond float64, values map[string]float64) harness.Row {
	return harness.Row{
		Measure: m.Name, Kind: m.Kind, Unit: m.Unit, Round: round, N: 100, Done: 100, Seconds: 100 / perSecond,
		PerSecond: perSecond, Values: values,
	}
}

// Each of the sections shows its measures' figures; the load is that of the run that a row is of.
func TestSections(t *testing.T) {
	off := harness.Measure{Name: "cache-pg-5-off", Title: "5 %, no cache", Kind: harness.Cache, Unit: "deliveries"}
	on := harness.Measure{Name: "cache-pg-5-on", Title: "5 %, cache", Kind: harness.Cache, Unit: "deliveries"}
	grown := harness.Measure{Name: "semel-sqlite-growth", Title: "SQLite grows", Kind: harness.Semel, Unit: "records"}
	window := harness.Measure{Name: "semel-sqlite-window", Title: "SQLite", Kind: harness.Window, Unit: "expired keys"}
	sweep := harness.Measure{Name: "semel-sqlite-sweep", Title: "SQLite sweeps", Kind: harness.Semel, Unit: "purged records"}
	var in strings.Builder
	lines := json.NewEncoder(&in)
	write := func(load float64, rows ...harness.Row) {
		if err := lines.Encode(map[string]any{"about": harness.About{Load: load}}); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if err := lines.Encode(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	claims := func(v float64) map[string]float64 {
		return map[string]float64{"claims_per_delivery": v, "calls_per_thousand": 21}
	}
	write(0.25, own(off, 1, 100, claims(1)), own(on, 1, 300, claims(0.95)), own(off, 2, 1000, claims(1)), own(on, 2, 3000, claims(0.95)))
	write(7, own(grown, 1, 10, map[string]float64{
		"random_small_per_second": 200, "random_large_per_second": 150, "random_ratio": 0.75, "random_least": 0.7, "random_greatest": 0.8,
	}))
	write(8, own(window, 1, 10, map[string]float64{
		"bytes_per_expired": 132, "late": 90, "late_dead_letters": 90,
	}), own(sweep, 1, 10, map[string]float64{"quiet_p99_us": 200, "busy_p99_us": 300, "p99_ratio": 1.5}))
	about, rows, err := report.Read(strings.NewReader(in.String()))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := report.Page(&b, about, []harness.Measure{off, on, grown, window, sweep}, rows, "x.svg"); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{
		"| 5 %, cache | 0.95 | 21 | 1,650 | 3 |", // the median of both rounds, and 3 times as many in each
		"| SQLite grows, random keys | 100 | 200 | 150 | 0.75 | 0.70 | 0.80 | 7 |",
		"| bytes of an expired record, with its index | 132 |",
		"| late duplicates sent | 90 |", "| of these became dead letters | 90 |", "| load average of the machine before | 8 |",
		"| SQLite sweeps | 0 | 0 | 200 | 300 | 1.50 | 10 | 8 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if others := page[strings.Index(page, "## Claims and engine"):strings.Index(page, "## Growth")]; strings.Contains(others, "SQLite") {
		t.Errorf("what has a section of its own is in another, too:\n%s", others)
	}
}
