package report

import "github.com/semel-dev/semel/internal/look"

// html draws the chart. The script moves what has data-x, and stretches what has data-a and data-b.
func (c chart) html() look.HTML {
	return look.Format(`<svg width="{}" height="{}" role="img" aria-label="Deliveries over time, one lane per worker">`, c.Width, c.Height) +
		look.Each(c.Lanes, laneBox.html) +
		look.Each(c.Ticks, func(t tickMark) look.HTML {
			return look.Format(`<g data-x="{}" transform="{}"><line class="tick" y1="18" y2="{}"/><text class="axis" x="3" y="14">{}</text></g>`,
				t.MS, c.At(t.MS), c.Height, t.Label)
		}) +
		look.Each(c.Segments, func(s segment) look.HTML {
			return look.Format(`<rect class="seg" data-a="{}" data-b="{}" x="{}" width="{}" y="{}" height="{}" rx="3"/>`, s.A, s.B, c.X(s.A), c.W(s.A, s.B), s.Y, s.Height) +
				c.label("pid", 6, s.A, s.B, s.LabelY(), s.Label)
		}) +
		look.Each(c.Outages, func(s stretch) look.HTML { return c.stretch("outage", s) + c.why(s) }) +
		look.Each(c.Stops, func(s stretch) look.HTML { return c.stretch("stop", s) }) +
		look.Each(c.Bars, c.bar) +
		look.Each(c.Stops, c.why) +
		look.Each(c.Deploys, func(d death) look.HTML { return c.moment("deploy", d, d.Arrow()) }) +
		look.Each(c.Deaths, func(d death) look.HTML { return c.moment("death", d, d.Cross()) }) +
		"\n</svg>"
}

func (l laneBox) html() look.HTML {
	return look.Format(`<rect class="lane{}" x="0" y="{}" width="100%" height="{}"/>`, look.If(l.Odd, " odd"), l.Y, l.Height)
}

// label is text at a, which is hidden where it has no room before b.
func (c chart) label(class string, x int, a, b, y float64, text string) look.HTML {
	return look.Format(`<g data-x="{}" data-room="{}" transform="{}"><text class="{}" x="{}" y="{}">{}</text></g>`, a, b, c.At(a), class, x, y, text)
}

func (c chart) why(s stretch) look.HTML { return c.label("why", 5, s.A, s.B, s.LabelY(), s.Label) }

func (c chart) stretch(class string, s stretch) look.HTML {
	return look.Format("\n"+`<g class="{}" data-d="{}"><rect data-a="{}" data-b="{}" x="{}" width="{}" y="{}" height="{}"/></g>`,
		class, s.Text, s.A, s.B, c.X(s.A), c.W(s.A, s.B), s.Y, s.Height)
}

// moment is a strike on one process.
func (c chart) moment(class string, d death, mark string) look.HTML {
	kind := class
	if class == "death" {
		kind = "kill"
	}
	return look.Format("\n"+`<g class="{}" data-x="{}" data-d="{}" transform="{}"><line y1="{}" y2="{}"/><circle cy="{}" r="7"/><path class="mk-{}" d="{}"/></g>`,
		class, d.MS, d.Text, c.At(d.MS), d.Y, d.Bottom(), d.Head(), kind, mark)
}

func (c chart) bar(b bar) look.HTML {
	rect := func(class string, from, to, half float64, more look.HTML) look.HTML {
		return look.Format(`<rect class="{}" data-a="{}" data-b="{}" x="{}" width="{}" y="{}" height="{}"{}/>`,
			class, from, to, c.X(from), c.W(from, to), b.Top(half), 2*half, more)
	}
	mark := look.HTML("")
	switch b.Mark {
	case "skip":
		mark = look.Format(`<g data-x="{}" transform="{}"><path class="mk-skip" d="{}"/></g>`, b.MarkMS, c.At(b.MarkMS), b.Diamond())
	case "defer":
		mark = look.Format(`<g data-x="{}" transform="{}"><circle class="mk-defer" cy="{}" r="3.2"/></g>`, b.MarkMS, c.At(b.MarkMS), b.Y)
	}
	over, ran := look.HTML(""), look.HTML("")
	if b.Over {
		over = rect("over", b.W, b.B, 4, "")
	}
	if b.Ran {
		ran = rect("run "+b.Class, b.RunA, b.RunB, 3.5, ` rx="1.5"`)
	}
	return look.Format("\n"+`<g class="sp" data-k="{}" data-d="{}">{}{}{}{}{}</g>`, b.Key, b.Text, rect("win", b.A, b.W, 4, ` rx="1.5"`), over, ran,
		look.Each(b.Beats, func(at float64) look.HTML {
			return look.Format(`<g data-x="{}" transform="{}"><path class="beat" d="{}"/></g>`, at, c.At(at), b.BeatPath())
		}), mark)
}
