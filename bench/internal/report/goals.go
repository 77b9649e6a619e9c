// Package report judges rows against the goals and writes them down: a page, a chart, and the verdict of the gate.
package report

import (
	"fmt"

	"github.com/semel-dev/semel/bench/internal/harness"
)

// round is what one round measured, by the name of the measure.
type round map[string]harness.Row

// goal is one ratio (or figure) with what is aimed at and what must be held.
type goal struct {
	title        string
	target, gate float64
	// atMost turns the comparison round: the value must not be above.
	atMost bool
	unit   string
	// value is the figure of one round; ok is false when the round lacks a measure.
	value func(r round) (v float64, ok bool)
}

// goals are the project's, in the order of the report.
var goals = []goal{
	{title: "queued statements, batch 100, 1 committer ÷ B2", target: 6, gate: 4.5, value: rate("semel-pg-queued-1", "b2")},
	{title: "the same, 2 committers sharded by key ÷ B2", target: 10, gate: 7, value: rate("semel-pg-queued-2", "b2")},
	{title: "batch handler, batch 1,000, 2 committers ÷ B2", target: 18, gate: 12, value: rate("semel-pg-batch", "b2")},
	{title: "queued statements ÷ River JobCompleteTx", target: 15, gate: 10, value: rate("semel-pg-queued-1", "river-tx")},
	{title: "queue in PostgreSQL ÷ River JobCompleteTx", target: 8, gate: 6, value: rate("semel-pg-queue", "river-tx")},
	{title: "queued statements ÷ River as it is", target: 5, gate: 3.5, value: rate("semel-pg-queued-1", "river")},
	{title: "queued statements ÷ watermill-sql", target: 5, gate: 3.5, value: rate("semel-pg-queued-1", "watermill")},
	{title: "queued statements ÷ asynq", target: 5, gate: 3.5, value: rate("semel-pg-queued-1", "asynq")},
	{title: "queued statements ÷ gue", target: 5, gate: 3.5, value: rate("semel-pg-queued-1", "gue")},
	{title: "synchronous SQL in the shared transaction ÷ B2", target: 1.5, gate: 1.2, value: rate("semel-pg-tx", "b2")},
	{title: "deliveries/s, batch handler, batch 1,000, 2 committers ÷ raw unnest-1,000 rows/s", target: 0.6, gate: 0.45,
		value: over(deliveries, "semel-pg-batch", perSecond, "unnest-1000")},
	{title: "CPU per effect, queued statements ÷ B2's", target: 0.10, gate: 0.14, atMost: true,
		value: over(cpu, "semel-pg-queued-1", cpu, "b2")},
	{title: "claim mode ÷ two autocommits, 256 callers", target: 7, gate: 5, value: rate("semel-pg-claims-256", "two-commits-256")},
	{title: "claim mode ÷ two autocommits, 32 callers", target: 2.2, gate: 1.7, value: rate("semel-pg-claims-32", "two-commits-32")},
	{title: "claim mode ÷ two autocommits, 1 caller", target: 0.85, gate: 0.75, value: rate("semel-pg-claims-1", "two-commits-1")},
	{title: "claim operations/s, PostgreSQL, 256 callers ÷ raw unnest-1,000 rows/s", target: 0.6, gate: 0.45,
		value: over(operations, "semel-pg-claims-256", perSecond, "unnest-1000")},
	{title: "claim operations/s, SQLite, 256 callers ÷ raw inserts batch 1,000", target: 0.6, gate: 0.45,
		value: over(operations, "semel-sqlite-claims-256", perSecond, "sqlite-1000")},
	{title: "SQLite queue, records, effects, batch 100 ÷ raw inserts batch 100", target: 0.5, gate: 0.35,
		value: rate("semel-sqlite", "sqlite-100")},
	{title: "SQLite queue, records, effects in one file ÷ B2 on PostgreSQL", target: 7, gate: 5, value: rate("semel-sqlite", "b2")},
	{title: "median time of claim and completion, 1 caller ÷ two commits of the engine", target: 1.2, gate: 1.4, atMost: true,
		value: over(p50, "semel-pg-claims-1", p50, "two-commits-1")},
	{title: "PostgreSQL, insert rate of ordered keys, large store (size: see Growth) ÷ 1 M records", target: 0.9, gate: 0.7,
		value: figure("semel-pg-growth", "ordered_ratio")},
	{title: "PostgreSQL, the same, random keys", target: 0.7, gate: 0.4, value: figure("semel-pg-growth", "random_ratio")},
	{title: "SQLite, insert rate of ordered keys, large store (size: see Growth) ÷ 1 M records", target: 0.9, gate: 0.7,
		value: figure("semel-sqlite-growth", "ordered_ratio")},
	{title: "SQLite, the same, random keys", target: 0.7, gate: 0.4, value: figure("semel-sqlite-growth", "random_ratio")},
	{title: "300,000 messages: queued statements, batch 100, 1 committer ÷ B2", target: 7, gate: 5.5,
		value: rate("semel-pg-queued-1-long", "b2-long")},
	{title: "300,000 messages: the same, claimed at the commit ÷ B2", target: 10, gate: 8,
		value: rate("semel-pg-at-commit-long", "b2-long")},
	{title: "300,000 messages: batch handler, batch 1,000, 2 committers ÷ B2", target: 16, gate: 12,
		value: rate("semel-pg-batch-long", "b2-long")},
	{title: "300,000 messages: WAL bytes per effect, queued statements ÷ B2's", target: 1.5, gate: 2.5, atMost: true,
		value: over(wal, "semel-pg-queued-1-long", wal, "b2-long")},
	{title: "WAL bytes of a new key right after a checkpoint, ordered keys ÷ random keys", target: 0.25, gate: 0.5, atMost: true,
		value: figure("semel-pg-checkpoint", "ordered_to_random")},
	{title: "PostgreSQL, p99 of messages beside a sweep of a million ÷ without", target: 2, gate: 2, atMost: true,
		value: figure("semel-pg-sweep", "p99_ratio")},
	{title: "SQLite, p99 of messages beside a sweep of a million ÷ without", target: 2, gate: 2, atMost: true,
		value: figure("semel-sqlite-sweep", "p99_ratio")},
	{title: "Python, --pipe ÷ --exec", target: 20, gate: 15, value: rate("python-pipe", "python-exec")},
	{title: "Node.js, --pipe ÷ --exec", target: 20, gate: 15, value: rate("node-pipe", "node-exec")},
	{title: "Python, --pipe-batch 100 --effects sql ÷ Go batch handler, 100", target: 0.5, gate: 0.35, value: rate("python-pipe-batch", "go-batch")},
	{title: "Node.js, --pipe-batch 100 --effects sql ÷ Go batch handler, 100", target: 0.5, gate: 0.35, value: rate("node-pipe-batch", "go-batch")},
	{title: "engine alone, ns per message", target: 1000, gate: 2000, atMost: true, unit: "ns",
		value: figure("semel-engine-alone", "ns")},
	{title: "engine alone, bytes allocated per message", target: 16, gate: 64, atMost: true, unit: "bytes",
		value: figure("semel-engine-alone", "bytes")},
}

