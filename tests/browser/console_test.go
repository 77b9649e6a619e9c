package browser

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest"
)

var consoleURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=[a-z0-9]+`)

// command runs semel until it ends, with its exit code of any kind.
func command(ctx context.Context, t *testing.T, input string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, semel, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("semel %v: %v\n%s", args, err, out)
	}
}

// TestConsole redrives a group of dead letters with a canary, by clicks alone, and looks at each page on the way: every night.
func TestConsole(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("it runs in make nightly")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	queue := "sqlite:" + filepath.Join(t.TempDir(), "shop.db") + "?queue=orders"
	command(ctx, t, "", "queue", "create", "--queue", queue)
	command(ctx, t, `{"order":1}`+"\n"+`{"order":2}`+"\n"+`{"order":3}`+"\n"+`{"order":4}`+"\n", "send", "--queue", queue, "-")
	command(ctx, t, "", "work", "--queue", queue, "--key", "json:/order", "--max-attempts", "1", "--until-empty", "--exec", "echo card endpoint 503 >&2; exit 1")

	axe := axeCore(t)
	var out, errs process.Output
	cmd := exec.Command(semel, "console", "--queue", queue, "--listen", "127.0.0.1:0", "--operate", "--bodies")
	cmd.Stdout, cmd.Stderr = &out, &errs
	line, err := process.StartTest(t, cmd).Await(ctx, &out, consoleURL.MatchString)
	if err != nil {
		t.Fatalf("no address: %v\n%s", err, errs.String())
	}
	p := open(t, consoleURL.FindString(line), looks["wide-light"])
	home, _, _ := strings.Cut(consoleURL.FindString(line), "?")
	looked := func(name string) {
		t.Helper()
		for look, l := range looks {
			if err := p.Look(l); err != nil {
				t.Fatal(err)
			}
			pleasant(t, p, name+" "+look)
			keep(t, p, look+"-console-"+name, l)
		}
		if axe != "" {
			accessible(t, p, name, axe)
		}
	}
	step := func(name, click, until string) {
		t.Helper()
		eval[any](t, p, click+`; null`)
		if err := p.Until(until, 5*time.Minute); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, eval[string](t, p, `document.body?.innerText ?? "no page"`))
		}
		looked(name)
	}
	step("overview", `0`, `document.querySelector("h1").textContent.includes("4 dead letters")`)
	step("dead letter", `location.href = [...document.querySelectorAll("a")].find((a) => a.href.includes("group=")).href`,
		`document.querySelectorAll("tbody tr").length === 4`)
	step("dead letter itself", `location.href = [...document.querySelectorAll("a")].find((a) => a.href.includes("/dead-letter?id=")).href`,
		`document.querySelector("h1").textContent.includes("Dead letter")`)
	step("dead letters again", `history.back()`, `document.querySelectorAll("tbody tr").length === 4`)
	step("plan", `document.querySelector("button.go").click()`, `document.querySelector("#canary")?.value === "3"`)
	step("under way", `document.querySelector("[name=reason]").value = "PSP is up"; document.querySelector("button.go").click()`,
		`document.querySelector("h1").textContent.includes("Under way")`)
	command(ctx, t, "", "work", "--queue", queue, "--key", "json:/order", "--limit", "4", "--exec", "true")
	step("ended", `0`, `document.querySelector("h1").textContent.includes("Ended")`) // the page stays current
	step("key", `document.querySelector("#search").value = "1"; document.querySelector("[role=search] button").click()`,
		`document.querySelector("h1").textContent.includes("COMPLETED")`)
	step("audit log", `location.href = "/audit-log"`, `document.querySelectorAll("tbody tr").length === 4`)
	step("workers", `location.href = "/workers"`, `document.querySelector("h1").textContent === "Workers"`)
	step("guarantee", `location.href = "/guarantee"`, `document.querySelectorAll("tbody tr").length > 0`)
	step("no dead letters", `location.href = "/dead-letters"`, `document.querySelector(".empty") !== null`)
	step("missing key", `location.href = "/key?k=nobody"`, `document.querySelector("h1").textContent.includes("404")`)
	for _, r := range p.Requests() {
		if !strings.HasPrefix(r, home) && !strings.HasPrefix(r, "data:") {
			t.Errorf("a page asks for %s", r)
		}
	}
	forgiven(p)
}
