package report

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/semel-dev/semel/bench/internal/harness"
)

// growthUnit is what the measures of growth count.
const growthUnit = "records"

// growth is the section of stores that grow.
func (p *page) growth() {
	list := p.of(harness.Semel, growthUnit)
	if len(list) == 0 {
		return
	}
	p.linef("## Growth\n")
	p.linef("How fast records are added, claimed and completed by two callers in batches of 1,000, to a store of a million records (half")
	p.linef("of the large one's if it has fewer than two million) and to a large one: slices of 20,000 go to both in turn, because rates")
	p.linef("of different minutes do not compare. The records before were copied inside of the database. Keys have 36 bytes: in an order,")
	p.linef("as UUIDv7 are, or random. `make bench-long`, `make bench-long KEYS=2000000`.\n")
	p.linef("| | records before | small, records/s | large | large ÷ small, median | least pair | greatest pair | load average before |")
	p.linef("|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, m := range list {
		for _, r := range p.rowsOf(m.Name) {
			for _, order := range []string{"ordered", "random"} {
				of := func(name string) string { return number(r.Values[order+"_"+name]) }
				p.linef("| %s, %s keys | %s | %s | %s | %s | %s | %s | %s |", m.Title, order, number(float64(r.N)), of("small_per_second"),
					of("large_per_second"), of("ratio"), of("least"), of("greatest"), number(r.Load))
			}
		}
	}
	p.linef("")
	p.linef("A random key falls anywhere into the index, so that in a large store every key of a batch touches another page. PostgreSQL")
	p.linef("writes pages whole that are changed first after a checkpoint; its `max_wal_size` is the default of 1 GB. On SQLite a goroutine")
	p.linef("carries the log over beside the writer (`Options.Checkpoint`), so that no commit waits for the random writes of a whole log.\n")
}

// caches is the section of the cache before a store.
func (p *page) caches() {
	list := p.of(harness.Cache, "")
	if len(list) == 0 {
		return
	}
	p.linef("## A cache before the store\n")
	p.linef("`cache.New` before PostgreSQL, with room for all keys. Half of the duplicates are redeliveries under the id of the first")
	p.linef("delivery, half come under a new id from the producer; only `Strangers` settles those from memory. Claims are those that")
	p.linef("reached the store, calls its claims, commits and extensions. `go run . -measure cache` in `bench/`.\n")
	p.linef("| | claims per delivery | calls per 1,000 deliveries | deliveries/s | × no cache | CPU µs per delivery, client + server |")
	p.linef("|---|--:|--:|--:|--:|--:|")
	for _, m := range list {
		rows := p.rowsOf(m.Name)
		off := m.Name[:strings.LastIndex(m.Name, "-")] + "-off"
		p.linef("| %s | %s | %s | %s | %s | %s + %s |", m.Title, number(value(rows, "claims_per_delivery")),
			number(value(rows, "calls_per_thousand")), number(median(rows, perSecond)), p.ratio(m.Name, off),
			number(median(rows, clientCPU)), number(median(rows, serverCPU)))
	}
	p.linef("")
	p.linef("Duplicates of messages in flight never reach a store, with or without a cache: the engine handles them. Claims go in")
	p.linef("batches, so here a cache saves claims and some of the server's processor time, but hardly any calls. It costs this process")
	p.linef("some microseconds per delivery, and raises throughput only if nearly everything is a duplicate. It is made for stores in")
	p.linef("which every key takes its own call or is charged for, such as DynamoDB.\n")
}

// windowLines are the lines of the section of the long window: their title, and the value of the measure.
var windowLines = []struct{ title, name string }{
	{"bytes of an expired record, with its index", "bytes_per_expired"},
	{"the same on disk, with the room that it left free", "disk_per_expired"},
	{"bytes of it before it expired", "bytes_per_record"},
	{"the same on disk", "disk_per_record"},
	{"records expired a second by one sweep", "expired_per_second"},
	{"messages/s", "window_per_second"},
	{"÷ an empty database without a long-term period", "window_to_empty"},
}

