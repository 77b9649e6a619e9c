package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/semel-dev/semel/bench/internal/harness"
)

// Page writes the report as Markdown. chart is the file name of the chart beside it.
func Page(w io.Writer, about harness.About, measures []harness.Measure, rows []harness.Row, chart string) error {
	p := newPage(about, measures, rows)
	p.head(chart)
	p.goals()
	p.work(harness.Semel, "semel")
	p.work(harness.Peer, "Peers")
	p.others()
	p.growth()
	p.caches()
	p.window()
	p.sweeps()
	p.beside(harness.Language)
	p.beside(harness.Broker)
	p.settings()
	p.machine()
	_, err := io.WriteString(w, p.text.String())
	return err
}

type page struct {
	about    harness.About
	measures []harness.Measure
	rows     []harness.Row
	rounds   []round
	most     int // rounds of what semel is compared with
	text     strings.Builder
}

func newPage(about harness.About, measures []harness.Measure, rows []harness.Row) *page {
	p := &page{about: about, measures: measures, rows: rows, rounds: byRound(rows)}
	p.most = len(p.rowsOf("b2"))
	return p
}

func (p *page) linef(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

func (p *page) head(chart string) {
	p.linef("# Benchmarks\n")
	p.linef("Written by `make bench-report` on %s. Every figure is the median of interleaved rounds on one machine (%d where nothing",
		p.about.At.Format("2 January 2006"), p.most)
	p.linef("else is said; `make bench-long` runs once); every ratio is taken inside a round, and its median given with the least and the")
	p.linef("greatest. Only ratios carry over to another machine: absolute figures move by a quarter from hour to hour, and by far more on")
	p.linef("a machine that does other work meanwhile. Tables of long measures name its load average.\n")
	p.linef("**The work**: n distinct JSON messages of 300 bytes; 20 %% of the deliveries are redeliveries at random distance; the")
	p.linef("effect is one row in a table `ledger` without a unique constraint. After every run the ledger must hold as many rows")
	p.linef("as distinct ids as messages, else the figure is refused. Peers and semel use the same PostgreSQL server in the same")
	p.linef("round, with fsync and synchronous_commit on; client and server share the processors.\n")
	if p.about.Load > float64(p.about.Cores)/2 {
		p.linef("**The machine was busy with other work when this was measured (load average %s on %d cores): the figures of callers",
			number(p.about.Load), p.about.Cores)
		p.linef("that wait for one response at a time are too low.** Measure again on an idle machine.\n")
	}
	p.linef("![Effects per second](%s)\n", chart)
}

func (p *page) goals() {
	p.linef("## Goals\n")
	p.judged(judge(p.rows))
	p.linef("The benchmark fails (exit code 3 with `-gate`) when a ratio is below its gate. B2 is the inbox of the books, one")
	p.linef("transaction per message; it and the others are described below.\n")
}

// judged is the table of goals.
func (p *page) judged(list []judged) {
	p.linef("| ratio | target | gate | measured | range | verdict |\n|---|--:|--:|--:|--:|---|")
	for _, j := range list {
		sign := "≥"
		if j.atMost {
			sign = "≤"
		}
		measured, span := "", ""
		if len(j.values) > 0 {
			measured = number(j.median())
			span = number(slices.Min(j.values)) + "–" + number(slices.Max(j.values))
		}
		p.linef("| %s | %s %s | %s | %s | %s | %s |", j.title, sign, number(j.target), number(j.gate), measured, span, j.verdict())
	}
	p.linef("")
}

// work is the table of those who do the standard work.
func (p *page) work(kind harness.Kind, title string) {
	p.linef("## %s\n", title)
	p.linef("| | effects/s | deliveries/s | CPU µs per effect, client + server | bytes per effect | × B2 | × River tx |")
	p.linef("|---|--:|--:|--:|--:|--:|--:|")
	for _, m := range p.of(kind, "effects") {
		rows := p.rowsOf(m.Name)
		p.linef("| %s | %s | %s | %s + %s | %s | %s | %s |", m.Title, number(median(rows, perSecond)), number(median(rows, deliveries)),
			number(median(rows, clientCPU)), number(median(rows, serverCPU)), written(rows), p.ratio(m.Name, m.Beside("b2")),
			p.ratio(m.Name, "river-tx"))
	}
	p.linef("")
	if kind == harness.Semel {
		p.linef("Bytes are those that PostgreSQL wrote ahead (WAL), and on SQLite those of the file at the end, the queue's free pages")
		p.linef("included. Checkpoints take part only in the long runs of 300,000 messages (`make bench-long`), which are compared with a B2")
		p.linef("of the same rounds and size%s.\n", p.longLoad())
	}
	if kind == harness.Peer {
		p.inexact()
	}
}

// longLoad tells the load average before the long runs.
func (p *page) longLoad() string {
	rows := p.rowsOf("b2-long")
	if len(rows) == 0 {
		return ""
	}
	return fmt.Sprintf("; the load average before them was %s on %d cores", number(rows[0].Load), p.about.Cores)
}

// written is what one effect made the database write; "" = it was not measured.
func written(rows []harness.Row) string {
	if v := max(median(rows, wal), value(rows, "file_bytes")); v >= 1 {
		return number(v)
	}
	return ""
}

// inexact names those whose ledger held effects twice.
func (p *page) inexact() {
	for _, m := range p.of(harness.Peer, "effects") {
		rows := p.rowsOf(m.Name)
		if len(rows) > 0 && rows[0].Ledger != nil && !rows[0].Ledger.Exact(rows[0].N) {
			p.linef("%s: %d effects of %d messages in the first round; distinct messages are counted.\n",
				m.Title, rows[0].Ledger.Rows, rows[0].N)
		}
	}
}

// others is the table of what is not the standard work: limits, claims, the engine.
func (p *page) others() {
	for _, part := range []struct {
		title string
		kind  harness.Kind
	}{{"Claims and engine", harness.Semel}, {"Limits", harness.Limit}} {
		p.linef("## %s\n", part.title)
		p.linef("| | per second | | CPU µs each, client + server | median time, µs |\n|---|--:|---|--:|--:|")
		for _, m := range p.of(part.kind, "") {
			rows := p.rowsOf(m.Name)
			mid := ""
			if v := median(rows, p50); v > 0 {
				mid = number(v)
			}
			use := number(median(rows, clientCPU)) + " + " + number(median(rows, serverCPU))
			title := m.Title + p.values(rows)
			p.linef("| %s | %s | %s | %s | %s |", title, number(median(rows, perSecond)), m.Unit, use, mid)
		}
		p.linef("")
	}
}

// values are the further figures of a measure, in parentheses.
func (p *page) values(rows []harness.Row) string {
	if len(rows) == 0 || len(rows[0].Values) == 0 {
		return ""
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(rows[0].Values)) {
		list = append(list, strings.ReplaceAll(name, "_", " ")+" "+number(value(rows, name)))
	}
	return " (" + strings.Join(list, ", ") + ")"
}

func (p *page) settings() {
	p.linef("## Settings\n")
	p.linef("PostgreSQL: %s. Redis: %s. Every measure starts in an empty database, after a checkpoint.\n",
		harness.PostgresSettings, harness.RedisSettings)
	p.linef("| measure | n | settings |\n|---|--:|---|")
	for _, m := range p.measures {
		if rows := p.rowsOf(m.Name); len(rows) > 0 {
			p.linef("| `%s`: %s | %d | %s |", m.Name, m.Title, rows[0].N, m.Settings)
		}
	}
	p.linef("")
}

func (p *page) machine() {
	a := p.about
	p.linef("## Machine\n")
	p.linef("%s, %d cores, %s of memory, %s; load average %s before. %s.\n", a.Machine, a.Cores, a.Memory, a.System,
		number(a.Load), a.At.Format("2 January 2006"))
	var list []string
	for _, name := range slices.Sorted(maps.Keys(a.Versions)) {
		list = append(list, name+" "+a.Versions[name])
	}
	p.linef("%s.", strings.Join(list, ", "))
}

// ownSection are the units of measures that have a section of their own.
var ownSection = []string{"effects", sweepUnit, growthUnit}

// of lists the measured ones of a kind: those that count unit, or with "" those that have no section of their own.
func (p *page) of(kind harness.Kind, unit string) (list []harness.Measure) {
	for _, m := range p.measures {
		if m.Kind == kind && (m.Unit == unit || unit == "" && !slices.Contains(ownSection, m.Unit)) && len(p.rowsOf(m.Name)) > 0 {
			list = append(list, m)
		}
	}
	return list
}

func (p *page) rowsOf(name string) (rows []harness.Row) {
	for _, r := range p.rows {
		if r.Measure == name {
			rows = append(rows, r)
		}
	}
	return rows
}

// ratio is the median of the ratios of the rates inside the rounds.
func (p *page) ratio(of, by string) string {
	var list []float64
	for _, r := range p.rounds {
		if v, ok := rate(of, by)(r); ok {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return number(harness.Median(list))
}

func clientCPU(r harness.Row) float64 { return r.ClientCPU }
func serverCPU(r harness.Row) float64 { return r.ServerCPU }

func median(rows []harness.Row, of func(harness.Row) float64) float64 {
	list := make([]float64, 0, len(rows))
	for _, r := range rows {
		list = append(list, of(r))
	}
	return harness.Median(list)
}

// number writes three digits that count, and thousands with commas.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		s := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a == math.Trunc(a):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
