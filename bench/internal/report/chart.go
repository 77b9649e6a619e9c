package report

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/semel-dev/semel/bench/internal/harness"
)

// The chart's measures, in pixels.
const (
	chartWidth  = 900
	chartLeft   = 440 // labels end here
	chartRight  = 110 // room for the figures
	chartRow    = 26
	chartBar    = 16
	chartTop    = 46
	chartBottom = 30
)

// chartStyle reads in light and dark: the viewer's preference decides.
const chartStyle = `
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.note { font-size: 11px; fill: #57606a }
.peer { fill: #8c959f }
.semel { fill: #0969da }
.axis { stroke: #d0d7de; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .note { fill: #9198a1 }
  .peer { fill: #6e7681 }
  .semel { fill: #4493f8 }
  .axis { stroke: #3d444d }
}`

// Chart writes bars of effects per second, peers and semel, as SVG.
func Chart(w io.Writer, about harness.About, measures []harness.Measure, rows []harness.Row) error {
	p := newPage(about, measures, rows)
	bars := slices.DeleteFunc(append(p.of(harness.Peer, "effects"), p.of(harness.Semel, "effects")...),
		func(m harness.Measure) bool { return m.Long })
	longest := 0.0
	for _, m := range bars {
		longest = max(longest, median(p.rowsOf(m.Name), perSecond))
	}
	height := chartTop + len(bars)*chartRow + chartBottom
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t">`,
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(&b, "\n<title id=\"t\">Effects per second, each exactly once</title>\n<style>%s\n</style>\n", chartStyle)
	b.WriteString(`<text class="title" x="12" y="26">Effects per second (longer is better)</text>` + "\n")
	for i, m := range bars {
		v := median(p.rowsOf(m.Name), perSecond)
		y := chartTop + i*chartRow
		width := v / longest * (chartWidth - chartLeft - chartRight)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, chartLeft-10, y+13, html.EscapeString(m.Title))
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, m.Kind, chartLeft, y, max(width, 1), chartBar)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", chartLeft+max(width, 1)+8, y+13, number(v))
	}
	bottom := chartTop + len(bars)*chartRow
	fmt.Fprintf(&b, `<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", chartLeft, chartTop-6, chartLeft, bottom)
	fmt.Fprintf(&b, `<text class="note" x="12" y="%d">%s, %d cores, PostgreSQL %s with fsync on; median of %d rounds</text>`+"\n</svg>\n",
		bottom+18, html.EscapeString(about.Machine), about.Cores, html.EscapeString(about.Versions["PostgreSQL"]), p.most)
	_, err := io.WriteString(w, b.String())
	return err
}
