package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/scaffold"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestInit: in every language, what semel init writes runs at once. Its own test sends duplicates and counts the effects, doctor
// accepts the settings, and a second init changes nothing.
func TestInit(t *testing.T) {
	folder := semelFolder(t)
	for _, language := range scaffold.Languages() {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			program := map[string]string{"python": "python3", "shell": "sh"}[language]
			if program == "" {
				program = language
			}
			server.Command(t, program, "a handler in "+language+" runs on it")
			dir := filepath.Join(t.TempDir(), "shop")
			run := func(dir, line string) (string, error) {
				cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if out, err := run(filepath.Dir(dir), "semel init shop --lang "+language); err != nil || !strings.Contains(out, "sh shop/test.sh\n") {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err := run(dir, "sh test.sh")
			if err != nil || !strings.Contains(out, "received 6, effects 3, replayed 3,") || !strings.HasSuffix(out, "\nclean\n") {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err = run(dir, "semel migrate --config semel.yaml --sql schema.sql && semel doctor --config semel.yaml -o json")
			if err != nil || !strings.Contains(out, `"verdict":"ok"`) {
				t.Errorf("%v\n%s", err, out)
			}
			if out, err := run(dir, "semel init --lang "+language); err == nil || !strings.Contains(out, "exists: nothing was written") {
				t.Errorf("a second init: %v\n%s", err, out)
			}
			doubleEffect(t, dir, run)
		})
	}
}

// doubleEffect plants a handler that charges twice: the test that init wrote is red.
func doubleEffect(t *testing.T, dir string, run func(dir, line string) (string, error)) {
	t.Helper()
	path := filepath.Join(dir, "handler.py")
	text, err := os.ReadFile(path)
	if err != nil {
		return // planted in one language: the test is the same in all
	}
	row := `{"insert": "charges", "row": charge}`
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), row, row+", "+row, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(dir, "sh test.sh")
	if got := fmt.Sprint(err); got != "exit status 3" || !strings.Contains(out, "3 keys with too many effects") {
		t.Errorf("test.sh of a handler that charges twice: %v\n%s", err, out)
	}
}
