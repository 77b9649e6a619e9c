package report

import (
	"fmt"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

// scenario prints one scenario: what happens, with which designs, the result, and what to do.
func (p *printer) scenario(v verdict.Verdict) {
	s := v.Timeline.Scenario
	p.line("")
	p.para("  "+p.style(bold, s.Name)+"  ", len(s.Name)+4, s.Title)
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
		code := green
		if t.Run.Verdict == plan.Broken {
			code = red
		}
		p.labelled("guard "+string(t.Run.Guard), code, happened(t))
	}
	for _, r := range v.Runs {
		for _, m := range r.Missed {
			p.labelled("missed", bold+";"+red, fmt.Sprintf("guard %s: %s", r.Guard, m))
		}
	}
	p.line("")
	p.labelled("question", "", s.Asks)
	p.labelled("hint", "", s.Hint)
}

// labelled prints a label of nine columns, and text next to it.
func (p *printer) labelled(label, code, text string) {
	p.wrap(p.style(code, fmt.Sprintf("%-*s", labelColumns, label)), text)
}

// para prints text behind a head of that many columns, broken at the terminal's width.
func (p *printer) para(head string, columns int, text string) {
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

// happened describes the result of a run, with one key as an example.
func happened(t verdict.RunTimeline) string {
	text := strings.ToUpper(harm(t.Run)[:1]) + harm(t.Run)[1:] + "."
	switch {
	case len(t.Doubles) > 0:
		d := t.Doubles[0]
		for _, c := range verdict.AllCauses {
			if e, ok := example(t.Doubles, c); ok {
				d = e
				break
			}
		}
		text += fmt.Sprintf(" %s was charged %d×: %s.", d.Key, d.Charges, d.Why)
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
