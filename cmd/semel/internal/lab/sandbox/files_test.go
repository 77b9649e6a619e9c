package sandbox

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestS3_05_TheExampleHasWhatUpWrites: the variables of the example are those that are written for a pair on AWS.
func TestS3_05_TheExampleHasWhatUpWrites(t *testing.T) {
	b, err := os.ReadFile("../../../../../examples/.env.example")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^export ([A-Z_]+)=\S+$`).FindAllSubmatch(b, -1) {
		names = append(names, string(m[1]))
	}
	want := []string{
		"QUEUE_URL", "DLQ_ARN", "AWS_REGION", "MESSAGE_STATUS_TABLE", "MESSAGE_COMPLETED_TABLE", "SQS_VISIBILITY_TIMEOUT",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the example has %v, want %v", names, want)
	}
	for _, name := range want {
		if !strings.Contains(mustRead(t, "aws.go"), `set("`+name+`"`) {
			t.Errorf("%s is not written", name)
		}
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFilesOfOthersAreKept: only what Up wrote is written over, and only what is as it was written is removed.
func TestFilesOfOthersAreKept(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		env  bool
		ok   bool
	}{
		"new.env": {"", true, true}, "ours.env": {envHead + "\nexport A=1\n", true, true}, "theirs.env": {"A=1\n", true, false},
		"ours.json":   {`{"VisibilityDupStack":{"ApiEndpoint":"http://127.0.0.1:1/"}}`, false, true},
		"more.json":   {`{"VisibilityDupStack":{"ApiEndpoint":"http://x/"},"Other":{"A":"b"}}`, false, false},
		"theirs.json": {`{"VisibilityDupStack":{"Queue":"q"}}`, false, false},
	} {
		path := filepath.Join(dir, name)
		if c.text != "" {
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w := Wanted{Path: path, Env: c.env}
		if err := w.check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if b, _ := os.ReadFile(path); string(b) != c.text {
			t.Errorf("%s: looking at it made it %q", name, b)
		}
	}
	w := Wanted{Path: filepath.Join(dir, "o.json")}
	f, err := w.write(State{Endpoint: "http://127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	changed := Wanted{Path: filepath.Join(dir, "c.json")}
	g, err := changed.write(State{Endpoint: "http://127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.Path, []byte("mine now"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone, err := State{Dir: filepath.Join(dir, "none"), Files: []File{f, g}}.clear(false)
	if err != nil || len(gone) != 2 || gone[0] != (Item{What: "file", Name: f.Path}) || gone[1].Kept == "" {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := os.Stat(g.Path); err != nil {
		t.Errorf("the changed file: %v", err)
	}
}
