package browser

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest"
)

// watched is a `semel lab run --watch` that runs.
type watched struct {
	*process.Process
	url    string
	stdout process.Output
}

var liveURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/[0-9a-f]{32}/`)

// watch starts one, and ends it with the test.
func watch(t *testing.T, args ...string) *watched {
	t.Helper()
	w := &watched{}
	var errs process.Output
	cmd := exec.Command(semel, append([]string{"lab", "run", "--watch"}, args...)...)
	cmd.Stdout, cmd.Stderr = &w.stdout, &errs
	w.Process = process.StartTest(t, cmd)
	line, err := w.Await(t.Context(), &errs, liveURL.MatchString)
	if err != nil {
		t.Fatalf("no address of a live view: %v", err)
	}
	w.url = liveURL.FindString(line)
	return w
}

// over waits for the end.
func (w *watched) over(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-w.Done():
		if err := w.Wait(); err != nil {
			t.Errorf("it ends with %v\n%s", err, w.stdout.String())
		}
	case <-ctx.Done():
		t.Fatal("it does not end")
	}
}

// sides is true when it is true of both sides of the page.
func sides(expression string) string {
	return `[...document.querySelectorAll(".side")].length === 2 && [...document.querySelectorAll(".side")].every((s) => ` + expression + `)`
}

func logs(text string) string {
	return sides(`s.querySelector(".log").textContent.includes("` + text + `")`)
}

// TestLive watches a run in the browser, disturbs it with every button, finishes it, and reads the verdict: every night.
func TestLive(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("it runs in make nightly")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	w := watch(t, "happy", "--seed", "1")
	p := open(t, w.url, looks["wide-light"])
	const timeout = 5 * time.Minute
	until := func(what, expression string) {
		t.Helper()
		if err := p.Until(expression, timeout); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, eval[string](t, p, `document.querySelector("#said").textContent + "\\n" +
				[...document.querySelectorAll(".log")].map((l) => [...l.children].map((c) => c.innerText).join("\\n")).join("\\n--\\n")`))
		}
	}
	click := func(selector string) {
		t.Helper()
		eval[any](t, p, `document.querySelector('`+selector+`').click(); null`)
	}
	until("both sides work", sides(`+s.querySelector("[data-f=effects]").textContent > 3`))
	until("the lanes are drawn", sides(`(() => { const c = s.querySelector("canvas");
		return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v > 0); })()`))
	until("S0-02, S0-03: messages count down, and have records", `(() => {
		const cell = (side, n) => [...document.querySelectorAll("[data-side=" + side + "] tbody tr")].map((r) => r.cells[n].textContent);
		const seen = globalThis.seen ??= {};
		for (const side of ["on", "off"]) if (cell(side, 3).some((c) => /^\d\.\d s$/.test(c))) seen[side] = true;
		if (cell("on", 4).includes("COMPLETED")) seen.completed = true;
		return seen.on && seen.off && seen.completed && cell("off", 4).every((c) => c === "none"); })()`)
	message := eval[string](t, p, `document.querySelector("[data-side=on] tbody td").textContent`)
	filter := func(text string) {
		t.Helper()
		eval[any](t, p, `(() => { const f = document.querySelector("#only"); f.value = "`+text+`"; f.dispatchEvent(new Event("input")); })()`)
	}
	filter(message)
	until("S0-18: everything that happened to one message", `(() => { const on = document.querySelector("[data-side=on]");
		return [...on.querySelectorAll("tbody tr")].every((r) => r.cells[0].textContent === "`+message+`")
			&& on.querySelector(".log").textContent.includes("receives it"); })()`)
	filter("no such message")
	until("nothing of others", sides(`s.querySelector(".log").childElementCount + s.querySelector("tbody").childElementCount === 0`))
	filter("")
	for what, c := range map[string]struct{ button, hears string }{
		"an ack is dropped":   {`[data-do="drop-ack"]`, "is dropped on its way"},
		"heartbeats fail":     {`[data-do="fail-heartbeats"]`, "heartbeats fail"},
		"the store is paused": {`[data-do="outage"]`, "the store is back"},
	} {
		eval[any](t, p, `document.querySelector("#for").value = 1; null`)
		click(c.button)
		until(what, logs(c.hears))
	}
	click(`[data-do="freeze"][data-worker="2"]`)
	until("a worker is frozen", logs("worker 2 goes on"))
	click(`[data-do="kill"][data-worker="1"]`)
	until("a worker is killed", logs("worker 1 is dead"))
	click(`[data-do="duplicate"]`)
	until("the plain consumer charges twice", `+document.querySelector("[data-side=off] [data-f=duplicated]").textContent > 0
		&& document.querySelector("[data-side=off]").classList.contains("broken")
		&& document.querySelector("[data-side=off] .log").textContent.includes("is charged again")`)
	if n := eval[string](t, p, `document.querySelector("[data-side=on] [data-f=duplicated]").textContent`); n != "0" {
		t.Errorf("semel doubled %s", n)
	}
	eval[any](t, p, `document.querySelector("#for").value = 99; null`)
	click(`[data-do="outage"]`)
	until("what is too long is refused", `document.querySelector("#said").textContent.includes("for_ms")`)
	for name, l := range looks {
		if err := p.Look(l); err != nil {
			t.Fatal(err)
		}
		pleasant(t, p, name)
		keep(t, p, name+"-live", l)
	}
	for _, r := range p.Requests() {
		if !strings.HasPrefix(r, w.url) && !strings.HasPrefix(r, "data:") {
			t.Errorf("the page asks for %s", r)
		}
	}
	focused(t, p)
	click(`[data-do="finish"]`)
	until("it is judged", `document.querySelector("#state").textContent === "judged"
		&& document.querySelector("[data-side=off] .tag").textContent === "broken"
		&& document.querySelector("[data-side=on] .tag").textContent === "held"`)
	pleasant(t, p, "judged")
	keep(t, p, "judged", looks["wide-dark"])
	w.over(ctx, t)
	if out := w.stdout.String(); !strings.Contains(out, "as expected") || !strings.Contains(out, "broken          held") {
		t.Errorf("the terminal says\n%s", out)
	}
	forgiven(p)
}

// TestS1_36_LiveCompensation: the live view shows compensations whose response was lost, and those that succeeded.
func TestS1_36_LiveCompensation(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("it runs in make nightly")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	w := watch(t, "saga", "--seed", "1", "--guard", "on")
	p := open(t, w.url, looks["wide-light"])
	for _, text := range []string{"✗ compensation failed, and will be repeated", "a step is undone"} {
		if err := p.Until(`document.querySelector("[data-side=on] .log").textContent.includes("`+text+`")`, 5*time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	eval[any](t, p, `document.querySelector('[data-do="finish"]').click(); null`)
	if err := p.Until(`document.querySelector("#state").textContent === "judged"`, 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	w.over(ctx, t)
}

// forgiven drops the complaint of the browser about a request that a test wanted refused.
func forgiven(p *Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.complaints[:0]
	for _, c := range p.complaints {
		if !strings.Contains(c, "400 (Bad Request)") && !strings.Contains(c, "404 (Not Found)") {
			kept = append(kept, c)
		}
	}
	p.complaints = kept
}

// focused walks over the buttons with the tab key: each is reached, and one sees where one is.
func focused(t *testing.T, p *Page) {
	t.Helper()
	want := eval[int](t, p, `document.activeElement.blur(), document.querySelectorAll("button, input, [tabindex]").length`)
	eval[any](t, p, `getSelection().setPosition(document.querySelector("h1"), 0); null`)
	reached := map[string]bool{}
	for range want {
		if err := p.Press("Tab"); err != nil {
			t.Fatal(err)
		}
		at := eval[struct {
			Name string
			Seen bool
		}](t, p, `(() => { const e = document.activeElement, s = getComputedStyle(e);
			return { Name: e.id + (e.closest(".side")?.dataset.side ?? "") + (e.getAttribute("aria-label") || e.textContent), Seen: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 }; })()`)
		if reached[at.Name] = true; !at.Seen {
			t.Errorf("%q has the focus, and nobody sees it", at.Name)
		}
	}
	if len(reached) != want {
		t.Errorf("the tab key reaches %d of %d: %v", len(reached), want, reached)
	}
}
