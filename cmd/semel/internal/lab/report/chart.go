package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/plan"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/internal/words"
)

// The geometry of a timeline in pixels. Heights are fixed; the script lays the times out anew for every width and zoom.
const (
	chartWidth = 1040.0 // of the drawing without a script
	axisHeight = 26.0
	rowHeight  = 11.0
	laneHead   = 18.0
	laneFoot   = 7.0
)

// chart draws the timeline of a run. Times are milliseconds.
type chart struct {
	verdict.RunTimeline
	end    float64
	scale  float64 // pixels per millisecond without a script
	height float64
	tops   []float64 // of the lanes
	bars   []bar
	// leftOut are the plain deliveries that are not drawn; moreLeftOut the others.
	leftOut, moreLeftOut int
}

// bar is one delivery: a visibility window with a handler inside and marks on it.
type bar struct {
	*verdict.Span
	y float64 // of the row's middle
}

// over reports that the delivery was in flight for longer than its visibility.
func (b bar) over() bool { return b.To > b.VisibleUntil+1 }

// draw lays a run out over the time until end, with a maximum number of deliveries.
func draw(t verdict.RunTimeline, end float64, most int) chart {
	c := chart{RunTimeline: t, end: math.Max(end, 1), height: axisHeight}
	c.scale = (chartWidth - 16) / c.end
	for _, l := range t.Lanes {
		c.tops = append(c.tops, c.height)
		for _, p := range l.Processes {
			for _, s := range p.Spans {
				c.bars = append(c.bars, bar{s, c.height + laneHead + (float64(s.Row)+0.5)*rowHeight})
			}
		}
		c.height += laneHeight(l)
	}
	c.height += 4
	if len(t.Outages) > 0 {
		c.height += 12
	}
	plain := func(b bar) bool { return b.Fate() == verdict.Charged && len(b.Beats) == 0 && !b.over() }
	c.leftOut = c.thin(most, plain)
	c.moreLeftOut = c.thin(most, func(b bar) bool { return !plain(b) })
	return c
}

func laneHeight(l *verdict.Lane) float64 { return laneHead + float64(l.Rows)*rowHeight + laneFoot }

// thin drops deliveries of a kind, evenly over the picture, until at most n are left, and returns how many it dropped.
func (c *chart) thin(most int, kind func(bar) bool) (dropped int) {
	many := 0
	for _, b := range c.bars {
		if kind(b) {
			many++
		}
	}
	drop := min(len(c.bars)-most, many)
	if drop <= 0 {
		return 0
	}
	seen := 0
	c.bars = slices.DeleteFunc(c.bars, func(b bar) bool {
		if !kind(b) {
			return false
		}
		seen++
		return seen*drop/many > (seen-1)*drop/many
	})
	return drop
}

// html is the drawing. The script moves what has data-x, and stretches what has data-a and data-b.
func (c chart) html() look.HTML {
	var lanes, processes, stops, labels, deploys, deaths look.HTML
	for i, l := range c.Lanes {
		y, height := c.tops[i], laneHeight(l)
		lanes += look.Format(`<rect class="lane{}" x="0" y="{}" width="100%" height="{}"/>`, look.If(i%2 == 1, " odd"), y, height)
		for _, p := range l.Processes {
			who := fmt.Sprintf("worker %d (pid %d)", p.Worker, p.PID)
			processes += c.rect("seg", p.From, p.To, y+3, height-6, 3) + c.label("pid", 6, p.From, p.To, y+14, fmt.Sprintf("pid %d", p.PID))
			for _, f := range p.Frozen {
				stops += c.stretch("stop", f, p.To, y+3, height-6, who+" is frozen\nSIGSTOP, "+lasting(f, p.To))
				labels += c.label("why", 5, f.From, until(f, p.To), y+height-7, "frozen")
			}
			head := y + 9 // the middle of the mark
			if p.Asked > 0 {
				text := fmt.Sprintf("%s is replaced %s\ngone after %s", who, verdict.Seconds(p.Asked), verdict.Seconds(p.To-p.Asked))
				deploys += c.moment("deploy", "deploy", p.Asked, y, height, text, fmt.Sprintf("M-3 %gh6M0 %gl3 3-3 3", head, head-3))
			}
			if p.Killed {
				text := fmt.Sprintf("%s killed %s\nSIGKILL %s", who, verdict.Seconds(p.To), stepText(p.Step))
				if p.Key != "" {
					text += "\n" + p.Key
				}
				deaths += c.moment("death", "kill", p.To, y, height, text, fmt.Sprintf("M-3 %gl6 6M3 %gl-6 6", head-3, head-3))
			}
		}
	}
	var outages look.HTML
	bottom := c.height - 16 // of the lanes, where there are outages
	for _, o := range c.Outages {
		outages += c.stretch("outage", o, c.end, axisHeight, bottom-axisHeight+14, "the database is out of reach\n"+lasting(o, c.end)) +
			c.label("why", 5, o.From, until(o, c.end), bottom+10, "database out of reach")
	}
	return look.Format(`<svg width="{}" height="{}" role="img" aria-label="Deliveries over time, one lane per worker">`, chartWidth, c.height) +
		lanes + c.axis() + processes + outages + stops + look.Each(c.bars, c.bar) + labels + deploys + deaths + "\n</svg>"
}

