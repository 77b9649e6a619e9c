package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
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

// chart is a timeline, ready to be drawn.
type chart struct {
	Scale         float64 // pixels per millisecond without a script
	EndMS         float64
	Width, Height float64
	Ticks         []tickMark
	Lanes         []laneBox
	Segments      []segment
	Bars          []bar
	Deaths        []death
	Stops         []stretch
	Deploys       []death
	Outages       []stretch
	// LeftOut are the plain deliveries that are not drawn; MoreLeftOut the others.
	LeftOut, MoreLeftOut int
}

// stretch is a time in which a process stood still, or the database was out of reach.
type stretch struct {
	A, B, Y, Height float64
	Text, Label     string
}

// LabelY is the baseline of its label.
func (s stretch) LabelY() float64 { return s.Y + s.Height - 4 }

type tickMark struct {
	MS    float64
	Label string
}

type laneBox struct {
	Label     string
	Lives     string
	Y, Height float64
	Odd       bool
}

type segment struct {
	A, B, Y, Height float64
	Label           string
}

type death struct {
	MS, Y, Height float64
	Text          string
}

// bar is one delivery: a visibility window with a handler inside and marks on it.
type bar struct {
	Key   string
	Y     float64 // of the row's middle
	Text  string  // the details, one per line
	Class string  // charge, double, skip, defer, cut, other
	// A to W is the window, W to B the time past it (0 length: none), RunA to RunB the handler (-1: not run).
	A, W, B, RunA, RunB float64
	Over                bool
	Ran                 bool
	Mark                string // "skip", "defer", "double" or ""
	MarkMS              float64
	Beats               []float64
}

// X is the place of a time, for readers without a script.
func (c chart) X(ms float64) string { return px(ms * c.Scale) }

// W is the width of a time, 1.5 pixels at least.
func (c chart) W(a, b float64) string { return px(math.Max((b-a)*c.Scale, 1.5)) }

// At moves a group to its time.
func (c chart) At(ms float64) string { return "translate(" + px(ms*c.Scale) + ")" }

func px(v float64) string { return fmt.Sprintf("%.1f", v) }

// LabelY is the baseline of a process's label.
func (s segment) LabelY() float64 { return s.Y + 11 }

// Bottom ends the line of a kill.
func (d death) Bottom() float64 { return d.Y + d.Height }

// Head is the middle of the mark.
func (d death) Head() float64 { return d.Y + 9 }

// Cross is the mark's path.
func (d death) Cross() string {
	return fmt.Sprintf("M-3 %gl6 6M3 %gl-6 6", d.Head()-3, d.Head()-3)
}

// Top is the upper edge of a thing that is twice half high, in the middle of the row.
func (b bar) Top(half float64) float64 { return b.Y - half }

// Diamond is the mark of a skipped duplicate.
func (b bar) Diamond() string { return fmt.Sprintf("M0 %gl4 4-4 4-4-4Z", b.Y-4) }

// BeatPath is one heartbeat.
func (b bar) BeatPath() string { return fmt.Sprintf("M0 %gv10", b.Y-5) }

// draw lays a run out over the time until endMS, with a maximum number of deliveries.
func draw(t verdict.RunTimeline, endMS float64, most int) chart {
	c := chart{EndMS: math.Max(endMS, 1), Width: chartWidth}
	c.Scale = (chartWidth - 16) / c.EndMS
	y := axisHeight
	for i, l := range t.Lanes {
		height := laneHead + float64(l.Rows)*rowHeight + laneFoot
		c.Lanes = append(c.Lanes, laneBox{
			Label: fmt.Sprintf("worker %d", l.Worker), Lives: words.Count(len(l.Processes), "process", "processes"),
			Y: y, Height: height, Odd: i%2 == 1,
		})
		for _, p := range l.Processes {
			c.process(p, y, height)
		}
		y += height
	}
	c.Height = y + 4
	if len(t.Outages) > 0 {
		c.Height += 12
	}
	for _, o := range t.Outages {
		text := "the database is out of reach\n" + lasting(o, c.EndMS)
		c.Outages = append(c.Outages, stretch{o.From, until(o, c.EndMS), axisHeight, y - axisHeight + 14, text, "database out of reach"})
	}
	c.leaveOut(most)
	for _, at := range ticks(c.EndMS) {
		c.Ticks = append(c.Ticks, tickMark{MS: at, Label: strings.TrimSuffix(fmt.Sprintf("%.1f", at/1000), ".0") + " s"})
	}
	return c
}

func (c *chart) process(p *verdict.Process, y, height float64) {
	c.Segments = append(c.Segments, segment{
		A: p.From, B: p.To, Y: y + 3, Height: height - 6, Label: fmt.Sprintf("pid %d", p.PID),
	})
	for _, s := range p.Spans {
		c.Bars = append(c.Bars, barOf(s, y+laneHead+(float64(s.Row)+0.5)*rowHeight))
	}
	for _, f := range p.Frozen {
		text := fmt.Sprintf("worker %d (pid %d) is frozen\nSIGSTOP, %s", p.Worker, p.PID, lasting(f, p.To))
		c.Stops = append(c.Stops, stretch{f.From, until(f, p.To), y + 3, height - 6, text, "frozen"})
	}
	if p.Asked > 0 {
		text := fmt.Sprintf("worker %d (pid %d) is replaced %s\ngone after %s", p.Worker, p.PID, verdict.Seconds(p.Asked),
			verdict.Seconds(p.To-p.Asked))
		c.Deploys = append(c.Deploys, death{MS: p.Asked, Y: y, Height: height, Text: text})
	}
	if p.Killed {
		text := fmt.Sprintf("worker %d (pid %d) killed %s\nSIGKILL %s", p.Worker, p.PID, verdict.Seconds(p.To), stepText(p.Step))
		if p.Key != "" {
			text += "\n" + p.Key
		}
		c.Deaths = append(c.Deaths, death{MS: p.To, Y: y, Height: height, Text: text})
	}
}

