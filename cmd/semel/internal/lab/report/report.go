// Package report tells verdicts to people: on a terminal, and as one HTML file that needs nothing else.
package report

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/internal/words"
)

//go:embed report.css
var reportCSS string

//go:embed report.js
var reportJS string

// The limits of one file, shared by its runs: deliveries that are drawn, and keys that have a timeline. With them a file
// stays below 8 MB, whatever the load was.
const (
	maxDrawn     = 6000
	maxTimelines = 240
)

// page is what the file shows.
type page struct {
	CSS   look.HTML
	JS    look.HTML
	Title string
	Made  string
	Many  bool
	// OK: every scenario came out as expected.
	OK             bool
	Headline, Lead string
	Repeat         string
	Scenarios      []*scenarioView
	JSON           string
}

// WriteReport writes a verdict as one HTML file that needs nothing else: no network, no fonts, no scripts from elsewhere.
// The file appears whole or not at all. A verdict without a Timeline is an error.
func WriteReport(path string, v verdict.Verdict) error {
	html, err := render([]verdict.Verdict{v}, false, "", time.Now())
	if err != nil {
		return err
	}
	return write(path, html)
}

// WriteAll writes the verdicts of many scenarios as one such file: an index, and a page for each. repeat is the command
// line that runs all of them again.
func WriteAll(path string, all []verdict.Verdict, repeat string) error {
	html, err := render(all, true, repeat, time.Now())
	if err != nil {
		return err
	}
	return write(path, html)
}

// temporary is the pattern of files that become a report.
const temporary = ".semel-report-*"

// Check returns an error if a report cannot be written there; "" means no report.
func Check(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder", path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), temporary)
	if err != nil {
		return err
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

func write(path string, html []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), temporary)
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

func render(all []verdict.Verdict, many bool, repeat string, now time.Time) ([]byte, error) {
	p := page{
		CSS: look.HTML(look.CSS + reportCSS), JS: look.HTML(reportJS), Many: many, OK: true, Repeat: repeat,
		Made: now.UTC().Format("2 January 2006, 15:04 UTC"),
	}
	runs := 0
	for _, v := range all {
		if v.Timeline == nil {
			return nil, errors.New("write the report: a verdict has no timeline")
		}
		runs += len(v.Runs)
	}
	if runs == 0 {
		return nil, errors.New("write the report: there are no runs")
	}
	drawn, timelines := maxDrawn/runs, max(1, maxTimelines/len(all))
	var merged verdict.Verdict
	for i, v := range all {
		sc := viewOfScenario(v, drawn, timelines)
		sc.Many = many
		if many {
			sc.neighbours(all, i)
		}
		p.Scenarios = append(p.Scenarios, sc)
		p.OK = p.OK && v.OK()
		merged.Runs = append(merged.Runs, v.Runs...)
	}
	merged.Verdict = verdict.AsExpected
	if !p.OK {
		merged.Verdict = verdict.Unexpected
	}
	if p.Title = p.Scenarios[0].Name + ": " + p.Scenarios[0].Headline; many {
		p.Headline, p.Lead = indexHeadline(all)
		p.Title = "lab: " + p.Headline
	}
	asJSON, err := json.MarshalIndent(merged, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the verdict: %w", err)
	}
	p.JSON = string(asJSON)
	return []byte(p.html()), nil
}

// indexHeadline says in a sentence what all scenarios came to.
func indexHeadline(all []verdict.Verdict) (title, lead string) {
	var off, on, offBroke, onBroke, unexpected int
	damage := map[string]int64{}
	currency := ""
	for _, v := range all {
		if !v.OK() {
			unexpected++
		}
		for _, r := range v.Runs {
			n := 0
			if r.Verdict == plan.Broken {
				n = 1
			}
			if r.Guard == plan.GuardOff {
				off, offBroke = off+1, offBroke+n
				damage[r.Currency] += r.DamageMinor
				currency = r.Currency
			} else {
				on, onBroke = on+1, onBroke+n
			}
		}
	}
	switch {
	case off > 0 && on > 0:
		title = fmt.Sprintf("Without the guard %d of %d broke. With it, %s.", offBroke, off, none(onBroke))
	case on > 0:
		title = fmt.Sprintf("With the guard, %s of %s broke.", none(onBroke), words.Count(on, "scenario", "scenarios"))
	default:
		title = fmt.Sprintf("Without the guard %d of %d broke.", offBroke, off)
	}
	lead = words.Count(len(all), "scenario", "scenarios") + ", run with real worker processes; "
	if unexpected == 0 {
		lead += "each came out as expected."
	} else {
		lead += fmt.Sprintf("%d did not come out as expected.", unexpected)
	}
	if len(damage) == 1 && damage[currency] > 0 {
		lead += fmt.Sprintf(" Charged too much without the guard: %s.", Money(damage[currency], currency))
	}
	return title, lead
}

func none(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}
