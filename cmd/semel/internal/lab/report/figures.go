package report

import (
	"fmt"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
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

// Figures are the scenario's.
func (sc *scenarioView) Figures() []figureRow { return figures(sc.Runs) }

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

// Short is one run in the index.
func (v *runView) Short() string { return harm(v.Run) }
