package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/internal/words"
)

// figureRow is one figure of all runs.
type figureRow struct {
	Label string
	Cells []cell
	// Strong: the verdict depends on it; Rule draws a line above it.
	Strong, Rule bool
}

type cell struct{ Text, Tone string }

// figures are the rows that matter. A row that is zero in every run is left out unless readers look for it.
func figures(runs []verdict.Run) (out []figureRow) {
	count := func(label string, always bool, n func(verdict.Run) int, harm bool) {
		row, any := figureRow{Label: label, Strong: harm}, always
		for _, r := range runs {
			c := cell{Text: fmt.Sprint(n(r))}
			if harm {
				c.Tone = toneOf(n(r) > 0)
			}
			row.Cells, any = append(row.Cells, c), any || n(r) > 0
		}
		if any {
			out = append(out, row)
		}
	}
	count("orders sent", true, func(r verdict.Run) int { return r.Sent }, false)
	count("deliveries by the queue", true, func(r verdict.Run) int { return r.Delivered }, false)
	count("workers killed (SIGKILL)", false, func(r verdict.Run) int { return r.Kills }, false)
	count("handler runs", true, func(r verdict.Run) int { return r.Executed }, false)
	count("most runs of one key at once", true, func(r verdict.Run) int { return r.Holders }, false)
	count("taken over", false, func(r verdict.Run) int { return r.TakenOver }, false)
	count("put back: at work elsewhere", false, func(r verdict.Run) int { return r.Busy }, false)
	count("duplicates skipped", false, func(r verdict.Run) int { return r.Replayed }, false)
	count("too late, and fenced", false, func(r verdict.Run) int { return r.Fenced }, false)
	count("stale versions skipped", false, func(r verdict.Run) int { return r.Stale }, false)
	count("dead letters", false, func(r verdict.Run) int { return r.Dead }, false)
	count("parked for a person", false, func(r verdict.Run) int { return r.Parked }, false)
	count("largest backlog", false, func(r verdict.Run) int { return r.Backlog }, false)
	count("most workers at once", false, func(r verdict.Run) int { return r.Peak }, false)
	rule := len(out)
	count("charges in the ledger", true, func(r verdict.Run) int { return r.Effects }, false)
	out[rule].Rule = true
	count("duplicate charges", true, func(r verdict.Run) int { return r.Duplicated }, true)
	count("lost", true, func(r verdict.Run) int { return r.Lost }, true)
	count("set back to an older version", false, func(r verdict.Run) int { return r.Regressed }, true)
	count("steps that were not undone", false, func(r verdict.Run) int { return r.Standing }, true)
	money := figureRow{Label: "money charged too much", Strong: true}
	for _, r := range runs {
		money.Cells = append(money.Cells, cell{Money(r.DamageMinor, r.Currency), toneOf(r.DamageMinor > 0)})
	}
	return append(out, money)
}

func toneOf(bad bool) string {
	if bad {
		return "bad"
	}
	return "good"
}

// outcome is the result of a scenario in a sentence or two.
func outcome(v verdict.Verdict) string {
	var parts []string
	for _, r := range v.Runs {
		name := "Without the guard"
		if r.Guard == plan.GuardOn {
			name = "With the guard"
		}
		parts = append(parts, name+": "+harm(r)+".")
	}
	return strings.Join(parts, " ")
}

// harm describes what went wrong in a run, or that nothing did.
func harm(r verdict.Run) string {
	var parts []string
	if r.Duplicated > 0 {
		parts = append(parts, words.Count(r.Duplicated, "charge", "charges")+" too many, "+Money(r.DamageMinor, r.Currency))
	}
	if r.Lost > 0 {
		parts = append(parts, words.Count(r.Lost, "order", "orders")+" lost")
	}
	if r.Regressed > 0 {
		parts = append(parts, words.Count(r.Regressed, "time", "times")+" an older version over a newer one")
	}
	if r.Standing > 0 {
		parts = append(parts, words.Count(r.Standing, "step", "steps")+" not undone")
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, "; ")
	case r.Verdict == plan.Broken:
		return "broken"
	case r.Dead+r.Parked > 0:
		return fmt.Sprintf("every order done once, or put aside with its reason (%d)", r.Dead+r.Parked)
	}
	return "every order done exactly once"
}

// settings are the scenario's, as far as they say something.
func (sc *scenarioView) settings() (out look.HTML) {
	s := sc.Timeline.Scenario
	add := func(name string, shown bool, format string, a ...any) {
		if shown {
			out += look.Format(`<div><dt>{}</dt><dd>{}</dd></div>`, name, fmt.Sprintf(format, a...))
		}
	}
	add("Orders", true, "%d × %s", s.Load.Orders, Money(s.Load.Amount, s.Load.Currency))
	add("Messages of each key", s.Load.PerKey > 1, "%d", s.Load.PerKey)
	add("Sent twice by the producer", s.Load.Retries > 0 || sc.Demo, "%d", s.Load.Retries)
	add("Sent again when all is done", s.Load.Again > 0, "%d", s.Load.Again)
	add("Orders that no handler can do", s.Load.Poison > 0, "%d", s.Load.Poison)
	add("Versions of each order", s.Load.Versions > 0, "%d", s.Load.Versions)
	add("Items in a message", s.Load.Items > 0, "%d, %d of them fail at first", s.Load.Items, s.Load.BadItems)
	add("Each order", s.Load.Saga, "a saga of these items")
	add("Each order", s.Load.Mail, "a charge and a mail")
	add("Messages a second", s.Load.Rate > 0, "%g", s.Load.Rate)
	add("Workers at the start", s.Workers.Scale.Backlog > 0, "%d, one for %d waiting", s.Workers.Scale.From, s.Workers.Scale.Backlog)
	add("Worker processes", true, "%d", s.Workers.Count)
	add("Handlers at once, guard on", true, "%d per worker", s.Workers.Concurrency)
	add("Buffer, guard off", true, "%s, one at a time", words.Count(s.Workers.Prefetch, "message", "messages"))
	add("Visibility timeout", true, "%s", s.Workers.Visibility)
	add("Heartbeat, guard off", s.Workers.Heartbeat, "every third of it")
	add("Attempts", s.Workers.MaxAttempts > 0, "%d", s.Workers.MaxAttempts)
	add("Handler", true, "%s to %s", s.Work.Min.Round(time.Millisecond), s.Work.Max.Round(time.Millisecond))
	add("Orders that hang once", s.Work.Slow > 0, "%d, for %s", s.Work.Slow, s.Work.SlowFor)
	add("Acks that the queue forgets", s.Wire.ForgetAck > 0, "%.0f %%", 100*s.Wire.ForgetAck)
	add("Acks without a response", s.Wire.LoseAck > 0, "%.0f %%", 100*s.Wire.LoseAck)
	add("Extensions that fail", s.Wire.FailExtend > 0, "%.0f %%", 100*s.Wire.FailExtend)
	add("Commits without a response", s.Wire.LoseCommit > 0, "%.0f %%", 100*s.Wire.LoseCommit)
	add("Services without a response", s.Wire.LoseEffect > 0, "%.0f %%", 100*s.Wire.LoseEffect)
	add("Slow calls of the store", s.Wire.SlowStore > 0, "%.0f %%, by %s", 100*s.Wire.SlowStore, s.Wire.SlowFor)
	add("Queue, records, ledger", true, "%s", sc.Timeline.Place)
	add("Seed", true, "%d", sc.Timeline.Seed)
	return out
}
