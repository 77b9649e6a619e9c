package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/binary"
)

// The browser and the binary of all tests here.
var (
	chromium *Chromium
	semel    string
)

func TestMain(m *testing.M) {
	path, found := Find()
	if !found {
		server.RecordLeftOut("tests/browser", "chromium", "it is not installed (apt-get install chromium)")
		os.Exit(0)
	}
	os.Exit(run(m, path))
}

func run(m *testing.M, path string) int {
	var err error
	if semel, err = binary.Build(); err != nil {
		fmt.Println(err)
		return 1
	}
	if chromium, err = Start(path); err != nil {
		fmt.Println(err)
		return 1
	}
	defer chromium.Close()
	return m.Run()
}

// lab runs the lab, which may end with exit code 3: what came of it is not what is looked at here.
func lab(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(ctx, semel, append([]string{"lab", "run"}, args...)...).CombinedOutput()
	if code := (*exec.ExitError)(nil); err != nil && (!asExit(err, &code) || code.ExitCode() != 3) {
		t.Fatalf("semel lab run %v: %v\n%s", args, err, out)
	}
}

func asExit(err error, code **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError) //nolint:errorlint // exec returns it as it is
	*code = e
	return ok
}

// open opens a page that must not complain.
func open(t *testing.T, url string, l Look) *Page {
	t.Helper()
	p, err := chromium.Open(url, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c := p.Complaints(); len(c) > 0 {
			t.Errorf("%s complains: %s", url, strings.Join(c, "; "))
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func eval[T any](t *testing.T, p *Page, script string) (v T) {
	t.Helper()
	if err := p.Eval(script, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// pleasant checks what can be checked of a page's looks: nothing wider than the window, text that can be read.
func pleasant(t *testing.T, p *Page, where string) {
	t.Helper()
	if wide := eval[[]string](t, p, tooWide); len(wide) > 0 {
		t.Errorf("%s: wider than the window: %s", where, strings.Join(wide, "; "))
	}
	if pale := eval[[]string](t, p, tooPale); len(pale) > 0 {
		t.Errorf("%s: contrast below 4.5: %s", where, strings.Join(pale, "; "))
	}
}

// axeCore is the script of axe-core; "" if the npm registry cannot be reached, which the subtest axe-core says loudly.
func axeCore(t *testing.T) (script string) {
	t.Helper()
	t.Run("axe-core", func(t *testing.T) {
		var err error
		if script, err = fetchAxe(); err != nil {
			server.LeaveOut(t, "npm", err.Error())
		}
	})
	return script
}

// accessible checks a page with axe-core.
func accessible(t *testing.T, p *Page, where, script string) {
	t.Helper()
	for look, l := range axeLooks {
		if err := p.Look(l); err != nil {
			t.Fatal(err)
		}
		if err := p.Eval("if (!window.axe) { "+script+"\n}", nil); err != nil {
			t.Fatal(err)
		}
		for _, finding := range eval[[]string](t, p, axeRun) {
			t.Errorf("%s %s: axe-core: %s", where, look, finding)
		}
	}
}

// keep writes a picture where SEMEL_SHOTS says, for a person to look at.
func keep(t *testing.T, p *Page, name string, l Look) {
	t.Helper()
	dir := os.Getenv("SEMEL_SHOTS")
	if dir == "" {
		return
	}
	tall := l
	tall.Height = min(eval[int](t, p, "document.documentElement.scrollHeight"), 6000)
	if err := p.Look(tall); err != nil {
		t.Fatal(err)
	}
	png, err := p.Shot()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
	if err == nil {
		err = p.Look(l)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// looks are the four ways in which every page is looked at.
var looks = map[string]Look{
	"wide-light":   {Width: 1280, Height: 900},
	"wide-dark":    {Width: 1280, Height: 900, Dark: true},
	"narrow-light": {Width: 390, Height: 844},
	"narrow-dark":  {Width: 390, Height: 844, Dark: true},
}

// tooWide names what sticks out of the window and is not inside something that scrolls.
const tooWide = `(() => {
	const out = [], w = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth <= w) return out;
	out.push("the page is " + document.documentElement.scrollWidth + " of " + w);
	const scrolls = (e) => { for (let p = e.parentElement; p && p !== document.body; p = p.parentElement) if (getComputedStyle(p).overflowX !== "visible") return true; return false; };
	for (const e of document.body.querySelectorAll("*")) {
		const r = e.getBoundingClientRect();
		if (r.width > 0 && r.right > w + 1 && !scrolls(e)) out.push(e.tagName + "." + (e.getAttribute("class") || "") + " " + Math.round(r.right));
	}
	return out.slice(0, 6);
})()`

// tooPale names texts whose colour is too near to what is behind them (WCAG 2.2, 1.4.3: 4.5 to 1).
const tooPale = `(() => {
	const ctx = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
	const seen = {};
	const rgba = (c) => seen[c] ??= (() => { ctx.clearRect(0, 0, 1, 1); ctx.fillStyle = c; ctx.fillRect(0, 0, 1, 1); const d = ctx.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; })();
	const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
	const lum = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
	const behind = (e) => { const up = []; for (let p = e; p; p = p.parentElement) up.push(rgba(getComputedStyle(p).backgroundColor)); return up.reduceRight((under, c) => over(c, under), [255, 255, 255, 1]); };
	const out = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = walk.nextNode());) {
		const e = n.parentElement, s = getComputedStyle(e);
		if (!n.textContent.trim() || ["SCRIPT", "STYLE", "TITLE"].includes(e.tagName.toUpperCase()) || !e.checkVisibility({ visibilityProperty: true }) || e.closest(":disabled, .sr")) continue;
		const back = behind(e), ink = over(rgba(e.namespaceURI.endsWith("svg") ? s.fill : s.color), back);
		const [a, b] = [lum(ink), lum(back)].sort((x, y) => y - x);
		const ratio = (a + .05) / (b + .05);
		if (ratio < 4.5) out.add(ratio.toFixed(2) + " " + e.tagName.toLowerCase() + "." + (e.getAttribute("class") || "") + " " + n.textContent.trim().slice(0, 30));
	}
	return [...out].slice(0, 8);
})()`
