package browser

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest"
)

// TestReport runs two scenarios, nightly three, and looks at every page of their report, wide and narrow, light and dark.
func TestReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.html")
	names := []string{"zombie", "outage"}
	if semeltest.Nightly() {
		names = append(names, "visibility")
	}
	lab(t.Context(), t, append(names, "--seed", "1", "--report", path)...)
	url := "file://" + path
	for name, l := range looks {
		t.Run(name, func(t *testing.T) {
			p := open(t, url, l)
			for _, id := range append([]string{"index"}, names...) {
				eval[any](t, p, `location.hash = "`+id+`"; null`)
				if err := p.Until(`!document.getElementById("`+id+`").hidden && document.activeElement.closest("article")?.id === "`+id+`" || "`+id+`" === "index"`,
					10*time.Second); err != nil {
					t.Error(err)
				}
				pleasant(t, p, id)
				keep(t, p, name+"-"+id, l)
			}
			if r := p.Requests(); !slices.Equal(r, []string{url}) {
				t.Errorf("the report asks for more than itself: %v", r)
			}
		})
	}
	t.Run("keyboard", func(t *testing.T) { keyboard(t, url) })
	t.Run("reduced motion", func(t *testing.T) { reducedMotion(t, url) })
	t.Run("timeline", func(t *testing.T) { timeline(t, url) })
}

// keyboard walks through the index with the tab key, and opens a scenario with Enter.
func keyboard(t *testing.T, url string) {
	p := open(t, url, looks["wide-light"])
	var reached []string
	for range 12 {
		if err := p.Press("Tab"); err != nil {
			t.Fatal(err)
		}
		at := eval[struct {
			Text    string
			Outline bool
		}](t, p, `(() => { const e = document.activeElement, s = getComputedStyle(e);
			return { Text: e.textContent.trim(), Outline: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 }; })()`)
		reached = append(reached, at.Text)
		if !at.Outline {
			t.Errorf("%q has the focus, and nobody sees it", at.Text)
		}
		if at.Text == "zombie" {
			break
		}
	}
	if !slices.Contains(reached, "zombie") {
		t.Fatalf("the tab key reaches %q", reached)
	}
	if err := p.Press("Enter"); err != nil {
		t.Fatal(err)
	}
	if err := p.Until(`document.activeElement.tagName === "H1" && document.activeElement.closest("article").id === "zombie"`, 10*time.Second); err != nil {
		t.Error(err)
	}
}

// reducedMotion: a reader who prefers reduced motion gets none.
func reducedMotion(t *testing.T, url string) {
	l := looks["wide-light"]
	const moving = `[...document.querySelectorAll("*"), ...document.querySelectorAll("summary")].filter((e) =>
		["", "::before"].some((b) => { const s = getComputedStyle(e, b || null); return parseFloat(s.transitionDuration) > 0 || s.animationName !== "none"; })).length`
	if n := eval[int](t, open(t, url, l), moving); n == 0 {
		t.Error("nothing moves: this test sees nothing")
	}
	l.ReducedMotion = true
	if n := eval[int](t, open(t, url, l), moving); n > 0 {
		t.Errorf("%d things still move", n)
	}
}

// timeline: what was frozen is hatched, an outage is a band over all lanes; a click follows an order in both runs; zoom.
func timeline(t *testing.T, url string) {
	p := open(t, url+"#zombie", looks["wide-light"])
	if n := eval[int](t, p, `document.querySelectorAll("#zombie .stop rect[data-a]").length`); n != 2 {
		t.Errorf("%d frozen times in two runs", n)
	}
	eval[any](t, p, `document.querySelector("#zombie .sp").dispatchEvent(new MouseEvent("click", { bubbles: true })); null`)
	if n := eval[int](t, p, `[...document.querySelectorAll("#zombie figure")].filter((f) => f.querySelector(".sp.on")).length`); n != 2 {
		t.Errorf("the order is followed in %d runs", n)
	}
	if n := eval[int](t, p, `document.querySelectorAll("#outage .sp.on, #outage .following").length`); n != 0 {
		t.Error("it is followed in another scenario")
	}
	wider := eval[bool](t, p, `(() => { const f = document.querySelector("#zombie figure"), w = () => +f.querySelector(".scroll svg").getAttribute("width");
		const before = w(); f.querySelector("[data-zoom=in]").click(); return w() > before * 1.3; })()`)
	if !wider {
		t.Error("zooming in makes nothing wider")
	}
	band := eval[bool](t, p, `(() => { location.hash = "outage"; const f = document.querySelector("#outage figure");
		const lanes = [...f.querySelectorAll(".lane")], b = f.querySelector(".outage rect");
		return lanes.length === 3 && +b.getAttribute("height") >= lanes.reduce((n, l) => n + +l.getAttribute("height"), 0); })()`)
	if !band {
		t.Error("the outage is no band over all lanes")
	}
}
