package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckPairs(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := func(write bool) string {
		t.Helper()
		problems, err := checkPairs(root, write)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(problems, "\n")
	}
	if got := found(false); got != "" {
		t.Errorf("a repository without %s: %s", pairsFile, got)
	}
	put(pairsFile, `{"queue":"A","store":"A","queue_version":"1","store_version":"1","together":["queued effects","record","ack"],"payloads":3,"once":3}
{"queue":"B","store":"A","queue_version":"2","store_version":"1","together":["record","result"],"payloads":3,"once":3}
`)
	put("README.md", "before\n")
	if got := found(false); !strings.Contains(got, "marks") {
		t.Errorf("without marks: %q", got)
	}
	put("README.md", "before\n"+pairsBegin+"old\n"+pairsEnd+"after\n")
	if got := found(false); !strings.Contains(got, "make pairs") {
		t.Errorf("another table: %q", got)
	}
	if got := found(true) + found(false); got != "" {
		t.Errorf("after -write: %q", got)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"before\n", "| A | effect, record, ack |\n", "| B | record |\n", "A 1, B 2", "after\n"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("the README lacks %q:\n%s", line, text)
		}
	}
	put(pairsFile, `{"queue":"A","store":"A","payloads":3,"once":2}`)
	if _, err := checkPairs(root, false); err == nil || !strings.Contains(err.Error(), "2 of 3 payloads") {
		t.Errorf("a payload without an effect: %v", err)
	}
}
