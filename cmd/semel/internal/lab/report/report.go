// Package report tells a verdict to people: on a terminal, and as one HTML file that needs nothing else.
package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
)

//go:embed report.html.tmpl
var reportTemplate string

//go:embed report.css
var reportCSS string

//go:embed report.js
var reportJS string

var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"seconds": verdict.Seconds,
	"money":   Money,
	"plural":  plural,
	"step":    stepText,
}).Parse(reportTemplate))

// page is what the template shows.
type page struct {
	verdict.Verdict
	CSS      template.CSS
	JS       template.JS
	Headline string
	Lead     string
	Made     string
	Currency string
	Off, On  *runView
	Views    []*runView
	Doubles  []doubleView
	JSON     string
}

// runView is one run in the report.
type runView struct {
	verdict.Tale
	Name  string // "Guard off"
	Parts []part
	Chart chart
	// Causes counts the doubled orders by cause.
	Causes map[string]int
}

// part is one part of the bar that shows what became of the deliveries.
type part struct {
	Class, Label string
	N            int
	Percent      float64
}

type doubleView struct {
	verdict.Double
	Off, On []verdict.Line
	Damage  int64
}

// WriteReport writes the verdict as one HTML file that needs nothing else: no network, no fonts, no scripts from
// elsewhere. The file appears whole or not at all. A verdict without a story (Verdict.Story) is an error.
func WriteReport(path string, v verdict.Verdict) error {
	html, err := renderReport(v, time.Now())
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".semel-report-*")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	_, err = tmp.Write(html)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the report %s: %w", path, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

func renderReport(v verdict.Verdict, now time.Time) ([]byte, error) {
	if v.Story == nil {
		return nil, errors.New("write the report: the verdict has no story")
	}
	asJSON, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the verdict: %w", err)
	}
	p := page{
		Verdict: v, CSS: template.CSS(reportCSS), JS: template.JS(reportJS), JSON: string(asJSON),
		Made: now.UTC().Format("2 January 2006, 15:04 UTC"), Currency: v.Story.Scenario.Load.Currency,
	}
	for i := range v.Story.Runs {
		view := viewOf(v.Story.Runs[i])
		p.Views = append(p.Views, view)
		switch view.Run.Guard {
		case plan.GuardOff:
			p.Off = view
		case plan.GuardOn:
			p.On = view
		}
	}
	p.Headline, p.Lead = headline(p)
	p.Doubles = doublesOf(p)
	var b bytes.Buffer
	if err := reportPage.Execute(&b, p); err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return b.Bytes(), nil
}

func viewOf(t verdict.Tale) *runView {
	v := &runView{Tale: t, Name: "Guard " + string(t.Run.Guard), Chart: draw(t), Causes: map[string]int{}}
	for cause, n := range verdict.Causes(t.Doubles) {
		v.Causes[string(cause)] = n
	}
	f := t.Flow
	total := f.Charged + f.Doubled + f.Skipped + f.Deferred + f.Cut + f.Other
	for _, p := range []part{
		{Class: "charge", Label: "charged", N: f.Charged},
		{Class: "double", Label: "charged again", N: f.Doubled},
		{Class: "skip", Label: "skipped: already done", N: f.Skipped},
		{Class: "defer", Label: "put back: at work elsewhere", N: f.Deferred},
		{Class: "cut", Label: "cut off by a kill", N: f.Cut},
		{Class: "other", Label: "given back unstarted", N: f.Other},
	} {
		if p.N > 0 {
			p.Percent = 100 * float64(p.N) / float64(total)
			v.Parts = append(v.Parts, p)
		}
	}
	return v
}

// headline says the result in one sentence, and what was done in another.
func headline(p page) (title, lead string) {
	s := p.Story.Scenario
	switch {
	case p.Off != nil && p.On != nil && p.OK():
		title = fmt.Sprintf("%s charged more than once. With the guard, none.", plural(len(p.Off.Doubles), "order was", "orders were"))
	case p.On != nil && p.On.Run.Verdict == plan.Broken:
		title = "The guard did not hold."
	case p.Off != nil && p.Off.Run.Verdict == plan.Held:
		title = "Nothing broke, even without the guard."
	default:
		title = "Every order was charged exactly once."
	}
	lead = fmt.Sprintf("%s of %s each, sent to %s over one queue. The producer sends some of them again, "+
		"and workers are killed with SIGKILL in the middle of their work.",
		plural(s.Load.Orders, "order", "orders"), Money(s.Load.Amount, s.Load.Currency),
		plural(s.Workers.Count, "worker process", "worker processes"))
	if p.Off != nil && p.On != nil {
		lead += " Once with a plain consumer, once with semel: the same load, the same faults."
	}
	return title, lead
}

// doublesOf lists the doubled orders with their story in both runs: kills first, then overruns, then the producer's.
func doublesOf(p page) []doubleView {
	var out []doubleView
	for _, cause := range []verdict.DoubleCause{verdict.CauseKilled, verdict.CauseOverrun, verdict.CauseUnknown, verdict.CauseProducer} {
		for _, view := range p.Views {
			for _, d := range view.Doubles {
				if d.Cause != cause {
					continue
				}
				one := doubleView{Double: d, Damage: int64(d.Charges-1) * p.Story.Scenario.Load.Amount}
				if p.Off != nil {
					one.Off = p.Off.About(d.Key)
				}
				if p.On != nil {
					one.On = p.On.About(d.Key)
				}
				out = append(out, one)
			}
		}
	}
	return out
}

func stepText(s plan.Step) string {
	switch s {
	case plan.AfterReceive:
		return "after the receive, before the claim"
	case plan.AfterClaim:
		return "after the claim, before the handler"
	case plan.AfterEffect:
		return "after the effect, before the ack"
	case plan.AfterCommit:
		return "after the commit, before its answer was seen"
	case plan.Outside:
		return "from outside, at any moment"
	}
	return string(s)
}
