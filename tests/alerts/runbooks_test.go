package alerts

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/semel-dev/semel/contrib/prom"
)

var (
	block   = regexp.MustCompile("(?s)```sh\n(.*?)```")
	command = regexp.MustCompile(`^semel ((?:[a-z]+ ?)+)`)
	flag    = regexp.MustCompile(` (--?[a-z][a-z0-9-]*)`)
)

// TestEveryRuleHasARunbook: whoever is woken up is led to a section that says what the alert means, where to look and what to
// do, in commands that the binary knows; and there is no section of a rule that is gone.
func TestEveryRuleHasARunbook(t *testing.T) {
	p := newPlace(t)
	text, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, alerts, _ := strings.Cut(string(text), "\n## Alerts\n")
	sections := map[string]string{}
	for _, s := range strings.Split(alerts, "\n### ")[1:] {
		name, body, _ := strings.Cut(s, "\n")
		sections[name] = body
	}
	rules := load(t)
	for name, r := range rules {
		body := sections[name]
		if want := prom.Runbooks + "#" + strings.ToLower(name); r.Annotations["runbook_url"] != want {
			t.Errorf("runbook_url of %s is %q, want %q", name, r.Annotations["runbook_url"], want)
		}
		for _, part := range []string{"**Means**", "**Look**", "**Do**", "```sh\n"} {
			if !strings.Contains(body, part) {
				t.Errorf("docs/monitoring.md has no %q under %q", part, "### "+name)
			}
		}
		for _, b := range block.FindAllStringSubmatch(body, -1) {
			for line := range strings.Lines(b[1]) {
				p.knows(strings.TrimSpace(line))
			}
		}
	}
	for name := range sections {
		if _, ok := rules[name]; !ok {
			t.Errorf("docs/monitoring.md has a section about %s, and there is no such rule", name)
		}
	}
}

// knows fails unless the binary has this command with these flags.
func (p *place) knows(line string) {
	p.Helper()
	m := command.FindStringSubmatch(line)
	if m == nil {
		if !strings.HasPrefix(line, "curl ") {
			p.Errorf("%q is no command of semel", line)
		}
		return
	}
	help := p.run(append(strings.Fields(m[1]), "--help")...)
	if !strings.Contains(help, "semel "+strings.TrimSpace(m[1])+" ") {
		p.Errorf("%q: there is no such command", line)
	}
	line, _, _ = strings.Cut(line, ";")
	for _, f := range flag.FindAllStringSubmatch(line, -1) {
		if f[1] != "--help" && !regexp.MustCompile(`(?m)(^| )`+f[1]+`[ ,]`).MatchString(help) {
			p.Errorf("%q: there is no flag %s", line, f[1])
		}
	}
}
