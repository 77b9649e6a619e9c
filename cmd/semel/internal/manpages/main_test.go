package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrite: each command has a page with its flags, each shell its completions, and a second run writes the same.
func TestWrite(t *testing.T) {
	var first string
	for range 2 {
		dir := t.TempDir()
		if err := write(dir); err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for name, has := range map[string]string{
			"man/semel.1": "semel-work", "man/semel-work.1": "--concurrency", "man/semel-records-explain.1": "--events",
			"completions/semel.bash": "semel", "completions/_semel": "semel", "completions/semel.fish": "semel",
		} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !strings.Contains(string(text), has) {
				t.Errorf("%s has no %s: %v", name, has, err)
			}
		}
		work, _ := os.ReadFile(filepath.Join(dir, "man/semel-work.1"))
		all.Write(work)
		if first != "" && first != all.String() {
			t.Error("two runs write two pages")
		}
		first = all.String()
	}
}
