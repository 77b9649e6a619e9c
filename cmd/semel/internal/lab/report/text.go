package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/words"
)

// WriteText writes a verdict for a person: one screen. color turns on colours, for an output.Safe; width is the terminal's, 0 = 80.
func WriteText(w io.Writer, v verdict.Verdict, color bool, width int) error {
	p := &printer{color: color, width: min(max(width, 40), 100)}
	if width == 0 {
		p.width = 80
	}
	if v.Timeline != nil && v.Timeline.Scenario.Name != demoName {
		p.scenario(v)
	} else {
		p.headline(v)
		p.table(v.Runs)
		if v.Timeline != nil {
			for _, t := range v.Timeline.Runs {
				p.tale(t)
			}
		}
	}
	p.tail(v)
	_, err := io.WriteString(w, p.b.String())
	if err != nil {
		return fmt.Errorf("write the verdict: %w", err)
	}
	return nil
}

type printer struct {
	b     strings.Builder
	color bool
	width int
}

// The ANSI styles in use.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (p *printer) style(code, s string) string {
	if !p.color || s == "" || code == "" {
		return s
	}
	return output.Style(code, s)
}

func (p *printer) line(format string, a ...any) { fmt.Fprintf(&p.b, format+"\n", a...) }

func (p *printer) headline(v verdict.Verdict) {
	if v.Timeline == nil {
		return
	}
	s := v.Timeline.Scenario
	p.line("")
	p.line("  %s  %s of %s, %s, seed %d", p.style(bold, "semel demo"), words.Count(s.Load.Orders, "order", "orders"),
		Money(s.Load.Amount, s.Load.Currency), words.Count(s.Workers.Count, "worker process", "worker processes"), v.Timeline.Seed)
	p.line("")
}

// table prints the runs side by side. Cells are padded before they are coloured.
func (p *printer) table(runs []verdict.Run) {
	row := func(label string, cell func(verdict.Run) (text, code string)) {
		var b strings.Builder
		fmt.Fprintf(&b, "  %-28s", label)
		for _, r := range runs {
			text, code := cell(r)
			pad := strings.Repeat(" ", max(0, 14-len([]rune(text))))
			b.WriteString(pad + p.style(code, text))
		}
		p.line("%s", b.String())
	}
	number := func(f func(verdict.Run) int) func(verdict.Run) (string, string) {
		return func(r verdict.Run) (string, string) { return fmt.Sprint(f(r)), "" }
	}
	harm := func(f func(verdict.Run) int) func(verdict.Run) (string, string) {
		return func(r verdict.Run) (string, string) { return fmt.Sprint(f(r)), badIf(f(r) > 0) }
	}
	row("", func(r verdict.Run) (string, string) { return "guard " + string(r.Guard), bold })
	row("orders sent", number(func(r verdict.Run) int { return r.Sent }))
	row("deliveries by the queue", number(func(r verdict.Run) int { return r.Delivered }))
	row("workers killed (SIGKILL)", number(func(r verdict.Run) int { return r.Kills }))
	row("duplicates skipped", number(func(r verdict.Run) int { return r.Replayed }))
	row("charges in the ledger", number(func(r verdict.Run) int { return r.Effects }))
	row("duplicate charges", harm(func(r verdict.Run) int { return r.Duplicated }))
	row("lost", harm(func(r verdict.Run) int { return r.Lost }))
	row("money charged too much", func(r verdict.Run) (string, string) {
		return Money(r.DamageMinor, r.Currency), badIf(r.DamageMinor > 0)
	})
	row("verdict", func(r verdict.Run) (string, string) {
		return string(r.Verdict), bold + ";" + badIf(r.Verdict == plan.Broken)
	})
	p.line("")
}

func badIf(bad bool) string {
	if bad {
		return red
	}
	return green
}

func (p *printer) tale(t verdict.RunTimeline) {
	if t.Run.Guard == plan.GuardOn {
		p.wrap(p.style(green, "guard on "), onText(t))
		return
	}
	p.wrap(p.style(red, "guard off"), offText(t))
	for _, c := range []verdict.DoubleCause{verdict.CauseKilled, verdict.CauseOverrun, verdict.CauseProducer} {
		if d, ok := example(t.Doubles, c); ok {
			p.wrap("         ", fmt.Sprintf("%s was charged %d×: %s.", d.Key, d.Charges, d.Why))
		}
	}
}

// example picks the plainest order of a cause: the one with the fewest charges.
func example(ds []verdict.Double, c verdict.DoubleCause) (best verdict.Double, ok bool) {
	for _, d := range ds {
		if d.Cause == c && (!ok || d.Charges < best.Charges) {
			best, ok = d, true
		}
	}
	return best, ok
}