func until(f verdict.Frozen, end float64) float64 {
	if f.To < 0 {
		return end
	}
	return f.To
}

func barOf(s *verdict.Span, y float64) bar {
	b := bar{
		Key: s.Key, Y: y, Text: details(s), A: s.From, W: min(s.To, s.VisibleUntil), B: s.To, RunA: -1, RunB: -1,
		Beats: s.Beats, Class: "other", Ran: s.Ran(),
	}
	b.Over = s.To > s.VisibleUntil+1
	if s.Ran() {
		b.RunA, b.RunB = s.RunFrom, s.RunTo
		if s.RunTo < 0 {
			b.RunB = s.To
		}
	}
	switch {
	case s.Charge > 1 && (s.Version == 0 || s.Back):
		b.Class, b.Mark, b.MarkMS = "double", "double", b.RunB
	case s.Charge > 0:
		b.Class = "charge"
	case s.Cut:
		b.Class = "cut"
	case strings.HasPrefix(s.Decision, "replayed"):
		b.Class, b.Mark, b.MarkMS = "skip", "skip", s.To
	case s.Decision == "busy_deferred" || s.Action == "defer":
		b.Class, b.Mark, b.MarkMS = "defer", "defer", s.To
	}
	return b
}

// details is the tooltip of a delivery.
func details(s *verdict.Span) string {
	lines := []string{
		s.Key,
		fmt.Sprintf("message %s, delivery %d, worker %d (pid %d)", s.Message, max(1, s.Count), s.Worker, s.PID),
		fmt.Sprintf("in flight %.3f–%.3f s", s.From/1000, s.To/1000),
	}
	if s.Ran() {
		end := s.RunTo
		if end < 0 {
			end = s.To
		}
		lines = append(lines, fmt.Sprintf("handler ran %.0f ms", end-s.RunFrom))
	}
	if s.Takeover {
		lines = append(lines, "taken over after the lease had expired")
	}
	if n := len(s.Beats); n > 0 {
		lines = append(lines, words.Count(n, "heartbeat", "heartbeats"))
	}
	switch {
	case s.Version > 0 && s.Back:
		lines = append(lines, fmt.Sprintf("version %d OVER A NEWER ONE", s.Version))
	case s.Version > 0:
		lines = append(lines, fmt.Sprintf("version %d is applied", s.Version))
	case s.Charge > 1:
		lines = append(lines, fmt.Sprintf("CHARGED AGAIN: charge %d", s.Charge))
	case s.Charge == 1:
		lines = append(lines, "charged")
	}
	if s.To > s.VisibleUntil+1 {
		lines = append(lines, fmt.Sprintf("past its visibility by %s", verdict.Seconds(s.To-s.VisibleUntil)))
	}
	if l, ok := s.Last("its worker"); ok {
		lines = append(lines, l.Text)
	}
	return strings.Join(lines, "\n")
}

// leaveOut drops what is too many to draw, evenly over the picture: plain deliveries first, others when these do not
// suffice.
func (c *chart) leaveOut(most int) {
	plain := func(b bar) bool { return b.Class == "charge" && len(b.Beats) == 0 && !b.Over }
	c.LeftOut = c.thin(most, plain)
	c.MoreLeftOut = c.thin(most, func(b bar) bool { return !plain(b) })
}

// thin drops deliveries of a kind until at most n are left, and returns how many it dropped.
func (c *chart) thin(most int, kind func(bar) bool) (dropped int) {
	many := 0
	for _, b := range c.Bars {
		if kind(b) {
			many++
		}
	}
	drop := min(len(c.Bars)-most, many)
	if drop <= 0 {
		return 0
	}
	kept, seen := c.Bars[:0], 0
	for _, b := range c.Bars {
		if kind(b) {
			seen++
			if seen*drop/many > (seen-1)*drop/many {
				dropped++
				continue
			}
		}
		kept = append(kept, b)
	}
	c.Bars = kept
	return dropped
}

// ticks are the labelled times of the axis.
func ticks(endMS float64) []float64 {
	step := 500.0
	for _, s := range []float64{500, 1000, 2000, 5000, 10_000, 30_000, 60_000} {
		step = s
		if endMS/s <= 14 {
			break
		}
	}
	var out []float64
	for at := 0.0; at < endMS; at += step {
		out = append(out, at)
	}
	return out
}

// Arrow is the mark of a deployment.
func (d death) Arrow() string {
	return fmt.Sprintf("M-3 %gh6M0 %gl3 3-3 3", d.Head(), d.Head()-3)
}