// window is the section of the long window of keys.
func (p *page) window() {
	list := p.of(harness.Window, "")
	if len(list) == 0 {
		return
	}
	p.linef("## A long window of keys\n")
	p.linef("A consumer with `LongTerm` on a database that holds n EXPIRED records, made as messages and a sweep make them. Every 20th")
	p.linef("message is a late duplicate of one of them. All became dead letters and none of them ran, otherwise the figure is refused. The")
	p.linef("other database is empty, has no long-term period and gets no late duplicates. Batches of 10,000 messages go to both in turn.")
	p.linef(" `go run . -measure semel-sqlite-window,semel-pg-window -rounds 1` in `bench/`.\n")
	head, line := "| |", "|---|"
	for _, m := range list {
		head, line = head+" "+m.Title+" |", line+"--:|"
	}
	p.linef("%s\n%s", head, line)
	row := func(title string, of func(rows []harness.Row) float64) {
		text := "| " + title + " |"
		for _, m := range list {
			text += " " + number(of(p.rowsOf(m.Name))) + " |"
		}
		p.linef("%s", text)
	}
	row("expired records", func(rows []harness.Row) float64 { return float64(rows[0].N) })
	for _, l := range windowLines {
		row(l.title, func(rows []harness.Row) float64 { return value(rows, l.name) })
	}
	row("late duplicates sent", func(rows []harness.Row) float64 { return value(rows, "late") })
	row("of these became dead letters", func(rows []harness.Row) float64 { return value(rows, "late_dead_letters") })
	row("load average of the machine before", func(rows []harness.Row) float64 { return rows[0].Load })
	p.linef("")
}

// sweeps is the section of the sweep beside messages.
func (p *page) sweeps() {
	list := slices.DeleteFunc(p.of(harness.Semel, sweepUnit), func(m harness.Measure) bool {
		return value(p.rowsOf(m.Name), "p99_ratio") == 0
	})
	if len(list) == 0 {
		return
	}
	p.linef("## A sweep of a million\n")
	p.linef("How long messages are in flight, from receipt to settlement, while another consumer sweeps a million expired records in the")
	p.linef("same database, and while none does; quiet and busy times take turns.")
	p.linef("`go run . -measure semel-sqlite-sweep,semel-pg-sweep` in `bench/`.\n")
	p.linef("| | p50 quiet, µs | p50 beside the sweep | p99 quiet | p99 beside the sweep | ÷ quiet | purged/s | load average before |")
	p.linef("|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, m := range list {
		rows := p.rowsOf(m.Name)
		text := "| " + m.Title + " |"
		for _, name := range []string{"quiet_p50_us", "busy_p50_us", "quiet_p99_us", "busy_p99_us", "p99_ratio"} {
			text += " " + number(value(rows, name)) + " |"
		}
		p.linef("%s %s | %s |", text, number(median(rows, perSecond)), number(rows[0].Load))
	}
	p.linef("")
}

// sweepUnit is what the measures of a sweep count.
const sweepUnit = "purged records"

// value is the median of one of a measure's own figures.
func value(rows []harness.Row, name string) float64 {
	return median(rows, func(r harness.Row) float64 { return r.Values[name] })
}

// asides are the kinds that are measured by themselves: what their tables say, and what the others are compared with.
var asides = map[harness.Kind]struct{ title, text, by string }{
	harness.Language: {
		title: "Languages", by: "go",
		text: `20,000 deliveries of 16,000 messages; 500 of 400 with --exec, which starts a process for each. Handlers in Python and Node.js
are those of ` + "`semel work --effects sql`" + ` with queue, records and effects in one PostgreSQL; the Go ones are in the consumer's
process. BullMQ and Celery have their queue in Redis, and an inbox row in PostgreSQL. The clock runs from the first effect to the
last. ` + "`make bench-languages`",
	},
	harness.Broker: {
		title: "Brokers",
		text: `The standard work from one broker, with one effect a message in PostgreSQL: semel's queues with records in PostgreSQL, and
watermill's subscribers, whose handlers write inbox row and effect as one statement. ` + "`make bench-brokers`",
	},
}

// beside is the table of a kind that is measured by itself.
func (p *page) beside(kind harness.Kind) {
	list, a := p.of(kind, "effects"), asides[kind]
	if len(list) == 0 {
		return
	}
	p.linef("## %s\n\n%s.\n", a.title, a.text)
	p.linef("| | messages | rows | distinct keys | effects/s | × %s |\n|---|--:|--:|--:|--:|--:|", cmp.Or(a.by, "watermill"))
	for _, m := range list {
		rows := p.rowsOf(m.Name)
		by := a.by
		if kind == harness.Broker {
			by = "watermill-" + m.Name[strings.LastIndex(m.Name, "-")+1:]
		}
		l := rows[0].Ledger
		p.linef("| %s | %d | %d | %d | %s | %s |", m.Title, rows[0].N, l.Rows, l.IDs, number(median(rows, perSecond)), p.ratio(m.Name, by))
	}
	p.linef("")
}

// Table writes the tables of kinds that are measured by themselves, and the goals that were measured.
func Table(w io.Writer, about harness.About, measures []harness.Measure, rows []harness.Row) error {
	p := newPage(about, measures, rows)
	p.beside(harness.Language)
	p.beside(harness.Broker)
	p.judged(slices.DeleteFunc(judge(rows), func(j judged) bool { return len(j.values) == 0 }))
	_, err := io.WriteString(w, p.text.String())
	return err
}