func offText(t verdict.RunTimeline) string {
	if len(t.Doubles) == 0 {
		return "No order was charged more than once in this run."
	}
	n := verdict.Causes(t.Doubles)
	var parts []string
	for _, c := range []struct {
		cause verdict.DoubleCause
		text  string
	}{
		{verdict.CauseKilled, "after a kill between effect and ack"},
		{verdict.CauseOverrun, "held for longer than the visibility"},
		{verdict.CauseProducer, "sent twice by the producer"},
		{verdict.CauseUnknown, "for reasons that the events do not show"},
	} {
		if n[c.cause] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[c.cause], c.text))
		}
	}
	return fmt.Sprintf("%s charged more than once: %s.", words.Count(len(t.Doubles), "order", "orders"), strings.Join(parts, ", "))
}

func onText(t verdict.RunTimeline) string {
	if t.Run.Verdict != plan.Held {
		return fmt.Sprintf("The guard did not hold: %d charged more than once, %d lost. Please report it with the seed.",
			t.Run.Duplicated, t.Run.Lost)
	}
	return fmt.Sprintf("The same load and the same kills, and %d more. Each charge committed together with its record "+
		"and its ack; %s found the record and were skipped.",
		max(0, t.Run.Kills-t.SharedKills), words.Count(t.Run.Replayed, "duplicate", "duplicates"))
}

// labelColumns is how wide a label is.
const labelColumns = 9

// wrap prints text behind a label of labelColumns, broken at the width.
func (p *printer) wrap(label, text string) {
	indent := strings.Repeat(" ", labelColumns+4)
	at := len(indent)
	p.b.WriteString("  " + label + "  ")
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i > 0 && at+1+n > p.width:
			p.b.WriteString("\n" + indent)
			at = len(indent)
		case i > 0:
			p.b.WriteString(" ")
			at++
		}
		p.b.WriteString(word)
		at += n
	}
	p.b.WriteString("\n")
}

func (p *printer) tail(v verdict.Verdict) {
	p.line("")
	var ms int64
	for _, r := range v.Runs {
		ms += r.ElapsedMS
	}
	if v.OK() {
		p.line("  %s  %s", p.style(bold+";"+green, "✔ as expected"), p.style(dim, verdict.Seconds(float64(ms))))
	} else {
		p.line("  %s  %s", p.style(bold+";"+red, "✘ not as expected"), p.style(dim, verdict.Seconds(float64(ms))))
	}
	if v.Report != "" {
		p.line("  report  %s", v.Report)
	}
	if v.Timeline != nil {
		p.line("  repeat  %s", v.Timeline.Repeat)
	}
	if v.Kept != "" {
		p.kept(v)
	}
	p.line("")
}

// kept shows how to look at what was kept.
func (p *printer) kept(v verdict.Verdict) {
	p.line("  kept    %s", v.Kept)
	for i, r := range v.Runs {
		if len(v.KeptIn) < 2*i+2 {
			return
		}
		store, queue := v.KeptIn[2*i], v.KeptIn[2*i+1]
		if r.Guard == plan.GuardOff {
			p.line("          semel records ls --store '%s' # none: the guard was off", store)
			continue
		}
		p.line("          semel records ls --store '%s' --limit 5", store)
		p.line("          semel records get order-0001 --store '%s'", store)
		p.line("          semel dlq ls --queue '%s'", queue)
	}
}

// Money writes an amount in minor units: ¥100,000 for 100000 JPY. Other currencies get their code and two decimals.
func Money(minor int64, currency string) string {
	if currency == "JPY" {
		return "¥" + thousands(minor)
	}
	return fmt.Sprintf("%s %s.%02d", currency, thousands(minor/100), minor%100)
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// WriteLine writes a verdict as one line, for lists of scenarios.
func WriteLine(w io.Writer, v verdict.Verdict, color bool) error {
	p := &printer{color: color}
	mark := p.style(bold+";"+green, "✔")
	if !v.OK() {
		mark = p.style(bold+";"+red, "✘")
	}
	name, parts := "", []string{}
	for _, r := range v.Runs {
		name = r.Scenario
		text := fmt.Sprintf("guard %s %s (%s)", r.Guard, r.Verdict, summary(r))
		if len(r.Missed) > 0 {
			text += ": " + strings.Join(r.Missed, ", ")
		}
		parts = append(parts, text)
	}
	p.line("%s %-16s %s", mark, name, strings.Join(parts, " · "))
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write the verdict: %w", err)
	}
	return nil
}

// summary is what counts in a run.
func summary(r verdict.Run) string {
	parts := []string{fmt.Sprintf("%d of %d", r.Effects, r.Sent)}
	if r.Effects > r.Sent && r.Duplicated == 0 {
		// Versions that replace each other, steps and what undoes them.
		parts[0] = fmt.Sprintf("%d effects for %d keys", r.Effects, r.Sent)
	}
	for _, c := range []struct {
		n    int
		what string
	}{{r.Duplicated, "doubled"}, {r.Lost, "lost"}, {r.Regressed, "set back"}, {r.Standing, "not undone"}, {r.Dead, "dead letters"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(parts, ", ")
}
