package main

import (
	"fmt"
	"strings"
	"testing"
)

// mission is a page with every row, where change may put another.
func mission(change map[string]string) string {
	var b strings.Builder
	for part, n := range missionRows {
		for i := 1; i <= n; i++ {
			id := fmt.Sprintf("%s-%02d", part, i)
			row, ok := change[id]
			if !ok {
				row = fmt.Sprintf("| %s | what | `a/a_test.go:TestA` | shown |", id)
			}
			b.WriteString(row + "\n")
		}
	}
	return b.String()
}

func TestMission(t *testing.T) {
	for _, c := range []struct {
		row  string
		want string // "" = nothing is wrong
	}{
		{"| S0-01 | what | nothing | planned |", ""},
		{"| S0-01 | what | `TestA`, `a/`, `docs/mission.md`, `semel audit --effects x.jsonl`, `ExampleB` | partly |", ""},
		{"", "row S0-01 stands there 0 times"},
		{"| S0-01 | a | `a/` | shown |\n| S0-01 | a | `a/` | shown |", "row S0-01 stands there 2 times"},
		{"| S0-01 | a | `a/` | shown |\n| S0-99 | a | `a/` | shown |", "there is no row S0-99"},
		{"| S0-01 | what | `a/` | done |", `state "done"`},
		{"| S0-01 | what | somewhere | shown |", "names nothing that shows it"},
		{"| S0-01 | what | `TestC` | shown |", "`TestC`: there is no such test"},
		{"| S0-01 | what | `ExampleC` | shown |", "`ExampleC`: there is no such test"},
		{"| S0-01 | what | `a/a_test.go:TestC` | shown |", "the file has no such test"},
		{"| S0-01 | what | `b/a_test.go:TestA` | shown |", "it is not there"},
		{"| S0-01 | what | `b/b_test.go:TestA` | shown |", "it is not there"},
		{"| S0-01 | what | `script/none.txtar` | shown |", "it is not there"},
		{"| S0-01 | what | `b/` | shown |", "it is not there"},
		{"| S0-01 | what | shown |", "has 2 cells"},
	} {
		root := tree(t, map[string]string{
			"go.mod":          "module m\n",
			"a/a_test.go":     "package a\n\nfunc TestA(t *testing.T) {}\n\nfunc ExampleB() {}\n",
			"docs/mission.md": mission(map[string]string{"S0-01": c.row}),
		})
		problems, _, err := check(root)
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.want)) {
			t.Errorf("%s: %q, wanted %q", c.row, problems, c.want)
		}
	}
}

func TestVerificationNamesTests(t *testing.T) {
	problems, _, err := check(tree(t, map[string]string{
		"go.mod": "module m\n", "a/a_test.go": "package a\n\nfunc TestA(t *testing.T) {}\n",
		"docs/verification.md": "`TestA`, `FuzzB`, `go test -run TestC`, `TestFM16_…`\n",
	}))
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0], "`FuzzB`: there is no such test") {
		t.Errorf("%q, %v", problems, err)
	}
}
