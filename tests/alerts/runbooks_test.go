package alerts

import (
	"os"
	"strings"
	"testing"

	"github.com/semel-dev/semel/contrib/prom"
)

// TestEveryRuleHasARunbook: each alert links to a section with its meaning, where to look and what to do, and each section has
// its rule. The binary's own tests parse the commands of the page.
func TestEveryRuleHasARunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, alerts, _ := strings.Cut(string(text), "\n## Alerts\n")
	alerts, _, _ = strings.Cut(alerts, "\n## ")
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
				t.Errorf("docs/runbooks.md has no %q under %q", part, "### "+name)
			}
		}
	}
	for name := range sections {
		if _, ok := rules[name]; !ok {
			t.Errorf("docs/runbooks.md has a section about %s, and there is no such rule", name)
		}
	}
}