// axis has the labelled times.
func (c chart) axis() (out look.HTML) {
	step := 500.0
	for _, s := range []float64{500, 1000, 2000, 5000, 10_000, 30_000, 60_000} {
		step = s
		if c.end/s <= 14 {
			break
		}
	}
	for at := 0.0; at < c.end; at += step {
		out += look.Format(`<g data-x="{}" transform="{}"><line class="tick" y1="18" y2="{}"/><text class="axis" x="3" y="14">{} s</text></g>`,
			at, c.at(at), c.height, strings.TrimSuffix(fmt.Sprintf("%.1f", at/1000), ".0"))
	}
	return out
}

// laneNames are the workers, beside the drawing.
func (c chart) laneNames() (out look.HTML) {
	for i, l := range c.Lanes {
		out += look.Format(`<div style="top:{}px;height:{}px"{}><b>worker {}</b><small>{}</small></div>`, c.tops[i], laneHeight(l),
			look.If(i%2 == 1, ` class="odd"`), l.Worker, words.Count(len(l.Processes), "process", "processes"))
	}
	return out
}

// at moves a group to its time, for readers without a script.
func (c chart) at(ms float64) string { return fmt.Sprintf("translate(%.1f)", ms*c.scale) }

// rect is a time with a height. It is 1.5 pixels wide at least.
func (c chart) rect(class string, from, to, y, height, radius float64) look.HTML {
	return look.Format(`<rect class="{}" data-a="{}" data-b="{}" x="{}" width="{}" y="{}" height="{}" rx="{}"/>`, class, from, to,
		fmt.Sprintf("%.1f", from*c.scale), fmt.Sprintf("%.1f", math.Max((to-from)*c.scale, 1.5)), y, height, radius)
}

// label is text at a, which is hidden where it has no room before b.
func (c chart) label(class string, x int, a, b, y float64, text string) look.HTML {
	return look.Format(`<g data-x="{}" data-room="{}" transform="{}"><text class="{}" x="{}" y="{}">{}</text></g>`, a, b, c.at(a), class, x, y, text)
}

// stretch is a time in which a process stood still, or the database was out of reach.
func (c chart) stretch(class string, f verdict.Frozen, end, y, height float64, text string) look.HTML {
	return look.Format("\n"+`<g class="{}" data-d="{}">{}</g>`, class, text, c.rect("", f.From, until(f, end), y, height, 0))
}

// moment is a strike on one process.
func (c chart) moment(class, mark string, at, y, height float64, text, path string) look.HTML {
	return look.Format("\n"+`<g class="{}" data-x="{}" data-d="{}" transform="{}"><line y1="{}" y2="{}"/><circle cy="{}" r="7"/><path class="mk-{}" d="{}"/></g>`,
		class, at, text, c.at(at), y, y+height, y+9, mark, path)
}

func until(f verdict.Frozen, end float64) float64 {
	if f.To < 0 {
		return end
	}
	return f.To
}

func (c chart) bar(b bar) look.HTML {
	at := func(ms float64, mark look.HTML) look.HTML {
		return look.Format(`<g data-x="{}" transform="{}">{}</g>`, ms, c.at(ms), mark)
	}
	parts := c.rect("win", b.From, min(b.To, b.VisibleUntil), b.y-4, 8, 1.5)
	if b.over() {
		parts += c.rect("over", b.VisibleUntil, b.To, b.y-4, 8, 0)
	}
	if b.Ran() {
		parts += c.rect("run "+string(b.Fate()), b.RunFrom, b.RunEnd(), b.y-3.5, 7, 1.5)
	}
	for _, beat := range b.Beats {
		parts += at(beat, look.Format(`<path class="beat" d="M0 {}v10"/>`, b.y-5))
	}
	switch b.Fate() {
	case verdict.Skipped:
		parts += at(b.To, look.Format(`<path class="mk-skip" d="M0 {}l4 4-4 4-4-4Z"/>`, b.y-4))
	case verdict.Deferred:
		parts += at(b.To, look.Format(`<circle class="mk-defer" cy="{}" r="3.2"/>`, b.y))
	}
	return look.Format("\n"+`<g class="sp" data-k="{}" data-d="{}">{}</g>`, b.Key, details(b), parts)
}

// details is the tooltip of a delivery.
func details(b bar) string {
	lines := []string{b.Key, fmt.Sprintf("in flight %.3f–%.3f s", b.From/1000, b.To/1000)}
	if b.Ran() {
		lines = append(lines, fmt.Sprintf("handler ran %.0f ms", b.RunEnd()-b.RunFrom))
	}
	for _, l := range b.Lines() {
		lines = append(lines, l.Text)
	}
	if b.over() {
		lines = append(lines, "past its visibility by "+verdict.Seconds(b.To-b.VisibleUntil))
	}
	return strings.Join(lines, "\n")
}

func lasting(f verdict.Frozen, end float64) string {
	if f.To < 0 {
		return "until the end"
	}
	return "for " + verdict.Seconds(min(f.To, end)-f.From)
}

// stepTexts are the steps of kills for people.
var stepTexts = map[plan.Step]string{
	plan.AfterReceive: "after the receive, before the claim", plan.AfterClaim: "after the claim, before the handler",
	plan.AfterEffect: "after the effect, before the ack", plan.AfterCommit: "after the commit, before its response was seen",
	plan.Outside: "from outside, at any moment",
}

func stepText(s plan.Step) string {
	if text := stepTexts[s]; text != "" {
		return text
	}
	return string(s)
}
