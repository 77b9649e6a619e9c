package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// TestS1_19RunbookCommands: the commands of docs/runbooks.md exist, with these flags and arguments.
func TestS1_19RunbookCommands(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, b := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(strings.ReplaceAll(b[1], "\\\n", " ")) {
			words := shellWords(line)
			if len(words) == 0 || words[0] != "semel" {
				continue
			}
			checked++
			root := (&app{p: &output.Printer{}}).root()
			c, rest, err := root.Find(words[1:])
			if err == nil && (c == root || c.HasSubCommands()) {
				t.Errorf("%q is no command", strings.TrimSpace(line))
				continue
			}
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err != nil {
				t.Errorf("%q: %v", strings.TrimSpace(line), err)
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d commands found", checked)
	}
}

// shellWords splits the first command of a line.
func shellWords(line string) []string {
	var words []string
	for _, w := range regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s;|#>]+|[;|#>]`).FindAllString(line, -1) {
		if strings.ContainsAny(w[:1], ";|#>") {
			break
		}
		words = append(words, strings.Trim(w, `'"`))
	}
	return words
}