func perSecond(r harness.Row) float64  { return r.PerSecond }
func operations(r harness.Row) float64 { return 2 * r.PerSecond } // a pair is a claim and a completion
func deliveries(r harness.Row) float64 { return float64(r.Deliveries) / r.Seconds }
func cpu(r harness.Row) float64        { return r.CPU() }
func wal(r harness.Row) float64        { return r.WAL }
func p50(r harness.Row) float64        { return r.P50 }

// rate divides the rates of two measures of one round.
func rate(of, by string) func(round) (float64, bool) { return over(perSecond, of, perSecond, by) }

func over(a func(harness.Row) float64, of string, b func(harness.Row) float64, by string) func(round) (float64, bool) {
	return func(r round) (float64, bool) {
		x, ok1 := r[of]
		y, ok2 := r[by]
		if !ok1 || !ok2 || b(y) == 0 {
			return 0, false
		}
		return a(x) / b(y), true
	}
}

// figure is one of a measure's own values.
func figure(of, name string) func(round) (float64, bool) {
	return func(r round) (float64, bool) {
		v, ok := r[of].Values[name]
		return v, ok
	}
}

// judged is a goal with what was measured.
type judged struct {
	goal
	values []float64 // one per round
}

func (j *judged) median() float64 { return harness.Median(j.values) }

// The verdicts.
const (
	met         = "met"
	gateHeld    = "gate held" // and the target missed
	belowGate   = "**below the gate**"
	notMeasured = "not measured"
)

func (j *judged) verdict() string {
	better := func(limit float64) bool {
		if j.atMost {
			return j.median() <= limit
		}
		return j.median() >= limit
	}
	switch {
	case len(j.values) == 0:
		return notMeasured
	case better(j.target):
		return met
	case better(j.gate):
		return gateHeld
	}
	return belowGate
}

// judge takes every goal's value in every round.
func judge(rows []harness.Row) []judged {
	rounds := byRound(rows)
	out := make([]judged, 0, len(goals))
	for _, g := range goals {
		j := judged{goal: g}
		for _, r := range rounds {
			if v, ok := g.value(r); ok {
				j.values = append(j.values, v)
			}
		}
		out = append(out, j)
	}
	return out
}

func byRound(rows []harness.Row) []round {
	var rounds []round
	for _, row := range rows {
		for len(rounds) < row.Round {
			rounds = append(rounds, round{})
		}
		rounds[row.Round-1][row.Measure] = row
	}
	return rounds
}

// Below lists the goals that are below their gates, in words, and those that were not measured.
func Below(rows []harness.Row) (below, missing []string) {
	for _, j := range judge(rows) {
		switch j.verdict() {
		case belowGate:
			below = append(below, fmt.Sprintf("%s: %s, gate %s", j.title, number(j.median()), number(j.gate)))
		case notMeasured:
			missing = append(missing, j.title)
		}
	}
	return below, missing
}
