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
	if v.Timeline != nil {
		p.scenario(v)
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

// scenario prints one scenario: what happens, with which designs, the result, and what to do.
func (p *printer) scenario(v verdict.Verdict) {
	s := v.Timeline.Scenario
	name, title := s.Name, s.Title
	if name == demoName {
		name, title = "semel demo", fmt.Sprintf("%s of %s, %s, seed %d", words.Count(s.Load.Orders, "order", "orders"),
			Money(s.Load.Amount, s.Load.Currency), words.Count(s.Workers.Count, "worker process", "worker processes"), v.Timeline.Seed)
	}
	p.line("")
	p.wrap("  "+p.style(bold, name)+"  ", len(name)+4, title)
	p.line("")
	for _, t := range v.Timeline.Runs {
		p.labelled("guard "+string(t.Run.Guard), "", t.Run.Design.Sentence())
	}
	p.line("")
	p.figures(v.Runs)
	for _, t := range v.Timeline.Runs {
		p.transcript(s, t)
	}
	for _, t := range v.Timeline.Runs {
		p.labelled("guard "+string(t.Run.Guard), badIf(t.Run.Verdict == plan.Broken), happened(t))
	}
	for _, r := range v.Runs {
		for _, m := range r.Missed {
			p.labelled("missed", bold+";"+red, fmt.Sprintf("guard %s: %s", r.Guard, m))
		}
	}
	if s.Asks != "" {
		p.line("")
	}
	p.labelled("question", "", s.Asks)
	p.labelled("hint", "", s.Hint)
}

// labelColumns is how wide a label is.
const labelColumns = 9

// labelled prints a label, and text next to it, if there is any.
func (p *printer) labelled(label, code, text string) {
	if text != "" {
		p.wrap("  "+p.style(code, fmt.Sprintf("%-*s", labelColumns, label))+"  ", labelColumns+4, text)
	}
}

// wrap prints text behind a head of that many columns, broken at the terminal's width.
func (p *printer) wrap(head string, columns int, text string) {
	p.b.WriteString(head)
	at := columns
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i > 0 && at+1+n > p.width:
			p.b.WriteString("\n" + strings.Repeat(" ", columns))
			at = columns
		case i > 0:
			p.b.WriteString(" ")
			at++
		}
		p.b.WriteString(word)
		at += n
	}
	p.b.WriteString("\n")
}

// figures prints the runs side by side. Cells are padded before they are coloured.
func (p *printer) figures(runs []verdict.Run) {
	row := func(label string, cells []cell) {
		var b strings.Builder
		fmt.Fprintf(&b, "  %-28s", label)
		for _, c := range cells {
			pad := strings.Repeat(" ", max(0, 14-len([]rune(c.Text))))
			b.WriteString(pad + p.style(map[string]string{"bad": red, "good": green, "bold": bold}[c.Tone], c.Text))
		}
		p.line("%s", b.String())
	}
	var head, last []cell
	for _, r := range runs {
		head = append(head, cell{"guard " + string(r.Guard), "bold"})
		last = append(last, cell{string(r.Verdict), toneOf(r.Verdict == plan.Broken)})
	}
	row("", head)
	for _, f := range figures(runs) {
		row(f.Label, f.Cells)
	}
	row("verdict", last)
	p.line("")
}

// transcript prints the workers' log of a scenario whose message has a name: its lines, and nothing else on them.
func (p *printer) transcript(s plan.Scenario, t verdict.RunTimeline) {
	if len(t.Transcript) == 0 {
		return
	}
	p.line("  %s  %s", p.style(bold, "log, guard "+string(t.Run.Guard)), p.style(dim, faster(s)))
	for _, one := range t.Transcript {
		p.line("    %s  %s", p.style(dim, fmt.Sprintf("%5.1f s", one.Seconds)), one.Text)
	}
	if t.Refused > 0 {
		p.line("    %s", p.style(dim, refusedText(t.Refused)))
	}
	p.line("")
}

// faster says whose seconds a transcript uses.
func faster(s plan.Scenario) string {
	if s.Load.Faster <= 0 || s.Load.Faster == 1 {
		return "in seconds"
	}
	return fmt.Sprintf("in the document's seconds: time runs %g× as fast here", s.Load.Faster)
}

func refusedText(n int) string {
	if n == 1 {
		return "(the other run worked to its end too; its record was refused, and says nothing)"
	}
	return fmt.Sprintf("(%d other runs worked to their end too; their records were refused, and say nothing)", n)
}

// happened describes the result of a run, with a key of each cause as an example.
func happened(t verdict.RunTimeline) string {
	text := harm(t.Run)
	text = strings.ToUpper(text[:1]) + text[1:]
	var causes, examples []string
	n := verdict.Causes(t.Doubles)
	for _, c := range verdict.AllCauses {
		if n[c] > 0 {
			causes = append(causes, fmt.Sprintf("%d %s", n[c], causeTexts[c]))
			d := example(t.Doubles, c)
			examples = append(examples, fmt.Sprintf(" %s was charged %d×: %s.", d.Key, d.Charges, d.Why))
		}
	}
	if len(causes) > 1 {
		text += ": " + strings.Join(causes, ", ")
	}
	text += "." + strings.Join(examples, "")
	switch {
	case len(t.Doubles) > 0:
	case len(t.Lost) > 0:
		text += fmt.Sprintf(" %s has no effect and no dead letter, and nothing is left in the queue.", t.Lost[0])
	case len(t.SetBack) > 0:
		text += fmt.Sprintf(" %s ended with an older version, or had one in between.", t.SetBack[0])
	}
	if t.Run.Guard == plan.GuardOn && t.Run.Verdict == plan.Broken {
		text += " Please report it with the seed."
	}
	return text
}

// example picks the plainest order of a cause: the one with the fewest charges.
func example(ds []verdict.Double, c verdict.DoubleCause) (best verdict.Double) {
	for _, d := range ds {
		if d.Cause == c && (best.Charges == 0 || d.Charges < best.Charges) {
			best = d
		}
	}
	return best
}

func badIf(bad bool) string {
	if bad {
		return red
	}
	return green
}

func (p *printer) tail(v verdict.Verdict) {
	p.line("")
	var ms int64
	for _, r := range v.Runs {
		ms += r.ElapsedMS
	}
	mark := "✔ as expected"
	if !v.OK() {
		mark = "✘ not as expected"
	}
	p.line("  %s  %s", p.style(bold+";"+badIf(!v.OK()), mark), p.style(dim, verdict.Seconds(float64(ms))))
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
