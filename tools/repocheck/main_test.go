package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCleanTree(t *testing.T) {
	root := tree(t, map[string]string{
		"go.mod": "module m\n\ngo 1.26 // requires nothing\n",
		"a.go":   "package a\n",
		"README.md": "# One `two` & three!\n\n## Again\n## Again\n[a](a.go) [d](docs/d.md#the-end) [w](https://example.com/x#y) [self](#again-1)\n" +
			"[h](#one-two--three) `[code](nowhere.md)`\n```\n[fence](nowhere.md)\n# no heading\n```\n",
		"docs/d.md": "## The [end](../a.go)\n[up](../README.md#again \"title\")\n",
		".git/x.md": "[x](nowhere.md)",
	})
	problems, warnings, err := check(root)
	if err != nil || len(problems)+len(warnings) > 0 {
		t.Fatalf("%q %q %v", problems, warnings, err)
	}
}

func TestFindings(t *testing.T) {
	root := tree(t, map[string]string{
		"go.mod":    "module m\n\nrequire (\n\texample.com/x v1.0.0\n)\n",
		"long.go":   "package a\n" + strings.Repeat("//\n", maxLines),
		"README.md": "[a](gone.go) [b](docs/d.md#no) [c](#no)\n```\n# no\n```\n",
		"docs/d.md": "# yes\n",
	})
	problems, warnings, err := check(root)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(problems, "\n")
	for _, want := range []string{"require line", "gone.go leads nowhere", "docs/d.md#no:", "link #no:"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not reported in:\n%s", want, all)
		}
	}
	if len(problems) != 4 || len(warnings) != 1 || !strings.Contains(warnings[0], "long.go has 401 lines") {
		t.Errorf("%q %q", problems, warnings)
	}
	if got := checkCore([]byte("module m\nrequire example.com/x v1.0.0\n")); len(got) != 1 {
		t.Error("a require on one line was not seen")
	}
	if _, _, err := check(t.TempDir()); err == nil {
		t.Error("a folder without go.mod passed")
	}
}
